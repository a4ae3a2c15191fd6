"""What a check would have said in many replayed runs, with the truth wherever one likes.

Multiplying the time of an arm multiplies the figure of every round, so that the interval of a run of equal
arms, multiplied, is the interval of a run with that effect; whether its controls hold does not change (a test
injects the times themselves). So each run is replayed once, for all effects.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from harness.kinds import INCONCLUSIVE, REFUTED, SUPPORTED, Target, Verdict
from harness.registry import Check
from harness.statistics import MIN_ROUNDS, PositiveControl, median, summarise
from harness.verdict import place
from harness.voids import MIN_PROBE
from tools.alarms.replay import (
    BLOCK_ROUNDS,
    POSITIVE,
    disturbed,
    figure,
    most_rounds,
    replay,
    stretch,
    subjects,
)
from tools.alarms.rules import Rule, Run
from tools.alarms.stored import Piece, Store

RUNS: Final = 200
SEED: Final = 1
STAND_IN: Final = "decode, 1 thread"
"""Whose calm rounds are taken for a material that has none."""
EFFECT: Final = 0.03
WANTED_POWER: Final = 0.8
EFFECTS: Final = tuple(step / 200 for step in range(1, 41))
"""In steps of half a percent, up to 20 %."""


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
    """Runs of one rule: in each, the interval of every cell. stood_in: of rounds of STAND_IN."""

    rule: Rule
    intervals: tuple[tuple[Interval, ...], ...]
    stood_in: bool = False

    def alarms(self, target: Target, truth: float) -> int:
        """Runs in which at least one cell is decided, all cells being at `truth`, an end of the target. So a
        run counts in which one interval misses, whatever the other cells make of the check's verdict.
        """
        return sum(
            any(cell.verdict(target, truth) != INCONCLUSIVE for cell in cells) for cells in self.intervals
        )

    def wrong_if_equal(self, target: Target) -> int:
        """Runs with a wrong verdict of a cell, had all arms been equal: the true figure is 1."""
        fine = (place(1.0, 1.0, target), INCONCLUSIVE)
        return sum(any(cell.verdict(target, 1.0) not in fine for cell in cells) for cells in self.intervals)

    @property
    def missed(self) -> int:
        """Runs in which the interval of a cell misses the truth, whether its controls held or not."""
        return sum(any(not cell.low <= 1.0 <= cell.high for cell in cells) for cells in self.intervals)

    @property
    def decided(self) -> float:
        """Share of the cells' intervals whose controls held."""
        every = [cell.decides for cells in self.intervals for cell in cells]
        return sum(every) / len(every)

    def power(self, target: Target, end: float, effect: float) -> float:
        """Least share, over cells and over both sides of that end of the target, of runs that are right about
        a truth `effect` away from it.
        """
        count = len(self.intervals)
        shares: list[float] = []
        for number in range(len(self.intervals[0])):
            cell = [cells[number] for cells in self.intervals]
            for truth, wanted in sides(target, end, effect):
                shares.append(sum(one.verdict(target, truth) == wanted for one in cell) / count)
        return min(shares)

    def smallest_effect(self, target: Target, end: float, power: float = WANTED_POWER) -> float | None:
        """The least effect out of EFFECTS that is seen with that power; None: none of them is."""
        return next((effect for effect in EFFECTS if self.power(target, end, effect) >= power), None)


def ends(target: Target, run: Run) -> list[float]:
    """Finite ends of a target. A share of the roof above 1 voids the roof, so that its upper end is none."""
    found = [end for end in target if abs(end) != float("inf")]
    return [end for end in found if end < 1] if run.roof else found


def sides(target: Target, end: float, effect: float) -> Iterator[tuple[float, Verdict]]:
    """A truth that far on either side of an end, and its right verdict."""
    for truth in (end * (1 + effect), end / (1 + effect)):
        yield truth, SUPPORTED if target[0] <= truth <= target[1] else REFUTED


