"""Arms of the overlap of reading and computing: experts read when needed, staged, not at all, nothing else.

All arms of a cell decode the same tokens with the same schedule. `sync` and `staged` differ in when a read
is issued. `compute` finds every expert in memory: nothing is read. `read` reads what the others read, in the
same order, one layer ahead, and computes nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from claims.arms import IO_COUNTERS, STORAGE_COUNTERS, decode_sample
from claims.experts import ExpertBank
from claims.timing import digest, longest_wait_ns
from engine.enums import Option, Param, ReadPath
from engine.model import Model
from engine.session import OptionValue, Session
from harness.cachestate import PAGE_BYTES, CacheStateError, residency
from harness.counters import process_io
from harness.paired import Arm
from harness.rounds import Sample
from harness.verdict import NotMeasurable

START: Final = 11
"""The first token; those after it are the greedy ones."""
SYNC, STAGED, COMPUTE, READ, HALF = "sync", "staged", "compute only", "read only", "half in RAM"
CPU_COUNTER: Final = "cpu_ns"
"""Processor time of the whole process meanwhile."""
_KEEPING_BYTES: Final = 1 << 28
"""Beside the file's size: more than a session holds beside its weights."""
_EVICTIONS: Final = 10
_SETTLE_S: Final = 0.02
COLD: Final = (0.0, 0.01)
"""Share of the expert bank that may be in the page cache."""


@dataclass(frozen=True)
class Course:
    """Greedy tokens after START, and the experts that each of them took, int32 [tokens, layers, k]."""

    tokens: NDArray[np.int32]
    routing: NDArray[np.int32]


def follow(session: Session, tokens: int) -> Course:
    """Decodes `tokens` tokens one by one, from an empty context."""
    session.reset()
    token, chosen, routing = START, [], []
    for _ in range(tokens):
        token = int(np.argmax(session.decode([token])))
        chosen.append(token)
        routing.append(session.routing()[0])
    return Course(np.array(chosen, np.int32), np.array(routing, np.int32))


def refused(session: Session) -> NotMeasurable | None:
    """Why reads of this session tell nothing about the device, if they do not."""
    if session.option(Option.READ_PATH) != ReadPath.DIRECT:
        return NotMeasurable(f"{session.model.path.parent}: O_DIRECT is refused, reads go through a cache")
    if process_io() is None:
        return NotMeasurable("the kernel does not count the bytes that this process fetches from storage")
    return None


