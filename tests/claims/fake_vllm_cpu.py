"""A vLLM that computes nothing: its tokens are the same every time, and its times are made up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from baselines.vllm_cpu import VllmInfo, VllmSample
from tests.claims.fake_llamacpp import NO_PROCESS

STEP_NS = 50_000


class FakeVllmCpu:
    """Under the interface of `VllmCpu`. `loads`: folders, of all that were made."""

    loads: list[Path] = []

    def __init__(self, folder: Path, *, threads: int, context: int) -> None:
        assert (folder / "config.json").is_file()
        type(self).loads.append(folder)
        self.pid = NO_PROCESS + len(self.loads)
        self._threads, self._context = threads, context
        self._form = next((form for form in ("int4", "int8", "bf16") if form in str(folder)), "bf16")

    def close(self) -> None:
        """Nothing to end."""

    def decode(self, prompt: Sequence[int], tokens: int) -> VllmSample:
        assert len(prompt) + tokens + 1 <= self._context
        return VllmSample(tuple(range(tokens + 1)), (STEP_NS,) * tokens, STEP_NS * len(prompt), 0)

    def info(self) -> VllmInfo:
        return VllmInfo(
            version="fake",
            torch="fake",
            library="_C",
            kernels=("FakeKernel",),
            form=self._form,
            eager=True,
            threads=self._threads,
            cpus=(0,),
            context=self._context,
            load_ns=1,
            warm_up_ns=1,
            cross_check=1.0,
            peak_bytes=None,
        )
