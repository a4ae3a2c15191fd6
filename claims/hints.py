"""Claim 6: prefetch hints over storage that is cold, over experts in RAM, and in kernels that RAM bounds."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from engine.enums import Advice, Ahead, Prefetch, Stream, Type
from engine.geometry import Geometry, weight_bytes
from engine.hints import LINE_BYTES, TRACE_HINT, give_hints, walk
from engine.model import Model
from engine.session import Session
from harness.cachestate import evict, residency
from harness.counters import process_io, run_delay_ns, waited_ns
from harness.paired import Arm
from harness.rounds import Sample

HINTS: Final = (Prefetch.T0, Prefetch.T1, Prefetch.T2, Prefetch.NTA)
HINT_NAMES: Final = {
    Prefetch.T0: "PREFETCHT0",
    Prefetch.T1: "PREFETCHT1",
    Prefetch.T2: "PREFETCHT2",
    Prefetch.NTA: "PREFETCHNTA",
}
PAPER: Final = Geometry.named("arch2_4_8k_16l")
SCALED: Final = replace(
    PAPER,
    d_model=PAPER.d_model // 8,
    heads=PAPER.heads // 8,
    kv_heads=PAPER.kv_heads // 8,
    ffn_hidden=PAPER.ffn_hidden // 8,
    expert_hidden=PAPER.expert_hidden // 8,
    vocab=PAPER.vocab // 8,
    context=256,
)
"""The paper's 16 layers at an eighth of every size: the same share of experts, in 1/64 of the bytes."""
SETTLE_S: Final = 0.02
"""Opening a file reads its first pages and ahead of them; that takes the disk some milliseconds."""


# ---- over a cold mapping ----


@dataclass(frozen=True)
class HintedRange:
    """What the operating system saw while one kind of hint was given over a cold range, and then read."""

    hints: int
    device_bytes: int
    pages: int
    faults: int
    read_bytes: int
    """From storage, when the range was read afterwards."""

    @property
    def counted_bytes(self) -> int:
        """All bytes from storage: 0 where nobody counts them, since the range was read from there."""
        return self.device_bytes + self.read_bytes


def hint_cold(path: Path, offset: int, size_bytes: int, hint: Prefetch) -> HintedRange | None:
    """Evicts the file and hints at every line of a range; None when the kernel counts no bytes.

    offset, size_bytes: multiples of the page size. Raises CacheStateError when the file does not get cold.
    """
    evict(path)
    with Model(path) as model:
        model.advise(Advice.RANDOM)
        time.sleep(SETTLE_S)
        pages, before = residency(path, offset, size_bytes).resident_pages, process_io()
        given = give_hints(model, offset, size_bytes, hint)
        after, pages_after = process_io(), residency(path, offset, size_bytes).resident_pages
        walk(model, offset, size_bytes, Ahead.WILLNEED, block_bytes=size_bytes // 4)
        done = process_io()
    if before is None or after is None or done is None:
        return None
    return HintedRange(
        given.hints,
        after.since(before).device_read_bytes,
        pages_after - pages,
        given.faults,
        done.since(after).device_read_bytes,
    )


def walk_arm(path: Path, offset: int, size_bytes: int, block_bytes: int, advice: Advice, ahead: Ahead) -> Arm:
    """An arm that reads a cold range through a fresh mapping, block by block; named after `ahead`."""

    def run() -> Sample:
        evict(path)
        with Model(path) as model:
            model.advise(advice)
            time.sleep(SETTLE_S)
            share = residency(path, offset, size_bytes).share
            before = run_delay_ns()
            taken_ns, total = walk(model, offset, size_bytes, ahead, block_bytes=block_bytes)
            delay = waited_ns(before, run_delay_ns())
        return Sample(taken_ns, size_bytes, str(total), run_delay_ns=delay, resident=share)

    what = "nothing" if ahead is Ahead.NONE else f"{ahead.name} of the next block"
    return Arm(ahead.name, run, run().digest, f"blocks of {block_bytes} bytes, {what}", resident=(0.0, 0.01))


_TRACE_RECORDS: Final = 1 << 16


# ---- over the experts ----


@dataclass(frozen=True)
class Hinted:
    """Of one token: distinct lines that were hinted at, those of the experts in question, and the others."""

    lines: int
    wanted: int
    elsewhere: int

    @property
    def right(self) -> bool:
        """Whether every line of those experts was hinted at, and no other."""
        return self.lines == self.wanted and self.elsewhere == 0


def hinted_tokens(session: Session, model: Model, ids: Sequence[int], linear: bool) -> list[Hinted]:
    """Feeds ids one by one; where the hints of each went, by the trace. One block per layer.

    linear: all experts should be hinted at, else the routed ones.
    """
    experts = [tensor for tensor in model.tensors if tensor.expert is not None]
    found = []
    for token in ids:
        session.trace(_TRACE_RECORDS)
        session.decode([token])
        records = np.concatenate([session.trace_records(thread) for thread in range(session.threads)])
        routing, _ = session.routing()
        chosen = {(layer, int(expert)) for layer, row in enumerate(routing) for expert in row}
        hinted = records[records[:, 3] >= TRACE_HINT]
        lines = _lines((int(row[0]), int(row[0] + row[1])) for row in hinted)
        wanted = _lines(
            (t.offset, t.offset + t.bytes) for t in experts if linear or (t.block, t.expert) in chosen
        )
        found.append(Hinted(len(lines), len(wanted), len(lines - wanted)))
    session.trace(0)
    return found


def _lines(ranges: Iterable[tuple[int, int]]) -> set[int]:
    return {line for start, end in ranges for line in range(start, end, LINE_BYTES)}


def bank_and_active_bytes(geometry: Geometry) -> tuple[int, int]:
    """q4_0 bytes of all experts, and of the weights that a token reads; routers, some kilobytes, left out."""
    bank = geometry.blocks * geometry.experts * geometry.expert_weights
    active = sum(count for stream, count in geometry.active_weights().items() if stream is not Stream.ROUTER)
    return weight_bytes(bank, Type.Q4_0), weight_bytes(active, Type.Q4_0)
