"""The cells of the overlap: rates, aims, threads. Each is measured once a run, whichever check asks first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from claims.models import synthetic
from claims.overlap import (
    COMPUTE,
    READ,
    STAGED,
    SYNC,
    Course,
    Staging,
    arms,
    follow,
    open_staging,
    refused,
    routed_bytes,
    tokens_for,
)
from claims.overlap_model import pipeline
from claims.overlap_shapes import CONTEXT, LAYERS, SMALL, SMALL_WIDTH, WIDTHS, Shape, named, nearest
from claims.run import SEED, ClaimsRun
from claims.timing import Bench, open_bench
from engine.enums import Isa, Option, Reader
from engine.model import Model
from engine.session import OptionValue, Piece, Session
from harness.cachestate import CacheStateError
from harness.paired import run_pairs
from harness.rounds import Figure, Paths, RoundsOf, Side, Timed
from harness.statistics import figures, median
from harness.verdict import NotMeasurable

STORAGE: Final = "O_DIRECT; the experts are not in the page cache of this system, its host may cache them"
COMPUTING: Final = Side(STAGED, "computing")
READING: Final = Side(READ, "time")
ROUNDS_OF: Final = "7.overlap_sync"
"""Whose declared rounds all checks that look at the cells have."""
REACHED_SHARE: Final = 0.9
"""Of an emulated rate: what reading alone must reach."""
TARGET_NS: Final = {"quick": 20_000_000, "full": 100_000_000, "paper": 200_000_000}
"""Time of the staged tokens of a sample, by profile. Short, because a round in which the host steals one tick
of the processor is void, and it works for the disk on stolen time.
"""


@dataclass(frozen=True)
class Cell:
    """rate: bytes per second of the emulated tier, 0 = native. aim: of C / IO. one: one thread, else all."""

    rate: int
    aim: float
    one: bool
    expert_delay: int = 2

    @property
    def label(self) -> str:
        """As declared in claims.toml."""
        threads = "1 thread" if self.one else "all threads"
        delay = "" if self.expert_delay == 2 else f", expert_delay {self.expert_delay}"
        return f"{tier(self.rate)}, C/IO near {self.aim:g}, {threads}{delay}"


@dataclass(frozen=True)
class Wash:
    """One thread, where one of computing and reading is next to nothing. scalar: computing with the scalar
    kernels takes nearly all the time, else reading.
    """

    label: str
    rate: int
    scalar: bool


def tier(rate: int) -> str:
    """A rate in words."""
    return f"{rate / 1e6:,.0f} MB/s emulated" if rate else "native"


_500, _2000 = 500_000_000, 2_000_000_000
EMULATED: Final = (
    Cell(_500, 0.25, False),
    Cell(_500, 1, True),
    Cell(_500, 1, False),
    Cell(_500, 4, True),
    Cell(_2000, 1, True),
    Cell(_2000, 1, False),
    Cell(_2000, 4, True),
)
NATIVE: Final = (Cell(0, 1, True), Cell(0, 1, False), Cell(0, 4, True))
WASHES: Final = (
    Wash("50 MB/s emulated, C/IO near 0.02", 50_000_000, False),
    Wash("at most 2,000 MB/s (emulated), scalar kernels, C/IO near 50", _2000, True),
)
DELAYS: Final = tuple(Cell(_500, 1, True, delay) for delay in (0, 1, 2, 3))


@dataclass(frozen=True)
class Measured:
    """The rounds of a cell, or why there are none, and the schedule that its tokens ran.

    check: that measured it. owner: the record and cell that hold the rounds, None as long as none does.
    """

    found: Timed | NotMeasurable
    schedule: Sequence[Piece]
    check: str
    owner: RoundsOf | None = None


class Grid:
    """Measures cells on demand and keeps them for the checks that follow."""

    def __init__(self, run: ClaimsRun) -> None:
        self._run = run
        self._kept: dict[str, Measured] = {}
        self._roofs: dict[int, float] = {}
        self._native: float | None = None

    def cell(self, cell: Cell | Wash, check: str) -> Measured:
        """The cell, measured now unless an earlier check of this session has, and stored its rounds.

        check: the one that asks. Rounds count with the check in whose time they ran, or not at all.
        """
        kept = self._kept.get(cell.label)
        if kept is None or (isinstance(kept.found, Timed) and kept.owner is None and kept.check != check):
            try:
                found, schedule = self._measure(cell)
                if isinstance(cell, Cell):  # reading that takes next to nothing may miss its rate
                    found = too_slow(found, cell.rate) or found
            except CacheStateError as error:
                found, schedule = NotMeasurable(str(error)), ()
            kept = self._kept[cell.label] = Measured(found, schedule, check)
        return kept

    def view(self, cell: Cell | Wash, check: str, label: str, figure: Figure) -> Timed | NotMeasurable:
        """A figure of the rounds of a cell, for the cell `label` of a check."""
        measured = self.cell(cell, check)
        if isinstance(measured.found, NotMeasurable):
            return measured.found
        if measured.owner is None:
            self._kept[cell.label] = replace(measured, owner=RoundsOf(check, label))
        return replace(measured.found, figure=figure, rounds_of=measured.owner)

    @contextmanager
    def open(self, cell: Cell) -> Iterator[Staging]:
        """The sessions of a cell, over the model that comes nearest to its aim.

        Raises CacheStateError when its experts cannot be evicted.
        """
        threads = self._threads(cell)
        rate = cell.rate or self._native_rate()
        shape = nearest(self._run.profile, cell.aim, self._roof(threads), rate)
        options: dict[str, OptionValue] = {
            "threads": threads,
            "read_rate": cell.rate,
            "expert_delay": cell.expert_delay,
            "context": CONTEXT,
        }
        with open_staging(self._model(shape, WIDTHS[self._run.profile]), options) as staging:
            yield staging

    def _threads(self, cell: Cell) -> int:
        return 1 if cell.one else self._run.threads

    def _measure(self, cell: Cell | Wash) -> tuple[Timed | NotMeasurable, Sequence[Piece]]:
        if isinstance(cell, Wash):
            return self._wash(cell), ()
        with self.open(cell) as staging, open_bench(self._threads(cell)) as bench:
            reason = refused(staging.staged)
            if reason is not None:
                return reason, ()
            figure = Figure(Side(STAGED, "time"), Paths(COMPUTING, READING, pipeline(LAYERS)))
            return self._rounds(bench, staging, cell, figure), staging.staged.schedule()

    def _wash(self, cell: Wash) -> Timed | NotMeasurable:
        width = WIDTHS[self._run.profile] if cell.scalar else SMALL_WIDTH
        shape = named("overlap-e") if cell.scalar else SMALL
        options: dict[str, OptionValue] = {"threads": 1, "read_rate": cell.rate, "context": CONTEXT}
        if cell.scalar:
            options["isa"] = Isa.SCALAR.name.lower()
        with open_bench(1) as bench, open_staging(self._model(shape, width), options) as staging:
            reason = refused(staging.staged)
            if reason is not None:
                return reason
            figure = Figure(Side(SYNC, "time"), Side(STAGED, "time"))
            return self._rounds(bench, staging, cell, figure, leave_out=COMPUTE)

    def _rounds(
        self,
        bench: Bench,
        staging: Staging,
        cell: Cell | Wash,
        figure: Figure,
        leave_out: str | None = None,
    ) -> Timed:
        """The arms of a cell against each other; leave_out: one that the cell does without."""
        tokens = tokens_for(staging.staged, TARGET_NS[self._run.profile], CONTEXT)
        course = follow(staging.compute, tokens)
        return run_pairs(
            [arm for arm in arms(staging, course) if arm.name != leave_out],
            figure,
            bench.probes(),
            control_of=STAGED,
            seed=SEED,
            rounds=self._run.rounds(ROUNDS_OF),
            inputs=inputs(staging, course, cell.rate),
            progress=self._run.progress(cell.label),
        )

    def _model(self, shape: Shape, width: int) -> Path:
        return synthetic(self._run.cache, f"{shape.name}-{width}", shape.geometry(width))

    def _roof(self, threads: int) -> float:
        """Read-only bytes per second of that many threads; it only aims."""
        if threads not in self._roofs:
            with open_bench(threads) as bench:
                self._roofs[threads] = bench.roof().bytes_per_ns * 1e9
        return self._roofs[threads]

    def _native_rate(self) -> float:
        """Bytes per second of reading experts alone; it only aims."""
        if self._native is None:
            path = self._model(named("overlap-b"), WIDTHS[self._run.profile])
            with Model(path) as model, Session(model, residency="direct", verify="never") as session:
                routing = np.tile(np.arange(2, dtype=np.int32), (4, LAYERS, 1))
                self._native = routed_bytes(model, routing) / session.read_experts(routing) * 1e9
        return self._native


def computed_over_read(timed: Timed) -> float | None:
    """Median C / IO of the valid rounds, None when there are none."""
    values = figures(replace(timed, figure=Figure(COMPUTING, READING)))
    return median(values) if values else None


def too_slow(found: Timed | NotMeasurable, rate: int) -> NotMeasurable | None:
    """Why rounds do not show the tier that they are named after, if they do not: no rate can be emulated that
    the device itself does not reach. rate: bytes per second, 0 = native.
    """
    if isinstance(found, NotMeasurable) or found.interrupted or rate == 0:
        return None
    values = figures(replace(found, figure=Figure(Side(READ, "bandwidth"), None)))
    reached = median(values) * 1e9 if values else float(rate)
    if reached >= REACHED_SHARE * rate:
        return None
    return NotMeasurable(
        f"reading alone reaches {reached / 1e6:,.0f} MB/s here: too little for {tier(rate)}, "
        f"which takes {REACHED_SHARE:.0%} of it"
    )


def inputs(staging: Staging, course: Course, rate: int) -> Mapping[str, str | int]:
    """What a cell fixes."""
    session = staging.staged
    return {
        "model": staging.model.name,
        "layers, steps of a token": LAYERS,
        "fill": f"one step of {LAYERS}: the first read, or the last computing",
        "tokens": len(course.tokens),
        "expert bytes per token": routed_bytes(staging.model, course.routing) // len(course.tokens),
        "expert_delay": session.option(Option.EXPERT_DELAY),
        "phases": session.phase_count,
        "threads": session.threads,
        "isa": session.isa.name.lower(),
        "tier": tier(rate),
        "reader": Reader(session.option(Option.READER)).name.lower(),
        "read_bytes": session.option(Option.READ_BYTES),
        "storage": STORAGE,
    }
