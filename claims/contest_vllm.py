"""vLLM's arms of the end-to-end comparison: the dense model in each form that it has kernels for.

Its weights are made from the values of ours, in a format of its own, so that it is counted with its own bytes
a token. It decodes its own greedy tokens: with a dense model every token is the same work.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from baselines.vllm_cpu import VllmCpu
from claims.contest_arms import PROMPT, Field
from claims.lasting import Lasting, Started
from claims.models import LAYOUTS_PREFIX, written_line
from claims.run import SEED
from claims.timing import digest
from claims.turns import Turn
from engine.export_hf import export_hf
from engine.held import temporary_folder
from engine.hf_forms import HfForm
from harness.counters import process_cpu_ns
from harness.paired import Arm
from harness.reductions import Scalar
from harness.rounds import IDLE_CPU_COUNTER, Sample

TOKENS: Final = {"smoke": 2, "quick": 3, "full": 2, "paper": 4}
"""Timed tokens of a turn: it is slower than the others, and a turn should not take much longer."""
_VOCABULARY: Final = 2048
"""Ids of the prompt are below it."""


@dataclass(frozen=True)
class Weights:
    """A folder that vLLM loads. bytes_per_token: 0 where nobody counted them."""

    folder: Path
    bytes_per_token: int


@contextmanager
def exported(source: Path, form: HfForm, field: Field) -> Iterator[Weights]:
    """The weights of a dense .cflow in a form of vLLM's, gone at the end: large, and soon made anew."""
    with temporary_folder(field.cache, f"{LAYOUTS_PREFIX}vllm-{form}-") as folder:
        shown = written_line(f"{source.stem} as {form} for vLLM")
        done = export_hf(source, folder / "model", form, progress=shown)
        yield Weights(done.path, done.bytes_per_token)


@contextmanager
def open_vllm(
    name: str, weights: Weights, field: Field, tokens: int, others: Sequence[int]
) -> Iterator[tuple[Lasting, dict[str, Scalar | bool | None]]]:
    """Its arm, and what ran, for the inputs of the rounds. tokens: timed ones of a turn.

    Raises BaselineError: not installed, no kernel for this CPU, too little memory, or it does not start.
    """
    told: dict[str, Scalar | bool | None] = {}
    start = partial(_start, name, weights, field.threads, tokens, others, told)
    lasting = Lasting(name, start, field.logs)
    try:
        yield lasting, told
    finally:
        lasting.close()


def _start(
    name: str,
    weights: Weights,
    threads: int,
    tokens: int,
    others: Sequence[int],
    told: dict[str, Scalar | bool | None],
) -> Started:
    engine = VllmCpu(weights.folder, threads=threads, context=PROMPT + tokens + 1)
    try:
        info = engine.info()
        arm = _arm(name, engine, weights.bytes_per_token, tokens, others)
    except BaseException:
        engine.close()
        raise
    told["vLLM"] = f"{info.version}, torch {info.torch}, {info.library}"
    told["vLLM form"] = info.form
    told["vLLM kernels"] = info.kernel
    told["vLLM compiled"] = not info.eager
    told["vLLM tokens of a turn"] = tokens
    told["vLLM time per token by difference, over that of the steps"] = info.cross_check
    return Started(engine, arm)


def _arm(name: str, engine: VllmCpu, bytes_per_token: int, tokens: int, others: Sequence[int]) -> Arm:
    prompt = [int(token) for token in np.random.default_rng(SEED).integers(0, _VOCABULARY, PROMPT)]

    def idle_ns() -> int:
        return sum(process_cpu_ns(pid) for pid in (os.getpid(), *others))

    def run() -> Turn:
        before_ns = idle_ns()
        sample = engine.decode(prompt, tokens)
        idle = {IDLE_CPU_COUNTER: idle_ns() - before_ns}
        output = digest(np.array(sample.tokens, np.int32))
        return Turn(
            ns=sum(sample.step_ns),
            bytes=bytes_per_token * tokens,
            digest=output,
            work=tokens,
            run_delay_ns=sample.run_delay_ns,
            counters=idle,
            token_ns=sample.step_ns,
            prompt=Sample(sample.prompt_ns, 0, output, PROMPT, sample.run_delay_ns, counters=idle),
        )

    return Arm(name, run, run().digest, "vLLM, its own greedy tokens")
