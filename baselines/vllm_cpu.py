"""vLLM on CPUs as a baseline: weights made from the same values, in its own environment and process.

::

    export_hf(model, folder, HfForm.INT4)
    with VllmCpu(folder, threads=2) as baseline:
        sample = baseline.decode(prompt, 64)
        print(sample.step_ns, baseline.info().kernel)

Token ids go in and come out; its tokenizer is not used. It has formats of its own: int4 has groups of 128,
not blocks of 32, so that its logits are close to ours and not the same (`claims.closeness`).
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from baselines.errors import BaselineError
from baselines.install import VLLM, VLLM_RECIPE, environment
from baselines.worker_process import WorkerProcess

TOP: Final = 32
"""Most likely tokens that can be asked for."""

_START_TIMEOUT_S = 300.0
_LOAD_TIMEOUT_S = 1800.0
_TIMEOUT_S = 1200.0

_GIB: Final = 1 << 30
_MEMINFO = Path("/proc/meminfo")
_PROGRAM_BYTES: Final = 2 * _GIB
"""What vLLM takes before it has a weight, about."""
_COPIES: Final = 1.25
"""Memory that weights take while they are rearranged, in times of their size, about."""

# Only this one package of the project is found by vLLM's interpreter: on PYTHONPATH the folder of an
# installed project would also bring the NumPy of another environment.
_BOOTSTRAP: Final = """
import importlib.util, runpy, sys
folder = sys.argv.pop(1)
spec = importlib.util.spec_from_file_location(
    "baselines", folder + "/__init__.py", submodule_search_locations=[folder])
package = importlib.util.module_from_spec(spec)
sys.modules["baselines"] = package
spec.loader.exec_module(package)
runpy.run_module("baselines.vllm_worker", run_name="__main__", alter_sys=True)
"""


@dataclass(frozen=True)
class VllmSample:
    """Greedy tokens: the first is that of the prompt's step, which took `prompt_ns`; `step_ns` has one entry
    for each of the others. run_delay_ns: longest time that one of its threads waited for a CPU in those
    steps; None when not counted."""

    tokens: tuple[int, ...]
    step_ns: tuple[int, ...]
    prompt_ns: int
    run_delay_ns: int | None


@dataclass(frozen=True)
class VllmInfo:
    """What really runs."""

    version: str
    torch: str
    library: str
    """Which of its libraries of kernels: "_C" needs AVX-512 and BF16, "_C_AVX512", "_C_AVX2"."""
    kernels: tuple[str, ...]
    """Matrix kernels that its log names, in order of appearance."""
    form: str
    eager: bool
    """False: compiled."""
    threads: int
    cpus: tuple[int, ...]
    """CPUs that its threads are bound to, ascending."""
    context: int
    load_ns: int
    """Loading, and compiling where it does."""
    warm_up_ns: int
    cross_check: float
    """Time per token by (T(n+1) - T(1)) / n over that of the steps: near 1 on a machine at rest."""
    peak_bytes: int | None

    @property
    def kernel(self) -> str:
        """All kernels in one line."""
        return ", ".join(self.kernels) or "not named by its log"

    def to_json(self) -> dict[str, Any]:
        """As it stands in results."""
        return {**asdict(self), "kernels": list(self.kernels), "cpus": list(self.cpus)}


class VllmCpu:
    """A vLLM in a process of its own, with one model. Use as a context manager, or call `close()`.

    The constructor loads `folder` (bf16, int8 or int4, as `engine.export_hf` writes it) and warms up. Each
    thread is bound to one of `cpus`, by default the first `threads` that this process may use. `eager` False
    compiles, which takes a minute and a C++ compiler. `enter` is called in its process before anything else
    there (see `WorkerProcess`). Between calls its process is stopped.

    Raises BaselineError: not installed, too little memory (nothing was started then), no kernel for this CPU,
    or a worker that died, hung or reported an error; `error.log` then holds the end of its log.
    """

    def __init__(
        self,
        folder: Path,
        *,
        threads: int,
        cpus: Sequence[int] | None = None,
        context: int = 512,
        eager: bool = True,
        enter: Callable[[], None] | None = None,
        start_timeout_s: float = _START_TIMEOUT_S,
        load_timeout_s: float = _LOAD_TIMEOUT_S,
    ) -> None:
        bound = _bound(threads, cpus)
        if context < 1:
            raise BaselineError(f"context: {context} found, must be at least 1")
        root = environment(VLLM)
        _check_memory(folder, context)
        self._worker = WorkerProcess(
            VLLM,
            [
                str(VLLM_RECIPE.python(root)),
                "-c",
                _BOOTSTRAP,
                str(Path(__file__).resolve().parent),
                VLLM_RECIPE.version,
            ],
            _settings(root, bound, _kv_gib(folder, context)),
            start_timeout_s,
            enter,
        )
        try:
            self._call(
                "load",
                load_timeout_s,
                folder=str(folder.resolve()),
                cpus=bound,
                context=context,
                eager=eager,
                top=TOP,
            )
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process. May be called again."""
        self._worker.close()

    def _call(self, operation: str, timeout_s: float, **arguments: Any) -> Any:
        """A call with the process awake. Afterwards it is stopped: a dozen of its threads poll, two per cent
        of a core, beside whatever runs next.
        """
        if self._worker.alive:
            os.kill(self._worker.pid, signal.SIGCONT)
        try:
            return self._worker.call(operation, timeout_s, **arguments)
        finally:
            if self._worker.alive:
                os.kill(self._worker.pid, signal.SIGSTOP)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._worker.pid

    def decode(self, prompt: Sequence[int], tokens: int, *, timeout_s: float = _TIMEOUT_S) -> VllmSample:
        """The prompt from an empty context, then `tokens` timed greedy tokens after the one it yields."""
        if not prompt or tokens < 1:
            raise BaselineError(f"prompt and tokens: {len(prompt)} and {tokens} found, must be at least 1")
        answer = self._call("decode", timeout_s, prompt=list(prompt), tokens=tokens)
        return VllmSample(
            tokens=tuple(answer["tokens"]),
            step_ns=tuple(answer["step_ns"]),
            prompt_ns=answer["prompt_ns"],
            run_delay_ns=answer["run_delay_ns"],
        )

    def logprobs(
        self, tokens: Sequence[int], top: int = TOP, *, timeout_s: float = _TIMEOUT_S
    ) -> tuple[tuple[tuple[int, float], ...], ...]:
        """For each position but the last the `top` most likely next tokens as (id, log probability)."""
        if len(tokens) < 2 or not 1 <= top <= TOP:
            raise BaselineError(
                f"tokens and top: {len(tokens)} and {top} found, allowed: 2 or more, 1 to {TOP}"
            )
        answer = self._call("logprobs", timeout_s, tokens=list(tokens), top=top)
        return tuple(tuple((int(token), float(value)) for token, value in one) for one in answer)

    def info(self) -> VllmInfo:
        """What really runs."""
        answer = self._call("info", _TIMEOUT_S)
        lists = {"kernels": tuple(answer["kernels"]), "cpus": tuple(answer["cpus"])}
        return VllmInfo(**{**answer, **lists})


