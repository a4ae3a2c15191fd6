"""What a check would have said in many replayed runs, with the truth wherever one likes.

Multiplying the time of an arm multiplies the figure of every round, so that the interval of a run of equal
arms, multiplied, is the interval of a run with that effect; whether its controls hold does not change (a test
injects the times themselves). So each run is replayed once, for all effects.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Final

from harness.kinds import INCONCLUSIVE, REFUTED, SUPPORTED, Target, Verdict
from harness.registry import DEFAULT_GUARD, Check
from harness.statistics import PositiveControl, median, summarise
from harness.verdict import combine, place
from tools.alarms.replay import (
    POSITIVE,
    disturbed,
    figure,
    most_rounds,
    replay,
    stretch,
    subjects,
    valid_rounds,
)
from tools.alarms.rules import Rule, Run
from tools.alarms.stored import Piece, Store

RUNS: Final = 200
EFFECT: Final = 0.03
WANTED_POWER: Final = 0.8


@dataclass(frozen=True)
class Interval:
    """Of one cell in one run, over the truth. decides: whether its controls held."""

    low: float
    high: float
    decides: bool

    def verdict(self, target: Target, truth: float) -> Verdict:
        """Of the cell, had the true figure been `truth`."""
        if not self.decides:
            return INCONCLUSIVE
        return place(self.low * truth, self.high * truth, target)


@dataclass(frozen=True)
class Strictness:
    """What a summary depends on beside the rounds. margin: that a positive control must exceed."""

    confidence: float
    guard: float
    margin: float | None

    @staticmethod
    def of(check: Check, run: Run) -> Strictness:
        """Of a run of a check."""
        return Strictness(check.confidence, check.guard, check.margin if run.positive else None)


@dataclass(frozen=True)
class Simulated:
    """Runs of one rule. intervals: per run of the bootstrap, one of each cell. quiet: of which pieces."""

    rule: Rule
    intervals: tuple[tuple[Interval, ...], ...]
    quiet: tuple[bool, ...]

    def alarms(self, target: Target, truth: float) -> int:
        """Runs in which a cell is decided, all cells being at `truth`, an end of the target."""
        return sum(self._said(cells, target, truth) != INCONCLUSIVE for cells in self.intervals)

    def wrong_if_equal(self, target: Target) -> int:
        """Runs with a wrong verdict, had all arms been equal: the true figure is 1."""
        right = place(1.0, 1.0, target)
        said = [self._said(cells, target, 1.0) for cells in self.intervals]
        return sum(one not in (right, INCONCLUSIVE) for one in said)

    def _said(self, cells: Sequence[Interval], target: Target, truth: float) -> Verdict:
        return combine(cell.verdict(target, truth) for cell in cells)

    @cached_property
    def quiet_cells(self) -> tuple[tuple[Interval, ...], ...]:
        """Of each cell, its intervals in the runs from quiet rounds alone."""
        runs = [cells for cells, quiet in zip(self.intervals, self.quiet, strict=True) if quiet]
        return tuple(zip(*runs, strict=True))

    def power(self, target: Target, end: float, effect: float) -> float | None:
        """Least share, over cells and over both sides of that end of the target, of quiet runs that are right
        about a truth `effect` away from it. None when no rounds are quiet.
        """
        shares = [
            sum(one.verdict(target, truth) == wanted for one in cell) / len(cell)
            for cell in self.quiet_cells
            for truth, wanted in sides(target, end, effect)
        ]
        return min(shares) if shares else None

    def smallest_effect(self, target: Target, end: float, power: float = WANTED_POWER) -> float | None:
        """The least effect, in thousandths, that is seen with that power, up to 1; None: no such effect."""
        for step in range(1, 1001):
            found = self.power(target, end, step / 1000)
            if found is not None and found >= power:
                return step / 1000
        return None


def ends(target: Target, run: Run) -> list[float]:
    """Finite ends of a target. A share of the roof above 1 voids the roof, so that its upper end is none."""
    found = [end for end in target if abs(end) != float("inf")]
    return [end for end in found if end < 1] if run.roof else found


def sides(target: Target, end: float, effect: float) -> Iterator[tuple[float, Verdict]]:
    """A truth that far on either side of an end, and its right verdict."""
    for truth in (end * (1 + effect), end / (1 + effect)):
        yield truth, SUPPORTED if target[0] <= truth <= target[1] else REFUTED


class Bootstrap:
    """Replays runs of a store, each once for all checks that arrange their rounds alike."""

    def __init__(self, store: Store, runs: int = RUNS, seed: int = 1) -> None:
        self._store, self._runs, self._seed = store, runs, seed
        self._kept: dict[tuple[Run, int], dict[Strictness, list[tuple[Interval, ...]]]] = {}

    def simulate(self, rule: Rule, check: Check, others: Sequence[tuple[Rule, Check]] = ()) -> Simulated:
        """Runs of a rule; others: what else will be asked for, so that its rounds are replayed but once."""
        parts, flags = [], []
        for index, run in enumerate(rule.runs):
            strict = Strictness.of(check, run)
            ordinal = rule.runs[:index].count(run)
            if strict not in self._kept.get((run, ordinal), {}):
                wanted = {strict}
                for other, its in others:
                    if other.runs.count(run) > ordinal:
                        wanted.add(Strictness.of(its, run))
                self._kept[run, ordinal] = self._replayed(run, ordinal, sorted(wanted, key=repr))
            parts.append(self._kept[run, ordinal][strict])
            pieces = self._pieces(run)
            flags.append([quiet(pieces[number % len(pieces)]) for number in range(self._runs)])
        joined = tuple(tuple(cell for cells in run for cell in cells) for run in zip(*parts, strict=True))
        return Simulated(rule, joined, tuple(all(each) for each in zip(*flags, strict=True)))

    def _pieces(self, run: Run) -> tuple[Piece, ...]:
        pieces = self._store.of(run.material)
        if not pieces:
            raise ValueError(f"no stored rounds of {run.material!r}")
        return pieces

    def _replayed(
        self, run: Run, ordinal: int, wanted: Sequence[Strictness]
    ) -> dict[Strictness, list[tuple[Interval, ...]]]:
        rng = random.Random(f"{self._seed} {run} {ordinal}")
        pieces = self._pieces(run)
        found: dict[Strictness, list[tuple[Interval, ...]]] = {strict: [] for strict in wanted}
        for number in range(self._runs):
            piece = pieces[number % len(pieces)]
            timed = replay(run, piece, stretch(piece, most_rounds(run), rng), rng.getrandbits(32))
            truth = share_of_roof(piece) if run.roof else 1.0
            views = [replace(timed, figure=figure(run, subject)) for subject in subjects(run)]
            for strict, intervals in found.items():
                positive = None if strict.margin is None else PositiveControl(POSITIVE, strict.margin)
                cells = []
                for view in views:
                    summary = summarise(view, strict.confidence, strict.guard, positive)
                    low, high = summary.low, summary.high
                    if summary.reasons or low is None or high is None:
                        cells.append(Interval(0.0, float("inf"), False))
                    else:
                        cells.append(Interval(low / truth, high / truth, True))
                intervals.append(tuple(cells))
        return found


def share_of_roof(piece: Piece) -> float:
    """The share of the roof that the rounds of a piece show: what its runs are held against."""
    rates = [
        piece.bytes / ns for one in piece.rounds if not disturbed(one, len(one.ns)) for ns in one.ns
    ] or [piece.bytes / ns for one in piece.rounds for ns in one.ns]
    return median(rates) / piece.roof_bytes_per_ns


@cache
def quiet(piece: Piece) -> bool:
    """Whether the rounds of a piece, judged as one A/A run with the usual guard, give no reason to doubt."""
    arms = len(piece.rounds[0].ns)
    valid = valid_rounds(piece.rounds, [disturbed(one, arms) for one in piece.rounds])
    timed = replay(Run(piece.material, arms, valid), piece, piece.rounds, 0)
    return not summarise(timed, 0.95, DEFAULT_GUARD).reasons
