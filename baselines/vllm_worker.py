"""vLLM in the process that the client `baselines.vllm_cpu` starts, by the interpreter of vLLM's environment.

Usage: python -m baselines.vllm_worker VERSION

Nothing of this project but `baselines.errors` and `baselines.worker_serve` is imported here, and NumPy is
vLLM's. Tokens are timed around `LLMEngine.step()`, which runs in this very process: the first step of a
request takes the prompt and yields the first token, each one after it a token.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import importlib.metadata
import json
import logging
import os
import re
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from baselines.errors import BaselineError
from baselines.worker_serve import Handler, serve, take_protocol

_PACKAGE = "vllm-cpu"
_UNQUANTISED = "vllm.model_executor.layers.utils"
_KERNEL = re.compile(r"\b(?:Using|Selected) (\w+Kernel)\b|unquantized GEMM dispatch: using (.+)")
_CHECK_TOKENS = 8
_WARM_UP_TOKEN = 1
_SLEEP_S = 0.02
_POLLING = "gloo"
"""Names of threads that begin with it."""
_PR_SET_PDEATHSIG = 1
_FORMS = {"int-quantized": "int8", "pack-quantized": "int4"}


class Kernels(logging.Handler):
    """The matrix kernels that vLLM's log names, in order of appearance."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.names: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps what a line says of a kernel."""
        found = _KERNEL.search(record.getMessage())
        if found is not None:
            name = found[1] or found[2].strip()
            if name not in self.names:
                self.names.append(name)


class Engine:
    """One model, or none yet. The methods are the operations of the protocol."""

    def __init__(self, version: str) -> None:
        self._torch: Any = importlib.import_module("torch")
        self._vllm: Any = importlib.import_module("vllm")
        self._version = importlib.metadata.version(_PACKAGE)
        if self._version != version:
            raise BaselineError(f"{_PACKAGE} is {self._version}, {version} is needed: install it anew")
        # The client forbids vLLM to configure its loggers: each model would drop this handler.
        logging.basicConfig(level=logging.INFO, stream=sys.stderr)
        self._kernels = Kernels()
        logging.getLogger("vllm").addHandler(self._kernels)
        # It tells the kernel of matrices that are not quantised at this level only.
        logging.getLogger(_UNQUANTISED).setLevel(logging.DEBUG)
        self._llm: Any = None
        self._loaded: dict[str, Any] = {}
        self._requests = 0

    def handlers(self) -> Mapping[str, Handler]:
        """The operations by name."""
        return {"load": self.load, "decode": self.decode, "logprobs": self.logprobs, "info": self.info}

    def load(self, folder: str, cpus: list[int], context: int, eager: bool, top: int) -> None:
        """Loads a model, compiles it unless `eager`, warms it up, and holds two ways of timing together."""
        form = _form(Path(folder))
        self._check_kernels(form)
        started_ns = time.perf_counter_ns()
        try:
            self._llm = self._vllm.LLM(
                model=folder,
                dtype="bfloat16",
                max_model_len=context,
                max_num_batched_tokens=context,
                max_num_seqs=1,
                max_logprobs=top,
                enforce_eager=eager,
                enable_prefix_caching=False,
                enable_chunked_prefill=False,
                async_scheduling=False,
                skip_tokenizer_init=True,
                seed=0,
            )
        except (RuntimeError, ValueError, MemoryError, OSError) as error:
            raise BaselineError(f"{folder} cannot be loaded: {_sentence(error)}") from error
        loaded_ns = time.perf_counter_ns()
        check = self._cross_check()
        bound = _bound_cpus()
        if bound != cpus:
            raise BaselineError(f"threads are bound to CPUs {bound}, {cpus} were asked for")
        # What is alive now stays: the collector need not look at it while tokens are timed.
        gc.collect()
        gc.freeze()
        self._loaded = {
            "form": form,
            "eager": eager,
            "context": context,
            "cpus": bound,
            "load_ns": loaded_ns - started_ns,
            "warm_up_ns": time.perf_counter_ns() - loaded_ns,
            "cross_check": check,
        }

    def decode(self, prompt: list[int], tokens: int) -> dict[str, Any]:
        """The prompt, and so many greedy tokens after the one that it yields."""
        self._required()
        steps, chosen, delay_ns = self._generate(prompt, tokens + 1)
        if len(steps) != tokens + 1 or len(chosen) != tokens + 1:
            raise BaselineError(f"{len(steps)} steps gave {len(chosen)} tokens, {tokens + 1} were expected")
        time.sleep(_SLEEP_S)  # its threads spin for some milliseconds: not beside another engine
        return {
            "tokens": chosen,
            "step_ns": steps[1:],
            "prompt_ns": steps[0],
            "run_delay_ns": delay_ns,
        }

    def logprobs(self, tokens: list[int], top: int) -> list[list[list[float]]]:
        """For each position but the last the `top` most likely next tokens as [id, log probability]."""
        self._required()
        parameters = self._parameters(1, prompt_logprobs=top)
        (answer,) = self._llm.generate([_prompt(tokens)], parameters, use_tqdm=False)
        time.sleep(_SLEEP_S)
        found = [
            sorted(((token, one.logprob) for token, one in position.items()), key=lambda one: -one[1])
            for position in answer.prompt_logprobs
            if position is not None
        ]
        return [[[token, value] for token, value in position[:top]] for position in found]

    def info(self) -> dict[str, Any]:
        """What really runs."""
        self._required()
        return {
            **self._loaded,
            "version": self._version,
            "torch": self._torch.__version__,
            "library": _library(),
            "kernels": self._kernels.names,
            "threads": self._torch.get_num_threads(),
            "peak_bytes": _peak_bytes(),
        }

    def _check_kernels(self, form: str) -> None:
        platforms: Any = importlib.import_module("vllm.platforms")
        platforms.current_platform.import_kernels()
        if form == "int4" and not hasattr(self._torch.ops._C, "cpu_gemm_wna16"):
            raise BaselineError("vLLM's int4 kernel is not in its library for this CPU: it needs AVX-512")

    def _generate(self, prompt: list[int], tokens: int) -> tuple[list[int], list[int], int | None]:
        """Nanoseconds of each step, the tokens, and the longest wait of a thread behind the first step.

        In the first, threads that slept or were stopped wait for each other to come back.
        """
        engine = self._llm.llm_engine
        self._requests += 1
        engine.add_request(str(self._requests), _prompt(prompt), self._parameters(tokens))
        steps: list[int] = []
        chosen: list[int] = []
        before: Mapping[str, int] | None = None
        while engine.has_unfinished_requests():
            started_ns = time.perf_counter_ns()
            answers = engine.step()
            steps.append(time.perf_counter_ns() - started_ns)
            if before is None:
                before = _run_delays_ns()
            for answer in answers:
                chosen = [int(token) for token in answer.outputs[0].token_ids]
        return steps, chosen, _longest_wait_ns(before)

    def _cross_check(self) -> float:
        """Time per token by (T(n+1) - T(1)) / n, over the mean of the steps of the same request."""
        prompt = [_WARM_UP_TOKEN] * 2
        self._generate(prompt, _CHECK_TOKENS + 1)
        started_ns = time.perf_counter_ns()
        self._generate(prompt, 1)
        one_ns = time.perf_counter_ns() - started_ns
        started_ns = time.perf_counter_ns()
        steps, _, _ = self._generate(prompt, _CHECK_TOKENS + 1)
        all_ns = time.perf_counter_ns() - started_ns
        return (all_ns - one_ns) / sum(steps[1:])

    def _parameters(self, tokens: int, **more: Any) -> Any:
        return self._vllm.SamplingParams(
            temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False, **more
        )

    def _required(self) -> None:
        if self._llm is None:
            raise BaselineError("no model is loaded")