def routed_bytes(model: Model, routing: NDArray[np.int32]) -> int:
    """Bytes that experts [tokens, layers, k] take: each in whole pages, as far as the file goes."""
    ends: dict[tuple[int, int], tuple[int, int]] = {}
    for tensor in model.tensors:
        if tensor.block is not None and tensor.expert is not None:
            begin, end = ends.get((tensor.block, tensor.expert), (tensor.offset, 0))
            found = min(begin, tensor.offset), max(end, tensor.offset + tensor.bytes)
            ends[tensor.block, tensor.expert] = found
    pages = {
        key: min(-(-end // PAGE_BYTES) * PAGE_BYTES, model.file_bytes) - begin
        for key, (begin, end) in ends.items()
    }
    blocks = model.param(Param.BLOCKS)
    rows = ((layer % blocks, row) for token in routing for layer, row in enumerate(token))
    return sum(pages[block, int(expert)] for block, row in rows for expert in row)


@dataclass(frozen=True)
class Staging:
    """The sessions of a cell, which differ in what their arms are named after."""

    model: Model
    sync: Session
    staged: Session
    compute: Session


def empty_bank(path: Path, offset: int) -> float:
    """Drops a file from the page cache, and with it what reading other weights has read ahead of the expert
    bank, which begins at `offset`: the share of the bank that is left.

    The whole file, because a part leaves no page that lies in one large folio with its neighbours. Raises
    CacheStateError when the bank does not leave.
    """
    for _ in range(_EVICTIONS):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        share = residency(path, offset).share
        if share <= COLD[1]:
            return share
        time.sleep(_SETTLE_S)  # reads under way hold their pages
    raise CacheStateError(f"{path}: {share:.1%} of the experts stay resident after eviction")


@contextmanager
def open_staging(path: Path, options: Mapping[str, OptionValue]) -> Iterator[Staging]:
    """Three sessions over a file whose expert bank is not in the page cache.

    options: beside residency and what tells the arms apart. Checksums are not looked at again: the file was
    verified when it was made or found. Raises CacheStateError when the bank cannot be evicted.
    """
    with ExitStack() as stack:
        model = stack.enter_context(Model(path))
        shared: dict[str, OptionValue] = {"residency": "direct", "verify": "never", **options}

        def session(**own: OptionValue) -> Session:
            return stack.enter_context(Session(model, **{**shared, **own}))

        staging = Staging(
            model,
            session(expert_reads="sync"),
            session(expert_reads="staged"),
            session(ram_budget=model.file_bytes + _KEEPING_BYTES),
        )
        empty_bank(path, ExpertBank(model).offset)
        yield staging


def decode_arm(name: str, session: Session, course: Course, asked_bytes: int) -> Arm:
    """Decodes the course. A token or a byte more or less than expected is a wrong output."""
    path, tokens, bank = session.model.path, len(course.tokens), ExpertBank(session.model)

    def run() -> Sample:
        share = residency(path, bank.offset).share
        cpu_ns = time.process_time_ns()
        sample = decode_sample(session, START, tokens, keep=STORAGE_COUNTERS, resident=share)
        cpu_ns = time.process_time_ns() - cpu_ns
        output = _output(sample.digest, sample.counters["asked_bytes"])
        return replace(sample, digest=output, counters={**sample.counters, CPU_COUNTER: cpu_ns})

    return Arm(name, run, _output(digest(course.tokens), asked_bytes), _WORDS[name], COLD)


def read_arm(session: Session, course: Course, asked_bytes: int) -> Arm:
    """Reads the experts of the course, without computing."""
    path, tokens, bank = session.model.path, len(course.tokens), ExpertBank(session.model)

    def run() -> Sample:
        session.reset_counters()
        share = residency(path, bank.offset).share
        before, cpu_ns = session.run_delays_ns(), time.process_time_ns()
        taken_ns = session.read_experts(course.routing)
        cpu_ns = time.process_time_ns() - cpu_ns
        delay = longest_wait_ns(before, session.run_delays_ns())
        counters = session.counters()
        kept = {key: counters[key] for key in IO_COUNTERS} | {CPU_COUNTER: cpu_ns}
        asked = counters["asked_bytes"]
        return Sample(taken_ns, asked, f"{asked} bytes read", tokens, delay, share, kept)

    return Arm(READ, run, f"{asked_bytes} bytes read", _WORDS[READ], COLD)


def arms(staging: Staging, course: Course) -> list[Arm]:
    """The four arms of a cell; the A/A arm is the runner's."""
    routed = routed_bytes(staging.model, course.routing)
    return [
        decode_arm(SYNC, staging.sync, course, routed),
        decode_arm(STAGED, staging.staged, course, routed),
        decode_arm(COMPUTE, staging.compute, course, 0),
        read_arm(staging.staged, course, routed),
    ]


def tokens_for(session: Session, target_ns: int, most: int) -> int:
    """Tokens that take about `target_ns`, at least one and at most `most`; the session decodes a few."""
    session.reset()
    _, elapsed = session.generate(START, 3)
    return max(1, min(most, round(target_ns / float(elapsed[1:].mean()))))


def _output(tokens: str, asked_bytes: int) -> str:
    """tokens: their digest."""
    return f"{tokens}, {asked_bytes} bytes read"


_WORDS: Final = {
    SYNC: "experts read when they are needed",
    STAGED: "experts read when the router has decided",
    COMPUTE: "the same schedule with all experts in memory",
    HALF: "staged, with half of the file's bytes for everything",
    READ: "the same reads, one layer ahead, nothing computed",
}
