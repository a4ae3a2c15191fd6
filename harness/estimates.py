"""Figures that carry an interval although nothing was timed: means over repetitions, and counts so far.

`exp_mean` is exp of the mean of logarithms, `exp_mean_difference` exp of the mean of paired differences of
logarithms (a ratio). Their interval is Student's t for a mean, exact for independent normal values (Student,
Biometrika 6, 1908); it keeps its ends under exp. `count_so_far` counts the ones among the outcomes that are
there, out of `planned`: the whole count lies between that and that plus all that are missing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from harness.errors import EvidenceError
from harness.reductions import Observation, Reduction, reduce

ESTIMATES: Final = ("exp_mean", "exp_mean_difference", "count_so_far")
"""The reductions that give an interval."""
MIN_REPETITIONS: Final = 2


@dataclass(frozen=True)
class Estimate:
    """value: None when nothing is there yet. low, high: None when there are too few values for an interval.

    count: values, or pairs, that the figure rests on.
    """

    value: float | None
    low: float | None
    high: float | None
    count: int


def estimate(
    observations: Mapping[str, Observation], reduction: Reduction, confidence: float
) -> Estimate | None:
    """The figure and its interval; None for a reduction that gives an exact value.

    Raises EvidenceError as `reduce` does, and for more outcomes than were planned.
    """
    if reduction.op not in ESTIMATES:
        return None
    lists = [_numbers(observations, name) for name in reduction.of]
    if reduction.op != "count_so_far" and not any(lists):
        return Estimate(None, None, None, 0)
    if reduction.op == "count_so_far" and lists and not lists[0]:
        return Estimate(None, None, None, 0)
    value = reduce(observations, reduction)
    count = len(lists[0])
    if reduction.op == "count_so_far":
        return Estimate(value, value, value + lists[1][0] - count, count)
    values = lists[0] if len(lists) == 1 else [x - y for x, y in zip(*lists, strict=True)]
    ends = t_interval(values, confidence)
    low, high = (None, None) if ends is None else (math.exp(ends[0]), math.exp(ends[1]))
    return Estimate(value, low, high, count)


def _numbers(observations: Mapping[str, Observation], name: str) -> list[float]:
    found = observations.get(name, ())
    items = [found] if isinstance(found, int | float | str) else list(found)
    return [item for item in items if not isinstance(item, str)]


def t_interval(values: Sequence[float], confidence: float) -> tuple[float, float] | None:
    """Student's interval for the mean of `values`; None for fewer than two."""
    count = len(values)
    if count < MIN_REPETITIONS:
        return None
    mean = math.fsum(values) / count
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    half = t_quantile(confidence, count - 1) * math.sqrt(variance / count)
    return mean - half, mean + half


def t_quantile(confidence: float, freedom: int) -> float:
    """t with P(|T| <= t) = confidence for Student's T with `freedom` degrees of freedom.

    Raises EvidenceError. With t = sqrt(freedom) tan(angle) that probability is a finite sum of powers of
    cos(angle) (Abramowitz and Stegun, 26.7.3 and 26.7.4); the angle is found by halving.
    """
    if not 0.0 < confidence < 1.0 or freedom < 1:
        raise EvidenceError(f"t quantile: found confidence {confidence}, {freedom} degrees of freedom")
    low, high = 0.0, math.pi / 2
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if _inside(middle, freedom) < confidence else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def _inside(angle: float, freedom: int) -> float:
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term, total = (cosine if odd else 1.0), 0.0
    for power in range(odd, freedom - 1, 2):
        total += term
        term *= cosine * cosine * (power + 1) / (power + 2)
    return 2.0 / math.pi * (angle + sine * total) if odd else sine * total
