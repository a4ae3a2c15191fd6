"""Figures of single arms from the rounds of a timed cell: medians over valid rounds, and what is void."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from harness.statistics import sign_interval
from reports.figures.found import Json
from reports.figures.scales import drawable, on_log

_LEVEL: Final = 0.95
STREAMS: Final = ("attention", "dense", "expert", "router", "head")
"""As the engine counts weight bytes."""


@dataclass(frozen=True)
class Measured:
    """A median with its 95 % interval, None where the rounds are too few for one.

    rounds: behind the median. decides: they are valid, and the cell is not inconclusive.
    """

    value: float
    low: float | None
    high: float | None
    rounds: int
    decides: bool


def names(cell: Json) -> list[str]:
    """The arms of a timed cell without its controls; none of other evidence."""
    return [str(arm["name"]) for arm in cell["evidence"].get("arms", ()) if arm["control_of"] is None]


def description(cell: Json, arm: str) -> str:
    """What an arm does, in the words of the run."""
    return next((str(one["description"]) for one in cell["evidence"]["arms"] if one["name"] == arm), "")


def bandwidth(cell: Json, arm: str) -> Measured | None:
    """Weight bytes per nanosecond, which is GB/s."""
    return _measured(cell, (arm,), ("bytes", "ns"), lambda of: of[0]["bytes"] / of[0]["ns"])


def rate(cell: Json, arm: str) -> Measured | None:
    """Work per nanosecond."""
    return _measured(cell, (arm,), ("work", "ns"), lambda of: of[0]["work"] / of[0]["ns"])


def speed(cell: Json, arm: str, over: str) -> Measured | None:
    """Work per time of one arm over that of another, round by round."""

    def value(of: Sequence[Json]) -> float:
        return float(of[0]["work"] / of[0]["ns"] * (of[1]["ns"] / of[1]["work"]))

    return _measured(cell, (arm, over), ("work", "ns"), value)


def stream_bytes(cell: Json, arm: str) -> dict[str, float]:
    """Bytes of a unit of work (a token) by stream, of the first round; empty where the arm counts none."""
    for one in cell["evidence"].get("rounds", ()):
        sample = one["samples"].get(arm, {})
        counters, work = sample.get("counters", {}), sample.get("work")
        found = {name: counters.get(f"{name}_bytes") for name in STREAMS}
        if on_log(work) and all(drawable(value) for value in found.values()):
            return {name: value / work for name, value in found.items()}
    return {}


def work_bytes(cell: Json, arm: str) -> float | None:
    """Bytes of a unit of work, of the first round."""
    for one in cell["evidence"].get("rounds", ()):
        sample = one["samples"].get(arm, {})
        if on_log(sample.get("work")) and on_log(sample.get("bytes")):
            return float(sample["bytes"] / sample["work"])
    return None


def _measured(
    cell: Json, arms: Sequence[str], keys: Sequence[str], value: Callable[[Sequence[Json]], float]
) -> Measured | None:
    """The median of a value of the arms' samples; rounds where a key is not positive are left out."""
    rounds = [one for one in cell["evidence"].get("rounds", ()) if all(arm in one["samples"] for arm in arms)]
    valid = [one for one in rounds if not one["void"]]
    values = []
    for one in valid or rounds:
        samples = [one["samples"][arm] for arm in arms]
        if all(on_log(sample[key]) for sample in samples for key in keys):
            values.append(value(samples))
    values = [one for one in values if on_log(one)]
    if not values:
        return None
    interval = sign_interval([math.log(one) for one in values], _LEVEL) if valid else None
    low, high = (None, None) if interval is None else (math.exp(interval[0]), math.exp(interval[1]))
    decides = bool(valid) and cell["verdict"] != "INCONCLUSIVE"
    return Measured(statistics.median(values), low, high, len(values), decides)
