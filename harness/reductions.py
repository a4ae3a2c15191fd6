"""Reductions: how the value of an exact figure comes from its named observations, declared so that anybody
can repeat it.
"""

from __future__ import annotations

import math
import statistics as stdlib_statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from harness.errors import EvidenceError

Scalar = int | float | str
Observation = Scalar | Sequence[Scalar]


def _numbers(name: str, observation: Observation) -> list[float]:
    items = [observation] if isinstance(observation, int | float | str) else list(observation)
    for item in items:
        if isinstance(item, str) or not math.isfinite(item):
            raise EvidenceError(f"observations.{name}: found {item!r}, allowed: finite numbers")
    return [float(item) for item in items if not isinstance(item, str)]


def _items(observation: Observation) -> list[Scalar]:
    return [observation] if isinstance(observation, int | float | str) else list(observation)


def _ratio_of_sums(a: list[float], b: list[float]) -> float:
    return math.fsum(a) / math.fsum(b)


def _relative_norm(a: list[float], b: list[float]) -> float:
    return math.dist(a, b) / math.hypot(*b)


def _max_ratio(a: list[float], b: list[float]) -> float:
    return max(x / y for x, y in zip(a, b, strict=True))


def _fraction_greater(a: list[float], b: list[float]) -> float:
    return sum(x > y for x, y in zip(a, b, strict=True)) / len(a)


def _exp_mean(a: list[float]) -> float:
    return math.exp(math.fsum(a) / len(a))


def _exp_mean_difference(a: list[float], b: list[float]) -> float:
    return _exp_mean([x - y for x, y in zip(a, b, strict=True)])


def _count_so_far(a: list[float], planned: list[float]) -> float:
    if not set(a) <= {0.0, 1.0} or len(planned) != 1 or planned[0] < len(a):
        raise ValueError(f"found {len(a)} outcomes of {planned}, allowed: 0 or 1, at most as many as planned")
    return math.fsum(a)


def _max_relative_error(a: list[float], b: list[float]) -> float:
    return max(abs(x - y) / abs(y) for x, y in zip(a, b, strict=True))


_NUMERIC: Final[Mapping[str, tuple[int, Callable[..., float]]]] = {
    "value": (1, lambda a: a[0]),
    "sum": (1, math.fsum),
    "min": (1, min),
    "max": (1, max),
    "median": (1, stdlib_statistics.median),
    "count": (1, len),
    "count_not_increasing": (1, lambda a: sum(y <= x for x, y in zip(a, a[1:], strict=False))),
    "ratio": (2, _ratio_of_sums),
    "difference": (2, lambda a, b: math.fsum(a) - math.fsum(b)),
    "max_abs_difference": (2, lambda a, b: max(abs(x - y) for x, y in zip(a, b, strict=True))),
    "max_ratio": (2, _max_ratio),
    "max_relative_error": (2, _max_relative_error),
    "relative_norm": (2, _relative_norm),
    "fraction_greater": (2, _fraction_greater),
    "exp_mean": (1, _exp_mean),
    "exp_mean_difference": (2, _exp_mean_difference),
    "count_so_far": (2, _count_so_far),
}
_ANY: Final[Mapping[str, Callable[[list[Scalar], list[Scalar]], float]]] = {
    "count_equal": lambda a, b: sum(x == y for x, y in zip(a, b, strict=True)),
    "count_unequal": lambda a, b: sum(x != y for x, y in zip(a, b, strict=True)),
    "fraction_equal": lambda a, b: sum(x == y for x, y in zip(a, b, strict=True)) / len(a),
}
REDUCTIONS: Final = (*_NUMERIC, *_ANY)
"""Reductions: how a value comes from observations. `ratio` and `difference` work on sums;
`count_not_increasing` counts neighbours that do not ascend; `relative_norm` is |a - b| / |b|;
`max_relative_error` and those with equal and greater compare item by item. `exp_mean`, `exp_mean_difference`
and `count_so_far` have an interval (harness/estimates.py).
"""


@dataclass(frozen=True)
class Reduction:
    """`op` out of REDUCTIONS, applied to the observations named in `of` (one or two of them)."""

    op: str
    of: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As stored in results.json."""
        return {"op": self.op, "of": list(self.of)}


def check_names(observations: Mapping[str, Observation], reduction: Reduction) -> None:
    """Raises EvidenceError: unknown op, unknown name, or wrong number of names."""
    if reduction.op not in REDUCTIONS:
        raise EvidenceError(f"reduction.op: found {reduction.op!r}, allowed: {', '.join(REDUCTIONS)}")
    for name in reduction.of:
        if name not in observations:
            raise EvidenceError(f"reduction.of: no observation {name!r}; there are {', '.join(observations)}")
    wanted = _NUMERIC[reduction.op][0] if reduction.op in _NUMERIC else 2
    if len(reduction.of) != wanted:
        raise EvidenceError(
            f"reduction.of: {reduction.op} takes {wanted} observations, found {len(reduction.of)}"
        )


def reduce(observations: Mapping[str, Observation], reduction: Reduction) -> float:
    """The value that a reduction gives.

    Raises:
        EvidenceError: as `check_names`, for empty observations, unequal lengths, or a result that is not
        finite.
    """
    check_names(observations, reduction)
    for name in reduction.of:
        if not _items(observations[name]):
            raise EvidenceError(f"observations.{name}: empty")
    try:
        if reduction.op in _NUMERIC:
            value = _NUMERIC[reduction.op][1](*(_numbers(name, observations[name]) for name in reduction.of))
        else:
            value = _ANY[reduction.op](*(_items(observations[name]) for name in reduction.of))
    except (ValueError, ZeroDivisionError, OverflowError) as error:
        raise EvidenceError(f"reduction: {reduction.op} of {', '.join(reduction.of)}: {error}") from error
    if not math.isfinite(value):
        raise EvidenceError(f"reduction: {reduction.op} gives {value}")
    return float(value)
