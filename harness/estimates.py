"""Figures that carry an interval although nothing was timed: means over repetitions, and counts so far.

`exp_mean` is exp of the mean of logarithms, `exp_mean_difference` exp of the mean of paired differences of
logarithms (a ratio). Their interval is Student's t for a mean, exact for independent normal values (Student,
Biometrika 6, 1908); it keeps its ends under exp. `count_so_far` counts the ones among the outcomes that are
there, out of `planned`: the whole count lies between that and that plus all that are missing.

Means are judged once, when as many runs are there as the registry declares: a series that is looked at while
it grows, and judged at the first interval that decides, is wrong more often than its confidence says. The
observation `runs` names the runs that are there, and `diverged` those of them without a value, so that a left
out value is missed. A run of a pair is called as its observation, a hyphen, and its seed.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from harness.errors import EvidenceError
from harness.reductions import Observation, Reduction, check_names, reduce
from harness.registry import MIN_REPETITIONS

ESTIMATES: Final = ("exp_mean", "exp_mean_difference", "count_so_far")
"""The reductions that give an interval."""
RUNS: Final = "runs"
DIVERGED: Final = "diverged"


@dataclass(frozen=True)
class Estimate:
    """value: None when nothing is there yet. low, high: None when there are too few values for an interval.

    count: values, or pairs, that the figure rests on. runs: that are there. planned: by the evidence itself.
    """

    value: float | None
    low: float | None
    high: float | None
    count: int
    runs: int
    planned: int | None = None

    def doubt(self, repetitions: int | None) -> str:
        """Why it cannot be judged against a target, "" when it can. repetitions: runs that were declared.

        Raises EvidenceError when the evidence planned another number.
        """
        if repetitions is None:
            return "claims.toml declares no repetitions"
        if self.planned not in (None, repetitions):
            raise EvidenceError(f"planned: found {self.planned}, claims.toml declares {repetitions}")
        if self.planned is None and self.runs != repetitions:
            return f"{self.runs} of {repetitions} runs are there"
        if self.low is None:
            return f"repetitions: {self.count}, an interval needs {MIN_REPETITIONS}"
        return ""


def estimate(
    observations: Mapping[str, Observation], reduction: Reduction, confidence: float
) -> Estimate | None:
    """The figure and its interval; None for a reduction that gives an exact value.

    Raises EvidenceError as `reduce` does, and for more outcomes than were planned.
    """
    if reduction.op not in ESTIMATES:
        return None
    check_names(observations, reduction)
    lists = [_numbers(observations, name) for name in reduction.of]
    count = len(lists[0])
    if reduction.op == "count_so_far":
        if len(lists[1]) != 1:
            raise EvidenceError(
                f"observations.{reduction.of[1]}: found {len(lists[1])} numbers, allowed: one"
            )
        planned = int(lists[1][0])
        if not count:
            return Estimate(None, None, None, 0, 0, planned)
        value = reduce(observations, reduction)
        return Estimate(value, value, value + lists[1][0] - count, count, count, planned)
    runs = _runs(observations, reduction, count)
    if not any(lists):
        return Estimate(None, None, None, 0, runs)
    value = reduce(observations, reduction)
    values = lists[0] if len(lists) == 1 else list(map(operator.sub, *lists))
    ends = t_interval(values, confidence)
    try:
        low, high = (None, None) if ends is None else (math.exp(ends[0]), math.exp(ends[1]))
    except OverflowError as error:
        raise EvidenceError(f"{reduction.op}: the interval of logarithms is {ends}: no numbers") from error
    return Estimate(value, low, high, count, runs)


def _runs(observations: Mapping[str, Observation], reduction: Reduction, count: int) -> int:
    """Runs that are there. Raises EvidenceError unless they give as many values as there are."""
    runs, lost = _names(observations, RUNS), _names(observations, DIVERGED)
    left = set(runs) - set(lost)
    values = len(left)
    if len(reduction.of) == 2:
        arms = (f"{arm}-" for arm in reduction.of)
        one, other = ({run.removeprefix(arm) for run in left if run.startswith(arm)} for arm in arms)
        values = len(one & other)
    if len(set(runs)) < len(runs) or not set(lost) <= set(runs) or values != count:
        raise EvidenceError(
            f"observations.{RUNS}: found {count} values, allowed: {values}, of {len(runs)} runs of which "
            f"{len(lost)} diverged"
        )
    return len(runs)


def _names(observations: Mapping[str, Observation], key: str) -> list[str]:
    found = observations.get(key)
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise EvidenceError(f"observations.{key}: found {found!r}, allowed: a list of names of runs")
    return [str(item) for item in found]


def _numbers(observations: Mapping[str, Observation], name: str) -> list[float]:
    found = observations[name]
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