def _prompt(tokens: list[int]) -> dict[str, list[int]]:
    return {"prompt_token_ids": tokens}


def _form(folder: Path) -> str:
    """bf16, int8 or int4, as config.json says."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        layout = config.get("quantization_config", {}).get("format")
    except (OSError, ValueError, AttributeError) as error:
        raise BaselineError(f"{folder / 'config.json'}: cannot be read: {_sentence(error)}") from error
    if layout is not None and layout not in _FORMS:
        raise BaselineError(f"{folder / 'config.json'}: format is {layout!r}, allowed: {', '.join(_FORMS)}")
    return "bf16" if layout is None else _FORMS[layout]


def _library() -> str:
    """Which of vLLM's libraries of kernels is mapped, e.g. "_C_AVX2"."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    found = sorted(set(re.findall(r"/vllm/(_C\w*)\.", maps)))
    return ", ".join(found) or "none"


def _bound_cpus() -> list[int]:
    """CPUs that a thread of this process is bound to alone, ascending."""
    cpus = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            allowed = os.sched_getaffinity(int(task.name))
        except ProcessLookupError:  # it ended meanwhile
            continue
        if len(allowed) == 1:
            cpus |= allowed
    return sorted(cpus)


def _run_delays_ns(tasks: Path = Path("/proc/self/task")) -> dict[str, int] | None:
    """Nanoseconds that each thread was ready and waited for a CPU; None when not counted.

    Those of its communication library are left out: they poll, and compute nothing.
    """
    delays = {}
    for task in tasks.iterdir():
        try:
            if (task / "comm").read_text().startswith(_POLLING):
                continue
            delays[task.name] = int((task / "schedstat").read_text().split()[1])
        except ProcessLookupError:  # it ended meanwhile
            continue
        except (OSError, IndexError):
            if task.exists():  # a kernel without CONFIG_SCHED_INFO
                return None
    return delays


def _longest_wait_ns(before: Mapping[str, int] | None) -> int | None:
    """Longest wait of a thread since `before`: one that waits holds up all. None when not counted."""
    after = _run_delays_ns()
    if before is None or after is None:
        return None
    return max((delay - before[task] for task, delay in after.items() if task in before), default=None)


def _peak_bytes() -> int | None:
    """Most memory that this process had; None where the kernel does not say."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"))
    return None if found is None else int(found[1]) * 1024


def _sentence(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


def _end_with_client() -> None:
    """Has the kernel end this process when the client's thread that started it ends: while it is stopped it
    would not see that its stdin has ended, and stay with all its memory.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    """Serves the protocol until stdin ends."""
    _end_with_client()
    requests, answers = take_protocol()
    serve(requests, answers, lambda: Engine(sys.argv[1]).handlers())


if __name__ == "__main__":
    main()
