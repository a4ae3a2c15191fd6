"""Exact evidence (counted, kernel, simulated, hardware, derived): method, inputs, observations, reduction."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from reports import format as fmt
from reports.model import Column, Fact, Row, Table

Json = Mapping[str, Any]

_SHOWN: Final = 12
_DELAYS: Final = re.compile(r"\bat (\d+) (\d+)\b")
_OPERATIONS: Final = {
    "value": "{0}",
    "sum": "sum of {0}",
    "min": "least of {0}",
    "max": "greatest of {0}",
    "median": "median of {0}",
    "count": "number of {0}",
    "count_not_increasing": "neighbours in {0} that do not ascend",
    "ratio": "sum of {0} over sum of {1}",
    "difference": "sum of {0} minus sum of {1}",
    "max_abs_difference": "greatest absolute difference of {0} and {1}",
    "max_ratio": "greatest ratio of {0} over {1}, item by item",
    "max_relative_error": "greatest difference of {0} from {1}, relative to {1}",
    "fraction_greater": "share of items in which {0} is greater than {1}",
    "exp_mean": "exp of the mean of {0}",
    "exp_mean_difference": "exp of the mean of {0} minus {1}, pair by pair",
    "count_so_far": "ones in {0} so far; at most those and all that are missing of {1}",
    "relative_norm": "norm of {0} minus {1}, over the norm of {1}",
    "count_equal": "items in which {0} and {1} are equal",
    "count_unequal": "items in which {0} and {1} differ",
    "fraction_equal": "share of items in which {0} and {1} are equal",
}


def scalar(value: object) -> str:
    """One stored value as text."""
    if value is None:
        return "not available"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return fmt.fixed(value, 0)
    if isinstance(value, float):
        return fmt.plain(value)
    return str(value)


def observation(value: object) -> str:
    """An observation as text: a long list is cut, with its length said; results.json holds all of it."""
    if not isinstance(value, list):
        return scalar(value)
    shown = ", ".join(scalar(item) for item in value[:_SHOWN])
    return shown if len(value) <= _SHOWN else f"{shown}, \u2026 ({fmt.fixed(len(value), 0)} items)"


def words(name: str) -> str:
    """An identifier as words; `at_1_2` is a pair of delays: at (1, 2)."""
    return _DELAYS.sub(r"at (\1, \2)", name.replace("_", " "))


def facts(evidence: Json) -> tuple[Fact, ...]:
    """Method, geometry or events, and how the value comes from the observations."""
    found = [Fact("Method", str(evidence["method"]))]
    if evidence.get("geometry"):
        found.append(Fact("Cache geometry", str(evidence["geometry"])))
    if evidence.get("events"):
        found.append(Fact("Counters", ", ".join(str(event) for event in evidence["events"])))
    reduction = evidence["reduction"]
    pattern = _OPERATIONS.get(reduction["op"], f"{reduction['op']} of " + " and ".join(reduction["of"]))
    found.append(Fact("Value", pattern.format(*(words(name) for name in reduction["of"]), "", "")))
    return tuple(found)


def _table(title: str, column: str, values: Mapping[str, object]) -> tuple[Table, ...]:
    rows = tuple(Row((words(name), observation(value))) for name, value in values.items())
    return (Table(title, (Column("Name"), Column(column, wide=True)), rows),) if rows else ()


def inputs(evidence: Json) -> tuple[Table, ...]:
    """What was fixed, of any kind of evidence; nothing when nothing was."""
    return _table("Inputs", "Fixed at", evidence.get("inputs", {}))


def tables(evidence: Json) -> tuple[Table, ...]:
    """Observations, and inputs where there are any."""
    return (*_table("Observations", "Observed", evidence["observations"]), *inputs(evidence))
