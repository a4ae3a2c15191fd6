"""Claim 7: the recorded token of an arm, as bars in lanes: what the timeline draws."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from reports.figures import found, scales
from reports.figures.found import Json

WAIT, BARRIER, READ = "read_wait", "barrier", "read"
COMPUTING: Final = ("attention", "dense", "expert", "router", "head", "vector")
MOST_ROWS: Final = 4
"""Of reads."""
_MOST_LANES: Final = 8
_KINDS: Final = {*COMPUTING, BARRIER, WAIT, READ}


@dataclass(frozen=True)
class Bar:
    """From start to end, in ms of the token."""

    start: float
    end: float

    @property
    def ms(self) -> float:
        """Its time."""
        return self.end - self.start


@dataclass(frozen=True)
class Lane:
    """bars: by kind of time, in order, none of one kind over another of it unless they are reads."""

    name: str
    bars: Mapping[str, tuple[Bar, ...]]

    def ms(self, *kinds: str) -> float:
        """Time in those kinds."""
        return sum(bar.ms for kind in kinds for bar in self.bars.get(kind, ()))


@dataclass(frozen=True)
class Token:
    """A token of an arm, in ms. rows: of reads, those under way at one time below each other."""

    arm: str
    total: float
    workers: tuple[Lane, ...]
    reads: tuple[Bar, ...]
    rows: tuple[tuple[Bar, ...], ...]
    inputs: Mapping[str, str]

    @property
    def hidden(self) -> float:
        """Time with a read under way in which the first worker did not wait for one."""
        waits = self.workers[0].bars.get(WAIT, ())
        return covered(self.reads) - sum(one.ms for one in _shared(joined(self.reads, 0.0), waits))

    @property
    def crowded(self) -> bool:
        """Whether reads of the last row lie upon each other."""
        last = self.rows[-1] if self.rows else ()
        return any(later.start < one.end for one, later in itertools.pairwise(last))


def joined(bars: Iterable[Bar], gap: float) -> list[Bar]:
    """Bars with no more than `gap` between them as one."""
    made: list[Bar] = []
    for bar in sorted(bars, key=lambda one: one.start):
        if made and bar.start - made[-1].end <= gap:
            made[-1] = Bar(made[-1].start, max(made[-1].end, bar.end))
        else:
            made.append(bar)
    return made


def covered(bars: Iterable[Bar]) -> float:
    """Time in which there is at least one of them."""
    return sum(bar.ms for bar in joined(bars, 0.0))


def _shared(bars: Sequence[Bar], others: Sequence[Bar]) -> Iterator[Bar]:
    """Where both are."""
    for one in bars:
        for other in others:
            start, end = max(one.start, other.start), min(one.end, other.end)
            if start < end:
                yield Bar(start, end)


def _without(bar: Bar, others: Sequence[Bar]) -> Iterator[Bar]:
    """What others, which are in order, leave of a bar."""
    at = bar.start
    for other in others:
        if other.end > at and other.start < bar.end:
            if other.start > at:
                yield Bar(at, other.start)
            at = other.end
    if at < bar.end:
        yield Bar(at, bar.end)


def _rows(reads: Sequence[Bar]) -> tuple[tuple[Bar, ...], ...]:
    """Reads in the first row in which they overlap none; those that find none are in the last."""
    rows: list[list[Bar]] = []
    for read in sorted(reads, key=lambda one: (one.start, one.end)):
        free = next((row for row in rows if row[-1].end <= read.start), None)
        if free is None and len(rows) < MOST_ROWS:
            rows.append(free := [])
        (rows[-1] if free is None else free).append(read)
    return tuple(map(tuple, rows))


def _recorded(cell: Json) -> Iterator[tuple[str, str, Bar]]:
    """Lane, kind and place of each bar that can be drawn."""
    observations = cell["evidence"].get("observations", {})
    columns = [observations.get(name) for name in ("lane", "what", "start_ms", "end_ms")]
    if not all(isinstance(column, list) and len(column) == len(columns[0]) for column in columns):
        return
    for lane, what, start, end in zip(*columns, strict=True):
        known = isinstance(what, str) and what in _KINDS and isinstance(lane, str)
        if known and scales.drawable(start) and scales.drawable(end) and 0 <= start <= end:
            yield lane, what, Bar(float(start), float(end))


def token_of(cell: Json) -> Token | None:
    """The token that a cell recorded; None when no worker has a bar that can be drawn."""
    lanes: dict[str, dict[str, list[Bar]]] = {}
    reads: list[Bar] = []
    waits: list[Bar] = []
    for lane, what, bar in _recorded(cell):
        if what in (READ, WAIT):
            (reads if what == READ else waits).append(bar)
        else:
            lanes.setdefault(lane, {}).setdefault(what, []).append(bar)
    if not lanes:
        return None
    waits = joined(waits, 0.0)
    workers = []
    for name, kinds in list(lanes.items())[:_MOST_LANES]:
        met = kinds.pop(BARRIER, [])
        split = {
            WAIT: tuple(_shared(joined(met, 0.0), waits)),
            BARRIER: tuple(rest for bar in met for rest in _without(bar, waits)),
        }
        workers.append(Lane(name, {what: tuple(bars) for what, bars in kinds.items()} | split))
    total = max(bar.end for one in workers for bars in one.bars.values() for bar in bars)
    given = {name: found.given(cell, name) for name in ("model", "token", "tier", "expert_delay", "isa")}
    label = str(cell["label"]) or "token"
    return Token(label, total, tuple(workers), tuple(reads), _rows(reads), given) if total > 0 else None
