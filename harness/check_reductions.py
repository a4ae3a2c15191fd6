"""The part of the second opinion that makes exact figures of their observations. Like harness/check.py it
shares no code with the judges.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from harness.check_samples import middle


def reduced(evidence: Mapping[str, Any], report: Callable[[str], None]) -> float | None:
    """The value that the reduction of an exact figure gives; None, and a report, when it gives none."""
    op, names = evidence["reduction"]["op"], evidence["reduction"]["of"]
    try:
        lists = [evidence["observations"][key] for key in names]
        lists = [items if isinstance(items, list) else [items] for items in lists]
        value = float(_reduce_one(op, lists[0]) if len(lists) == 1 else _reduce_two(op, lists[0], lists[1]))
    except (KeyError, IndexError, TypeError, ValueError, ZeroDivisionError, OverflowError) as error:
        report(f"reduction {op} of {names} fails: {error!r}")
        return None
    if not math.isfinite(value):
        report(f"reduction {op} of {names} gives {value}")
        return None
    return value


def _reduce_one(op: str, a: list[Any]) -> float:
    if op == "value":
        return float(a[0])
    if op == "sum":
        return math.fsum(a)
    if op == "min":
        return float(sorted(a)[0])
    if op == "max":
        return float(sorted(a)[-1])
    if op == "median":
        return middle(a)
    if op == "count":
        return len(a)
    if op == "count_not_increasing":
        return len([index for index in range(1, len(a)) if not a[index] > a[index - 1]])
    raise ValueError(f"{op} does not take one observation")


def _reduce_two(op: str, a: list[Any], b: list[Any]) -> float:
    if op == "ratio":
        return math.fsum(a) / math.fsum(b)
    if op == "difference":
        return math.fsum(a) - math.fsum(b)
    pairs = list(zip(a, b, strict=True))
    if op == "max_abs_difference":
        return float(max(abs(x - y) for x, y in pairs))
    if op == "max_ratio":
        return float(max(x / y for x, y in pairs))
    if op == "relative_norm":
        return math.sqrt(math.fsum((x - y) ** 2 for x, y in pairs)) / math.sqrt(math.fsum(y * y for y in b))
    if op == "max_relative_error":
        return float(max(abs((x - y) / y) for x, y in pairs))
    if op == "fraction_greater":
        return len([None for x, y in pairs if x > y]) / len(pairs)
    equal = [x == y for x, y in pairs].count(True)
    if op == "count_equal":
        return equal
    if op == "count_unequal":
        return len(pairs) - equal
    if op == "fraction_equal":
        return equal / len(pairs)
    raise ValueError(f"{op} does not take two observations")
