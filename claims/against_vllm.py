"""Our engine and vLLM in the same rounds: weights made from the same values, in each form that it runs.

vLLM decodes its own greedy tokens: with a dense model every token is the same work.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from baselines.errors import BaselineError
from baselines.install import VLLM
from baselines.vllm_cpu import VllmCpu
from claims.against import OURS, Measured, Request, Say, paired_rounds, warm_up_arms
from claims.closeness import closeness
from claims.models import LAYOUTS_PREFIX, written_line
from claims.prompts import bench_prompt
from claims.speed import merged, ratio, row
from claims.timing import digest, open_bench
from claims.turns import Course, Turn, engine_arm, greedy_course
from engine.enums import Option, Residency
from engine.export_hf import HfExport, export_hf
from engine.held import temporary_folder
from engine.hf_forms import HfForm
from engine.model import Model
from engine.session import Session
from harness.counters import process_cpu_ns
from harness.paired import Arm
from harness.rounds import IDLE_CPU_COUNTER, Sample

FORMS: Final = (HfForm.INT4, HfForm.INT8, HfForm.BF16)


@dataclass(frozen=True)
class _Opponent:
    name: str
    engine: VllmCpu
    bytes_per_token: int
    settings: dict[str, Any]


def measure_vllm(model: Model, request: Request, threads: int, cache: Path, say: Say) -> Measured:
    """Our engine and vLLM with `threads` threads. `say` is told of each form that does not run here, and why.

    The weights of a form lie in `cache` while it is loaded. Raises BaselineError when no form runs,
    CflowError for a model that vLLM has no architecture for or a full disk, and KeyboardInterrupt.
    """
    prompt = bench_prompt(model, request.prompt, request.tokens)
    context = request.prompt + request.tokens + 1
    with ExitStack() as stack:
        session = stack.enter_context(Session(model, threads=threads, context=context - 1, **request.options))
        course = greedy_course(session, prompt.ids, request.tokens)
        opponents = _opponents(stack, session, course, context, cache, say)
        pids = [one.engine.pid for one in opponents]
        arms = [engine_arm(OURS, session, course, pids)]
        arms += [_arm(one, course, [pid for pid in pids if pid != one.engine.pid]) for one in opponents]
        copied = session.option(Option.RESIDENCY) != Residency.MMAP
        workers = stack.enter_context(open_bench(session.threads, huge=copied))
        warm_up = warm_up_arms(arms)
        before = workers.roof()
        timed = paired_rounds(arms, workers.probes(), request.rounds, threads)
        after = workers.roof()
        common = {"tokens": request.tokens, "prompt": prompt.to_json(), "warm_up": warm_up}
        settings = {**common, "options": session.options, "cpus": session.worker_cpus}
        isa = session.isa.name.lower()
    roof = merged(before, after)
    rows = [row(timed, OURS, threads, roof, isa, settings)]
    ratios = []
    for one in opponents:
        library = str(one.settings["library"]).removeprefix("_").lower()
        rows.append(row(timed, one.name, threads, roof, library, {**common, **one.settings}))
        same = one.settings["closeness"]["same_choice"] == one.settings["closeness"]["positions"]
        found = ratio(timed, threads, one.name, OURS, "decode", same)
        ratios.append(replace(found, same_weights=False))
    return Measured(tuple(rows), tuple(ratios))


def _opponents(
    stack: ExitStack, session: Session, course: Course, context: int, cache: Path, say: Say
) -> list[_Opponent]:
    """One for each form that runs here."""
    cache.mkdir(parents=True, exist_ok=True)
    found: list[_Opponent] = []
    reasons = []
    for form in FORMS:
        with temporary_folder(cache, f"{LAYOUTS_PREFIX}vllm-{form}-") as folder:
            shown = written_line(f"{session.model.path.stem} as {form} for {VLLM}")
            try:
                done = export_hf(session.model.path, folder / "model", form, progress=shown)
                found.append(_opponent(stack, done, session, course, context))
            except BaselineError as error:
                reasons.append(f"{form}: {error}")
                say(f"no row for {VLLM} {reasons[-1]}")
    if not found:
        raise BaselineError(f"{VLLM} runs no form of this model here: {'; '.join(reasons)}")
    return found


def _opponent(stack: ExitStack, done: HfExport, session: Session, course: Course, context: int) -> _Opponent:
    engine = VllmCpu(done.path, threads=session.threads, cpus=session.worker_cpus, context=context)
    stack.callback(engine.close)
    likely = engine.logprobs([*course.prompt, *course.tokens])[len(course.prompt) - 1 :]
    close = closeness(course, session, likely).to_json()
    settings = {**engine.info().to_json(), "closeness": close}
    return _Opponent(f"{VLLM} {done.form}", engine, done.bytes_per_token, settings)


def _arm(one: _Opponent, course: Course, others: Sequence[int]) -> Arm:
    waiting = (os.getpid(), *others)
    tokens = len(course.tokens)

    def idle_ns() -> int:
        return sum(process_cpu_ns(pid) for pid in waiting)

    def run() -> Turn:
        before_ns = idle_ns()
        sample = one.engine.decode(course.prompt, tokens)
        idle = {IDLE_CPU_COUNTER: idle_ns() - before_ns}
        output = digest(np.array(sample.tokens, np.int32))
        delay = sample.run_delay_ns
        return Turn(
            ns=sum(sample.step_ns),
            bytes=one.bytes_per_token * tokens,
            digest=output,
            work=tokens,
            run_delay_ns=delay,
            counters=idle,
            token_ns=sample.step_ns,
            prompt=Sample(sample.prompt_ns, 0, output, len(course.prompt), delay, counters=idle),
        )

    return Arm(one.name, run, run().digest, "vLLM, its own greedy tokens")