class Bootstrap:
    """Replays runs of a store, each once for all checks that arrange their rounds alike.

    wanted: the rules and checks that will be asked for. calm_only: of rounds that no rule voids;
    where a material has fewer than MIN_ROUNDS of them, those of STAND_IN.
    """

    def __init__(
        self, store: Store, wanted: Sequence[tuple[Rule, Check]], runs: int = RUNS, *, calm_only: bool = False
    ) -> None:
        pieces = (
            [calm(piece, len(piece.rounds[0].ns)) for piece in store.pieces] if calm_only else store.pieces
        )
        self._pieces: dict[str, list[Piece]] = {}
        for piece in pieces:
            if len(piece.rounds) >= MIN_ROUNDS:
                self._pieces.setdefault(piece.material, []).append(piece)
        self._runs, self._wanted, self._calm_only = runs, wanted, calm_only
        self._kept: dict[tuple[Run, int], dict[Strictness, list[tuple[Interval, ...]]]] = {}

    def simulate(self, rule: Rule, check: Check) -> Simulated | None:
        """Runs of a rule; None when a material has no rounds."""
        missing = [run for run in rule.runs if run.material not in self._pieces]
        if missing and not (self._calm_only and STAND_IN in self._pieces):
            return None
        parts = []
        for index, run in enumerate(rule.runs):
            key = run, rule.runs[:index].count(run)
            if key not in self._kept:
                self._kept[key] = self._replayed(*key)
            parts.append(self._kept[key][Strictness.of(check, run)])
        joined = (tuple(cell for cells in run for cell in cells) for run in zip(*parts, strict=True))
        return Simulated(rule, tuple(joined), bool(missing))

    def _replayed(self, run: Run, ordinal: int) -> dict[Strictness, list[tuple[Interval, ...]]]:
        """The `ordinal`-th run of that kind of a rule, for every strictness that it will be asked with."""
        rng = random.Random(f"{SEED} {run} {ordinal}")
        pieces = self._pieces.get(run.material) or self._pieces[STAND_IN]
        found: dict[Strictness, list[tuple[Interval, ...]]] = {
            Strictness.of(check, run): [] for rule, check in self._wanted if rule.runs.count(run) > ordinal
        }
        for number in range(self._runs):
            piece = pieces[number % len(pieces)]
            drawn = stretch(piece, most_rounds(run), rng, 1 if run.roof else BLOCK_ROUNDS)
            timed = replay(run, piece, drawn, rng.getrandbits(32))
            truth = share_of_roof(piece, run.arms) if run.roof else 1.0
            views = [replace(timed, figure=figure(run, subject)) for subject in subjects(run)]
            for strict, intervals in found.items():
                positive = None if strict.margin is None else PositiveControl(POSITIVE, strict.margin)
                cells = []
                for view in views:
                    summary = summarise(view, strict.confidence, strict.guard, positive)
                    low, high = summary.low, summary.high
                    if low is None or high is None:
                        cells.append(Interval(0.0, float("inf"), False))
                    else:
                        cells.append(Interval(low / truth, high / truth, not summary.reasons))
                intervals.append(tuple(cells))
        return found


def share_of_roof(piece: Piece, arms: int) -> float:
    """The share of the roof that the rounds of a piece show: what runs of that many arms are held against."""
    rounds = calm(piece, arms).rounds or piece.rounds
    rates = [piece.bytes / ns for one in rounds for ns in one.ns[:arms]]
    return median(rates) / piece.roof_bytes_per_ns


@cache
def calm(piece: Piece, arms: int) -> Piece:
    """The rounds of a piece that no rule voids in a run of that many arms: what a machine without neighbours
    would have kept.
    """
    least = MIN_PROBE * median([one.probe_bytes_per_ns for one in piece.rounds])
    kept = [one for one in piece.rounds if one.probe_bytes_per_ns >= least and not disturbed(one, arms)]
    return replace(piece, rounds=tuple(kept))