def needed_bytes(folder: Path, context: int) -> int:
    """Memory that vLLM takes for a model, about. Raises BaselineError for a folder that holds none."""
    return round(_COPIES * _weight_bytes(folder)) + _kv_gib(folder, context) * _GIB + _PROGRAM_BYTES


def _bound(threads: int, cpus: Sequence[int] | None) -> list[int]:
    allowed = os.sched_getaffinity(0)
    bound = sorted(allowed)[:threads] if cpus is None else sorted(set(cpus))
    if threads < 1 or len(bound) != threads:
        raise BaselineError(f"threads: {threads} found, with {len(bound)} CPUs to bind them to")
    if not set(bound) <= allowed:
        raise BaselineError(f"cpus: {bound} found, allowed: {sorted(allowed)}")
    return bound


def _settings(root: Path, cpus: Sequence[int], kv_gib: int) -> dict[str, str]:
    """The worker's environment. vLLM binds threads in processes that it starts itself; this one it does not
    start, so that the OpenMP library is told, with the times of vLLM's own settings.
    """
    listed = ",".join(map(str, cpus))
    openmp = root / "lib/libiomp5.so"
    if openmp.is_file():
        binding = {
            "LD_PRELOAD": ":".join([str(openmp), *filter(None, [os.environ.get("LD_PRELOAD")])]),
            "KMP_AFFINITY": f"granularity=fine,explicit,proclist=[{listed}]",
            "KMP_BLOCKTIME": "5",
            "KMP_TPAUSE": "0",
        }
    else:
        binding = {"GOMP_CPU_AFFINITY": listed.replace(",", " ")}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VLLM_"))}
    return {
        **kept,
        **binding,
        "OMP_NUM_THREADS": str(len(cpus)),
        "PYTHONNOUSERSITE": "1",
        "VLLM_CPU_KVCACHE_SPACE": str(kv_gib),
        "VLLM_CPU_INT4_W4A8": "0",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CONFIGURE_LOGGING": "0",
        "VLLM_CACHE_ROOT": str(root / "cache"),
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
    }


def _check_memory(folder: Path, context: int) -> None:
    needed, available = needed_bytes(folder, context), _available_bytes()
    if available is not None and needed > available:
        raise BaselineError(
            f"{VLLM}: {folder} needs about {needed / 1e9:.1f} GB of memory, {available / 1e9:.1f} GB are free"
        )


def _available_bytes() -> int | None:
    """Memory that can be had without swapping; None where the kernel does not say."""
    try:
        lines = _MEMINFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def _weight_bytes(folder: Path) -> int:
    sizes = [path.stat().st_size for path in folder.glob("*.safetensors")]
    if not sizes:
        raise BaselineError(f"{folder}: holds no .safetensors file")
    return sum(sizes)


def _kv_gib(folder: Path, context: int) -> int:
    """Whole GiB, as vLLM is told, for the keys and values of `context` positions in bfloat16."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        per_position = config["num_hidden_layers"] * config["num_key_value_heads"] * config["head_dim"]
        return -(-int(per_position) * 2 * 2 * context // _GIB)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BaselineError(f"{path}: is no model's description: {type(error).__name__}: {error}") from error
