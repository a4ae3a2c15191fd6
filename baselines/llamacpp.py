"""llama.cpp as a baseline: the same weights, in its own process, with what really ran in the results.

::

    with LlamaCpp() as baseline:
        baseline.load(gguf, threads=2)
        baseline.decode(prompt[:-1])
        tokens = baseline.generate(prompt[-1], 12).tokens

Token ids go in and come out; its tokenizer is not used. Its tokens are timed around `llama_decode` and
`llama_synchronize` alone, which leaves the choice of the greedy token out, in its favour.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from baselines.errors import BaselineError
from baselines.install import LLAMACPP, libraries
from baselines.llamacpp_abi import KV_TYPES, MAX_CPUS
from baselines.worker_process import WorkerProcess, python_environment

KvType = Literal["f16", "f32", "q8_0"]

_START_TIMEOUT_S = 60.0
_LOAD_TIMEOUT_S = 600.0
_TIMEOUT_S = 600.0
_MAX_POLL = 100


@dataclass(frozen=True)
class Decoded:
    """A summary of the logits after the last token. `top` holds the largest as (id, logit), descending.

    `logits` are those of the ids that were asked for. `ns` is the time of all tokens of the call,
    `run_delay_ns` the longest time in it that a thread of the pool waited for a CPU.
    """

    argmax: int
    top: tuple[tuple[int, float], ...]
    logits: tuple[float, ...]
    finite: bool
    ns: int
    run_delay_ns: int | None


@dataclass(frozen=True)
class Generated:
    """Greedy tokens and the nanoseconds of each."""

    tokens: tuple[int, ...]
    ns: tuple[int, ...]


@dataclass(frozen=True)
class Followed:
    """Tokens that were fed one by one: the greedy choice after each, the nanoseconds of each, and the longest
    time that a thread of the pool waited for a CPU meanwhile."""

    argmax: tuple[int, ...]
    ns: tuple[int, ...]
    run_delay_ns: int | None


@dataclass(frozen=True)
class Build:
    """Which library runs, and the CPU back end that is mapped into its process, e.g. "haswell"."""

    version: str
    ggml_version: str
    commit: str
    back_end: str
    features: str


@dataclass(frozen=True)
class Info(Build):
    """What really runs. From the library or its log, except what was asked for: `threads`, `poll`,
    `repack_allowed`, `flash_attention_asked` (None: its own choice), `kv_type` and `context`."""

    model: str
    model_bytes: int
    threads: int
    cpus: tuple[int, ...]
    """CPU that each of its threads is bound to, ascending; -1 for one that is not. The first is bound when a
    token is decoded."""
    poll: int
    repack_allowed: bool
    repack_mib: float
    """Size of the buffers of repacked weights, for vectors or for AMX, MiB; 0 when nothing was repacked,
    allowed or not."""
    buffers_mib: dict[str, float]
    """All buffers of weights, MiB, by llama.cpp's names."""
    huge_pages_mib: float | None
    """Memory of its process on huge pages, MiB; None where the kernel does not say."""
    mmap: bool
    flash_attention_asked: bool | None
    flash_attention: bool | None
    """Whether it runs; None when the log does not say."""
    kv_type: str
    context: int

    def to_json(self) -> dict[str, Any]:
        """As it stands in results."""
        return {**asdict(self), "cpus": list(self.cpus)}


