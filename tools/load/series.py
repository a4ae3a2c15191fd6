"""Readings over time and what they come to: a slope of memory with its interval, and counts that must stay.

A piece is what one process did; memory that it holds says nothing of the next one's. So the slope is common
to all pieces and each has a level of its own: least squares of y - mean(y) on x - mean(x) within pieces, with
n - pieces - 1 degrees of freedom for Student's interval. The errors of neighbouring readings are alike, which
makes the interval narrower than it should be; a verdict therefore asks that all of it lie on one side of a
limit that is far above what is left by noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from harness.estimates import t_quantile
from tools.load.watch import COUNTS, Reading

CONFIDENCE: Final = 0.95
MIN_READINGS: Final = 8

Outcome = Literal["CLEAN", "LEAK", "UNDECIDED"]


@dataclass(frozen=True)
class Slope:
    """Bytes per unit of `at`: per hour, or per session."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Judged:
    """slope: None for too few readings. grown: counts that changed within a piece, and from what to what."""

    outcome: Outcome
    slope: Slope | None
    grown: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As stored."""
        slope = None if self.slope is None else vars(self.slope).copy()
        return {"outcome": self.outcome, "slope": slope, "grown": list(self.grown)}


def fitted(pieces: Sequence[Sequence[Reading]]) -> Slope | None:
    """The common slope of resident memory; None when there are too few readings."""
    points = [_centred(piece) for piece in pieces if len(piece) > 1]
    pairs = [pair for piece in points for pair in piece]
    freedom = len(pairs) - len(points) - 1
    spread = math.fsum(x * x for x, _ in pairs)
    if len(pairs) < MIN_READINGS or freedom < 1 or spread == 0:
        return None
    value = math.fsum(x * y for x, y in pairs) / spread
    left = math.fsum((y - value * x) ** 2 for x, y in pairs)
    reach = t_quantile(CONFIDENCE, freedom) * math.sqrt(left / freedom / spread)
    return Slope(value, value - reach, value + reach)


def _centred(piece: Sequence[Reading]) -> list[tuple[float, float]]:
    x = math.fsum(one.at for one in piece) / len(piece)
    y = math.fsum(one.rss_bytes for one in piece) / len(piece)
    return [(one.at - x, one.rss_bytes - y) for one in piece]


def grown(pieces: Sequence[Sequence[Reading]]) -> tuple[str, ...]:
    """Counts that are not at the end of a piece what they were at its beginning, or rose in between."""
    found = []
    for number, piece in enumerate(pieces):
        for name in COUNTS:
            values = [getattr(one, name) for one in piece]
            if values and (values[-1] != values[0] or max(values) > values[0]):
                most = f", {max(values)} in between" if max(values) > max(values[0], values[-1]) else ""
                found.append(f"piece {number + 1}: {name} from {values[0]} to {values[-1]}{most}")
    return tuple(found)


def judge(pieces: Sequence[Sequence[Reading]], limit: float, warm_up: float) -> Judged:
    """A leak: a count that grew, or a slope that lies above `limit` with its whole interval. Clean: no count
    grew, and the whole interval lies at or below it.

    limit: bytes per unit. warm_up: readings before that `at` are left out.
    """
    kept = [[one for one in piece if one.at >= warm_up] for piece in pieces]
    slope, more = fitted(kept), grown(kept)
    outcome: Outcome = "UNDECIDED"
    if more or (slope is not None and slope.low > limit):
        outcome = "LEAK"
    elif slope is not None and slope.high <= limit:
        outcome = "CLEAN"
    return Judged(outcome, slope, more)
