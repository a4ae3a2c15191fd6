"""One turn of an engine in a bench: a prompt, then tokens one by one, the same for every engine.

Every turn starts from an empty context. The tokens after the prompt are the greedy ones of our engine;
another engine is fed them, too, whatever it would have chosen, so that all read the same positions and, with
experts, have the same routing to do. What it would have chosen is its output, compared in every turn.

While one engine has its turn, the others must sleep: their processor time meanwhile is in the sample, and a
round in which they used any to speak of is void.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from baselines.llamacpp import LlamaCpp
from claims.arms import read_whole
from claims.timing import digest, longest_wait_ns
from engine.enums import Option, Residency
from engine.session import Session
from harness.cachestate import residency
from harness.counters import process_cpu_ns
from harness.paired import Arm
from harness.rounds import IDLE_CPU_COUNTER, STREAM_BYTE_COUNTERS, Figure, Placed, Sample, Timed, weight_bytes
from harness.voids import mark_voids

STREAMS: Final = ("attention", "dense", "expert", "router", "head", "vector", "barrier")
"""Where the workers' time goes, by the engine's counters NAME_ns."""

STORAGE: Final = ("asked_bytes", "device_bytes", "io_wait_ns", "expert_hits")
"""What a session that reads experts from disk did, by the engine's counters."""

_KEPT: Final = (*STREAM_BYTE_COUNTERS, *(f"{name}_ns" for name in STREAMS), *STORAGE, "wall_ns", "phases")


@dataclass(frozen=True)
class Course:
    """What every engine is fed: the prompt, then `tokens` one by one. `chosen`: our choice after each."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    chosen: tuple[int, ...]

    @property
    def context(self) -> int:
        """Positions that it needs."""
        return len(self.prompt) + len(self.tokens)


@dataclass(frozen=True)
class Turn(Sample):
    """The sample of the tokens, with the nanoseconds of each, and beside it that of the prompt."""

    token_ns: tuple[int, ...] = ()
    prompt: Sample | None = None


def greedy_course(session: Session, prompt: Sequence[int], tokens: int) -> Course:
    """The course of `tokens` tokens that our engine takes after `prompt`."""
    session.reset()
    first = int(np.argmax(session.decode(prompt)))
    chosen, _ = session.generate(first, tokens)
    chain = (first, *(int(token) for token in chosen))
    return Course(tuple(prompt), chain[:-1], chain[1:])


def engine_arm(name: str, session: Session, course: Course, others: Sequence[int] = ()) -> Arm:
    """Our engine's turns. others: processes of the engines that sleep meanwhile, looked at anew in each."""
    mapped = session.option(Option.RESIDENCY) == Residency.MMAP
    path = session.model.path

    def run() -> Turn:
        share = _whole_file_share(path) if mapped else None
        session.reset()
        session.reset_counters()
        idle = _cpu_ns(others)
        delays = session.run_delays_ns()
        started_ns = time.perf_counter_ns()
        session.decode(course.prompt)
        prompt_ns = time.perf_counter_ns() - started_ns
        prompt_delay = longest_wait_ns(delays, session.run_delays_ns())
        prompt_bytes = weight_bytes(session.counters())
        session.reset_counters()
        delays = session.run_delays_ns()
        chosen, elapsed = session.generate(course.tokens[0], len(course.tokens))
        delay = longest_wait_ns(delays, session.run_delays_ns())
        idle = _cpu_ns(others) - idle
        counters = session.counters()
        output = digest(chosen)
        token_ns = tuple(int(ns) for ns in elapsed)
        return Turn(
            ns=sum(token_ns),
            bytes=weight_bytes(counters),
            digest=output,
            work=len(token_ns),
            run_delay_ns=delay,
            resident=share,
            counters={**{key: counters[key] for key in _KEPT}, IDLE_CPU_COUNTER: idle},
            token_ns=token_ns,
            prompt=_prompt_sample(course, prompt_ns, prompt_bytes, output, prompt_delay, share, idle),
        )

    expected = digest(np.array(course.chosen, np.int32))
    return Arm(name, run, expected, "our engine", (1.0, 1.0) if mapped else None)


def llamacpp_arm(
    name: str,
    baseline: LlamaCpp,
    gguf: Path,
    course: Course,
    bytes_per_token: float,
    others: Sequence[int] = (),
) -> Arm:
    """llama.cpp's turns, after a first one that says what it chooses. others: processes that sleep, looked at
    anew in every turn.
    """
    mapped = baseline.info().mmap

    def run() -> Turn:
        waiting = (os.getpid(), *others)
        share = _whole_file_share(gguf) if mapped else None
        baseline.reset()
        idle = _cpu_ns(waiting)
        fed = baseline.decode(course.prompt)
        followed = baseline.follow(course.tokens)
        idle = _cpu_ns(waiting) - idle
        baseline.rest()
        output = digest(np.array((fed.argmax, *followed.argmax), np.int32))
        return Turn(
            ns=sum(followed.ns),
            bytes=round(bytes_per_token * len(followed.ns)),
            digest=output,
            work=len(followed.ns),
            run_delay_ns=followed.run_delay_ns,
            resident=share,
            counters={IDLE_CPU_COUNTER: idle},
            token_ns=followed.ns,
            prompt=_prompt_sample(course, fed.ns, 0, output, fed.run_delay_ns, share, idle),
        )

    return Arm(name, run, run().digest, "llama.cpp, fed our tokens", (1.0, 1.0) if mapped else None)


def prompt_view(timed: Timed, figure: Figure) -> Timed:
    """The same rounds with the prompt as what was timed; which of them are void is found anew."""
    rounds = [
        replace(one, samples={name: _prompt_placed(placed) for name, placed in one.samples.items()})
        for one in timed.rounds
    ]
    return replace(timed, figure=figure, rounds=mark_voids(timed.arms, rounds))


def _prompt_placed(placed: Placed) -> Placed:
    turn = placed.sample
    assert isinstance(turn, Turn) and turn.prompt is not None
    return replace(placed, sample=turn.prompt, run_delay_ns=turn.prompt.run_delay_ns)


def _prompt_sample(
    course: Course,
    ns: int,
    read_bytes: int,
    output: str,
    run_delay_ns: int | None,
    share: float | None,
    idle_ns: int,
) -> Sample:
    work = len(course.prompt)
    return Sample(ns, read_bytes, output, work, run_delay_ns, share, {IDLE_CPU_COUNTER: idle_ns})


def _cpu_ns(processes: Sequence[int]) -> int:
    return sum(process_cpu_ns(pid) for pid in processes)


def _whole_file_share(path: Path) -> float:
    """Resident share of a file, after reading what was reclaimed meanwhile."""
    share = residency(path).share
    if share < 1.0:
        read_whole(path)
        share = residency(path).share
    return share