class LlamaCpp:
    """A llama.cpp in a process of its own. Use as a context manager, or call `close()`.

    `back_end` forces one of its CPU back ends; None leaves the choice to it. `huge_pages` has the C library
    back its large buffers, repacked weights among them, with huge pages (glibc 2.35); where the kernel's
    setting is `madvise`, llama.cpp has none by itself. `enter` is called in its process before anything else
    there (see `WorkerProcess`). Raises BaselineError: not installed, another version,
    or a worker that died, hung or reported an error; `error.log` then holds the end of its log.
    """

    def __init__(
        self,
        back_end: str | None = None,
        *,
        huge_pages: bool = False,
        enter: Callable[[], None] | None = None,
    ) -> None:
        command = [sys.executable, "-m", "baselines.llamacpp_worker", str(libraries(LLAMACPP))]
        environment = python_environment()
        if huge_pages:
            tunables = [*filter(None, [os.environ.get("GLIBC_TUNABLES")]), "glibc.malloc.hugetlb=1"]
            environment["GLIBC_TUNABLES"] = ":".join(tunables)
        worker = command if back_end is None else [*command, back_end]
        self._worker = WorkerProcess(LLAMACPP, worker, environment, _START_TIMEOUT_S, enter)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process. May be called again."""
        self._worker.close()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._worker.pid

    def load(
        self,
        gguf: Path,
        threads: int,
        *,
        cpus: Sequence[int] | None = None,
        flash_attention: bool | None = None,
        repack: bool = True,
        mmap: bool = True,
        context: int = 512,
        kv_type: KvType = "f16",
        poll: int = 50,
        warm_up: bool = True,
        routing: bool = False,
        timeout_s: float = _LOAD_TIMEOUT_S,
    ) -> None:
        """Loads a model; one that was loaded before goes first.

        Each thread is bound to one of `cpus`, by default the first `threads` that this process may use.
        `flash_attention` None leaves the choice to llama.cpp. `poll` is how long its threads spin for work
        before they sleep: 0 not at all, to 100. `warm_up` decodes one token and forgets it; without it the
        loading alone has touched the weights. `routing` notes the experts of each token, which takes time.
        """
        allowed = os.sched_getaffinity(0)
        bound = sorted(allowed)[:threads] if cpus is None else sorted(set(cpus))
        if threads < 1 or len(bound) != threads:
            raise BaselineError(f"threads: {threads} found, with {len(bound)} CPUs to bind them to")
        if not set(bound) <= {cpu for cpu in allowed if cpu < MAX_CPUS}:
            raise BaselineError(f"cpus: {bound} found, allowed: {sorted(allowed)} below {MAX_CPUS}")
        if kv_type not in KV_TYPES:
            raise BaselineError(f"kv_type: {kv_type!r} found, allowed: {', '.join(KV_TYPES)}")
        if context < 1:
            raise BaselineError(f"context: {context} found, must be at least 1")
        if not 0 <= poll <= _MAX_POLL:
            raise BaselineError(f"poll: {poll} found, allowed: 0 to {_MAX_POLL}")
        if not gguf.is_file():
            raise BaselineError(f"{gguf}: no such file")
        self._worker.call(
            "load",
            timeout_s,
            gguf=str(gguf.resolve()),
            threads=threads,
            cpus=bound,
            flash_attention=flash_attention,
            repack=repack,
            mmap=mmap,
            context=context,
            kv_type=kv_type,
            poll=poll,
            warm_up=warm_up,
            routing=routing,
        )

    def decode(
        self, tokens: Sequence[int], *, logits_of: Sequence[int] = (), timeout_s: float = _TIMEOUT_S
    ) -> Decoded:
        """Feeds tokens at the current position; also the logits of the ids `logits_of`."""
        answer = self._worker.call("decode", timeout_s, tokens=list(tokens), logits_of=list(logits_of))
        top = tuple((token, logit) for token, logit in answer.pop("top"))
        return Decoded(**{**answer, "top": top, "logits": tuple(answer["logits"])})

    def generate(self, token: int, n: int, *, timeout_s: float = _TIMEOUT_S) -> Generated:
        """Greedy continuation of `token` by `n` tokens."""
        answer = self._worker.call("generate", timeout_s, token=token, n=n)
        return Generated(tuple(answer["tokens"]), tuple(answer["ns"]))

    def follow(self, tokens: Sequence[int], *, timeout_s: float = _TIMEOUT_S) -> Followed:
        """Feeds tokens one by one at the current position, whatever it would have chosen itself."""
        answer = self._worker.call("follow", timeout_s, tokens=list(tokens))
        return Followed(tuple(answer["argmax"]), tuple(answer["ns"]), answer["run_delay_ns"])

    def rest(self) -> None:
        """Puts its threads to sleep, so that they do not spin beside another engine; the next token wakes
        them.
        """
        self._worker.call("rest", _TIMEOUT_S)

    def routing(self) -> tuple[tuple[int, ...], ...]:
        """Experts that its graph chose for the last token, by layer; empty when the model has none.

        Raises BaselineError for a model that was loaded without `routing`.
        """
        return tuple(tuple(layer) for layer in self._worker.call("routing", _TIMEOUT_S))

    def let_go(self, *, readahead: bool) -> int:
        """Gives the pages of its mapped weights back, so that they can be evicted; returns the bytes mapped.

        `readahead` False: from now on a fault brings one page. Raises BaselineError when nothing is mapped.
        """
        return int(self._worker.call("let_go", _TIMEOUT_S, readahead=readahead))

    def reset(self) -> None:
        """Position 0; the KV cache is forgotten."""
        self._worker.call("reset", _TIMEOUT_S)

    def build(self) -> Build:
        """Which library runs; no model is needed."""
        return Build(**self._worker.call("build", _TIMEOUT_S))

    def info(self) -> Info:
        """What really runs. Raises BaselineError before a model is loaded."""
        answer = self._worker.call("info", _TIMEOUT_S)
        return Info(**{**answer, "cpus": tuple(answer["cpus"])})
