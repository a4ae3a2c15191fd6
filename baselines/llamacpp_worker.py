"""llama.cpp by ctypes, in the process that the client `baselines.llamacpp` starts.

Usage: python -m baselines.llamacpp_worker FOLDER [BACK_END]

A token is timed around `llama_decode` and `llama_synchronize`; the choice of the greedy token is not in it.
Threads are a pool of ggml's own, made once: without one, a build without OpenMP starts and joins threads for
every token.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import time
from collections.abc import Mapping
from ctypes import byref, c_int32
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from baselines import llamacpp_abi as abi
from baselines.errors import BaselineError
from baselines.llamacpp_routing import Routing
from baselines.mapped_file import let_go
from baselines.worker_serve import Handler, serve, take_protocol

_MAX_BATCH = 512
_TOP = 5
_WARM_UP_TOKEN = 0
_REPACKED = ("CPU_REPACK", "AMX")
"""Its buffers of weights in another layout than the file's."""


class Log:
    """Passes the library's log on to fd 2, without debug lines, and keeps it until `take`."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._level = 0
        self.callback = abi.LogCallback(self._write)

    def take(self) -> str:
        """What was logged since the last call."""
        text = "".join(self._lines)
        self._lines.clear()
        return text

    def _write(self, level: int, text: bytes | None, _: int | None) -> None:
        if level <= abi.LEVEL_DEBUG or text is None:
            return
        self._lines.append(text.decode("utf-8", "replace"))
        os.write(2, text)


@dataclass(frozen=True)
class Settings:
    """What `load` was asked for, names as in the client."""

    gguf: str
    threads: int
    cpus: list[int]
    flash_attention: bool | None
    repack: bool
    mmap: bool
    context: int
    kv_type: str
    poll: int
    warm_up: bool
    routing: bool


class Engine:
    """One model with one context, or none yet. The methods are the operations of the protocol."""

    def __init__(self, folder: Path, back_end: str | None) -> None:
        self._log = Log()
        self._libraries = abi.load(folder, back_end, self._log.callback)
        self._llama = self._libraries.llama
        self._all_cpus = os.sched_getaffinity(0)
        self._settings: Settings | None = None
        self._model: int | None = None
        self._context: int | None = None
        self._pool: int | None = None
        self._routing = Routing(self._libraries.base)
        self._tasks: set[int] = set()
        self._vocab = 0
        self._position = 0
        self._load_log = ""

    def handlers(self) -> Mapping[str, Handler]:
        """The operations by name."""
        return {
            "load": self.load,
            "decode": self.decode,
            "generate": self.generate,
            "follow": self.follow,
            "rest": self.rest,
            "reset": self.reset,
            "build": self.build,
            "info": self.info,
            "routing": self.routing,
            "let_go": self.let_go,
        }

    def load(self, **settings: Any) -> None:
        """Loads a model and makes its context and pool; what was loaded before goes first."""
        self._unload()
        wanted = Settings(**settings)
        self._log.take()
        try:
            self._load_model(wanted)
            self._make_context(wanted)
            self._make_pool(wanted)
            self._settings = wanted
            if wanted.warm_up:
                self._feed([_WARM_UP_TOKEN])
                self.reset()
                self._check_pinned(wanted)
        except BaselineError:
            self._unload()
            raise
        self._load_log = self._log.take()

    def decode(self, tokens: list[int], logits_of: list[int]) -> dict[str, Any]:
        """Feeds tokens; a summary of the logits after the last one."""
        self._check_tokens("logits_of", logits_of)
        before = self._run_delays_ns()
        ns = self._feed(tokens)
        delay_ns = self._longest_wait_ns(before)
        logits = self._logits()
        top = np.argsort(logits, kind="stable")[::-1][:_TOP]
        return {
            "argmax": int(np.argmax(logits)),
            "top": [[int(token), float(logits[token])] for token in top],
            "logits": [float(logits[token]) for token in logits_of],
            "finite": bool(np.isfinite(logits).all()),
            "ns": ns,
            "run_delay_ns": delay_ns,
        }

    def generate(self, token: int, n: int) -> dict[str, list[int]]:
        """Greedy continuation of `token`."""
        self._check_room(n)
        tokens, elapsed = [], []
        for _ in range(n):
            elapsed.append(self._feed([token]))
            token = int(np.argmax(self._logits()))
            tokens.append(token)
        return {"tokens": tokens, "ns": elapsed}

    def follow(self, tokens: list[int]) -> dict[str, Any]:
        """Feeds tokens one by one, whatever the greedy choice after each would be."""
        self._check_tokens("tokens", tokens)
        self._check_room(len(tokens))
        argmax, elapsed = [], []
        before = self._run_delays_ns()
        for token in tokens:
            elapsed.append(self._feed([token]))
            argmax.append(int(np.argmax(self._logits())))
        return {"argmax": argmax, "ns": elapsed, "run_delay_ns": self._longest_wait_ns(before)}

    def rest(self) -> None:
        """Puts the pool's threads to sleep; the next token wakes them."""
        self._loaded()
        self._libraries.cpu.ggml_threadpool_pause(self._pool)

    def reset(self) -> None:
        """Position 0; the KV cache is forgotten."""
        memory = self._llama.llama_get_memory(self._loaded())
        self._llama.llama_memory_clear(memory, True)
        self._position = 0

    def routing(self) -> list[list[int]]:
        """Experts of the last token, which was fed alone, by layer."""
        if not self._required_settings().routing:
            raise BaselineError("the model was loaded without routing")
        return self._routing.chosen()

    def let_go(self, readahead: bool) -> int:
        """Gives the pages of the mapped weights back; bytes mapped."""
        return let_go(Path(self._required_settings().gguf), readahead)

    def build(self) -> dict[str, str]:
        """Versions, and the back end that is mapped into this process."""
        return {
            "version": abi.VERSIONS["llama.cpp"],
            "ggml_version": abi.VERSIONS["ggml"],
            "commit": abi.VERSIONS["commit"],
            "back_end": self._libraries.back_end,
            "features": self._llama.llama_print_system_info().decode().strip(" |\n"),
        }

    def info(self) -> dict[str, Any]:
        """What really runs: versions, back end, and the settings as the library's log proves them."""
        settings = self._required_settings()
        description = ctypes.create_string_buffer(256)
        self._llama.llama_model_desc(self._model, description, len(description))
        buffers = {
            name: float(mib)
            for name, mib in re.findall(r"(\S+) model buffer size = +([\d.]+) MiB", self._load_log)
        }
        return {
            **self.build(),
            "model": description.value.decode("utf-8", "replace"),
            "model_bytes": self._llama.llama_model_size(self._model),
            "threads": settings.threads,
            "cpus": self._cpus(),
            "poll": settings.poll,
            "repack_allowed": settings.repack,
            "repack_mib": sum(buffers.get(name, 0.0) for name in _REPACKED),
            "buffers_mib": buffers,
            "huge_pages_mib": _huge_pages_mib(),
            "mmap": "load_mode = mmap" in self._load_log,
            "flash_attention_asked": settings.flash_attention,
            "flash_attention": _flash_attention(self._load_log),
            "kv_type": settings.kv_type,
            "context": settings.context,
        }

    def _load_model(self, wanted: Settings) -> None:
        params = self._llama.llama_model_default_params()
        params.n_gpu_layers = 0
        params.load_mode = abi.LOAD_MMAP if wanted.mmap else abi.LOAD_WHOLE
        params.use_extra_bufts = wanted.repack
        self._model = self._llama.llama_model_load_from_file(os.fsencode(wanted.gguf), params)
        if not self._model:
            raise BaselineError(f"{wanted.gguf} cannot be loaded: {self._last_log_line()}")
        self._vocab = self._llama.llama_vocab_n_tokens(self._llama.llama_model_get_vocab(self._model))

    def _make_context(self, wanted: Settings) -> None:
        params = self._llama.llama_context_default_params()
        params.n_ctx = wanted.context
        params.n_batch = params.n_ubatch = min(_MAX_BATCH, wanted.context)
        params.n_threads = params.n_threads_batch = wanted.threads
        params.flash_attn_type = abi.FLASH_ATTENTION[wanted.flash_attention]
        params.type_k = params.type_v = abi.KV_TYPES[wanted.kv_type]
        if wanted.routing:
            params.cb_eval = ctypes.cast(self._routing.callback, ctypes.c_void_p)
        self._context = self._llama.llama_init_from_model(self._model, params)
        if not self._context:
            raise BaselineError(f"no context with these settings: {self._last_log_line()}")
        self._position = 0

    def _make_pool(self, wanted: Settings) -> None:
        params = self._libraries.base.ggml_threadpool_params_default(wanted.threads)
        for cpu in wanted.cpus:
            params.cpumask[cpu] = True
        params.strict_cpu = True
        params.poll = wanted.poll
        # ggml binds the calling thread, which is one of the pool's, only when it wakes a paused pool.
        params.paused = True
        others = _tasks() - {os.getpid()}
        self._pool = self._libraries.cpu.ggml_threadpool_new(byref(params))
        self._tasks = _tasks() - others
        if not self._pool:
            raise BaselineError(f"no pool of {wanted.threads} threads")
        self._llama.llama_attach_threadpool(self._context, self._pool, self._pool)

    def _check_pinned(self, wanted: Settings) -> None:
        if self._cpus() != wanted.cpus:
            raise BaselineError(f"threads are bound to CPUs {self._cpus()}, {wanted.cpus} were asked for")

    def _cpus(self) -> list[int]:
        """CPU of each thread of the pool, ascending; -1 for one that is not bound to exactly one."""
        bound = [os.sched_getaffinity(task) for task in self._tasks]
        return sorted(cpus.pop() if len(cpus) == 1 else -1 for cpus in bound)

    def _run_delays_ns(self) -> dict[int, int] | None:
        """Nanoseconds that each thread of the pool was ready and waited for a CPU; None when not counted."""
        delays = {}
        for task in self._tasks:
            try:
                fields = Path(f"/proc/self/task/{task}/schedstat").read_text().split()
            except OSError:  # a kernel without CONFIG_SCHED_INFO
                return None
            delays[task] = int(fields[1])
        return delays

    def _longest_wait_ns(self, before: Mapping[int, int] | None) -> int | None:
        """Longest wait of a thread since `before`: one that waits holds up all. None when not counted."""
        after = self._run_delays_ns()
        if before is None or after is None:
            return None
        return max(delay - before[task] for task, delay in after.items())

    def _unload(self) -> None:
        if self._context:
            if self._pool:
                self._llama.llama_detach_threadpool(self._context)
                self._libraries.cpu.ggml_threadpool_free(self._pool)
            self._llama.llama_free(self._context)
        if self._model:
            self._llama.llama_model_free(self._model)
        self._settings = self._model = self._context = self._pool = None
        # The pool had bound this thread to one CPU; threads started later would inherit that.
        os.sched_setaffinity(0, self._all_cpus)

    def _required_settings(self) -> Settings:
        if self._settings is None:
            raise BaselineError("no model is loaded")
        return self._settings

    def _loaded(self) -> int | None:
        self._required_settings()
        return self._context

    def _feed(self, tokens: list[int]) -> int:
        """Decodes tokens, in batches; nanoseconds of all of them."""
        context = self._loaded()
        if not tokens:
            raise BaselineError("tokens: none given")
        self._check_tokens("tokens", tokens)
        self._check_room(len(tokens))
        if self._required_settings().routing and len(tokens) > 1:
            raise BaselineError(f"tokens: {len(tokens)} given, with routing one is fed at a time")
        self._routing.forget()
        ns = 0
        for first in range(0, len(tokens), _MAX_BATCH):
            part = tokens[first : first + _MAX_BATCH]
            ids = (c_int32 * len(part))(*part)
            batch = self._llama.llama_batch_get_one(ids, len(part))
            start = time.perf_counter_ns()
            status = self._llama.llama_decode(context, batch)
            self._llama.llama_synchronize(context)
            ns += time.perf_counter_ns() - start
            if status != 0:
                raise BaselineError(f"llama_decode returned {status}: {self._last_log_line()}")
            self._position += len(part)
        return ns

    def _check_tokens(self, name: str, tokens: list[int]) -> None:
        wrong = next((token for token in tokens if not 0 <= token < self._vocab), None)
        if wrong is not None:
            raise BaselineError(f"{name}: id {wrong} found, allowed: 0 to {self._vocab - 1}")

    def _check_room(self, n: int) -> None:
        context = self._required_settings().context
        if self._position + n > context:
            raise BaselineError(
                f"{n} tokens at position {self._position} do not fit in a context of {context}"
            )

    def _logits(self) -> npt.NDArray[np.float32]:
        address = self._llama.llama_get_logits_ith(self._context, -1)
        if not address:
            raise BaselineError("llama.cpp gave no logits")
        return np.ctypeslib.as_array(address, shape=(self._vocab,))

    def _last_log_line(self) -> str:
        lines = self._log.take().strip().splitlines()
        return lines[-1].strip() if lines else "it logged nothing"


def _tasks() -> set[int]:
    """Ids of this process's threads; the first thread's is the process id."""
    return {int(task.name) for task in Path("/proc/self/task").iterdir()}


def _huge_pages_mib() -> float | None:
    """Memory of this process on huge pages, MiB; None where the kernel does not say."""
    try:
        text = Path("/proc/self/smaps_rollup").read_text()
    except OSError:
        return None
    found = re.search(r"AnonHugePages: +(\d+) kB", text)
    return None if found is None else int(found[1]) / 1024


def _flash_attention(log: str) -> bool | None:
    """Whether flash attention runs, as the log of the context says; None when it says nothing."""
    asked = re.search(r"flash_attn += (\w+)", log)
    if asked is None:
        return None
    if asked[1] != "auto":
        return asked[1] == "enabled"
    resolved = re.search(r"Flash Attention (enabled|not supported|disabled)", log, re.IGNORECASE)
    return None if resolved is None else resolved[1].lower() == "enabled"


def main() -> None:
    """Serves the protocol until stdin ends."""
    folder, back_end = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None
    requests, answers = take_protocol()
    serve(requests, answers, lambda: Engine(folder, back_end).handlers())


if __name__ == "__main__":
    main()
