"""The part of the second opinion that looks at records as a whole: which there are, in which order, and when.
Like harness/check.py it shares no code with the modules that wrote them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, Final

from harness.check_samples import missing_numbers

_SAME_MACHINE: Final = (("cpu", "model"), ("kernel", "system"), ("kernel", "release"))
Report = Callable[[str | None, str], None]
"""Called with the check that a problem belongs to, and the problem."""


def known_records(data: Mapping[str, Any], declared: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """The records of declared checks by id; reports every other one, and what is wrong with their order."""
    records: dict[str, Any] = {}
    for record in data["checks"]:
        if record["id"] not in declared:
            report(record["id"], "not declared in claims.toml")
        elif record["id"] in records:
            report(record["id"], "recorded twice")
        else:
            records[record["id"]] = record
    numbers = [record["seq"] for record in data["checks"]]
    if numbers != sorted(set(numbers)):
        report(None, f"sequence numbers of the checks do not ascend: {numbers}")
    _complete_numbers(data, report)
    for record in data.get("interrupted", ()):
        # A finished record set aside would be a choice between results.
        if not any((cell["evidence"] or {}).get("interrupted") for cell in record["cells"]):
            report(record["id"], "set aside as interrupted, but it was not")
        elif record["id"] not in records or record["seq"] >= records[record["id"]]["seq"]:
            report(record["id"], "set aside as interrupted, but nothing was measured after it")
    _order_in_time(data, report)
    return records


def _complete_numbers(data: Mapping[str, Any], report: Report) -> None:
    """Every record that was ever written is still there: nothing that was measured may be taken away."""
    missing = missing_numbers([one["seq"] for one in (*data["checks"], *data.get("interrupted", ()))])
    if missing:
        report(None, f"records are missing: sequence numbers {missing}")


def machine_faults(machine: Mapping[str, Any]) -> list[str]:
    """Ways in which the machine after the run is not the one before it; a resume refuses another one, too."""
    before, after = machine["before"], machine["after"]
    if after is None:
        return []
    faults = []
    for part, key in _SAME_MACHINE:
        facts = [state.get(part) for state in (before, after)]
        first, last = (one.get(key) if isinstance(one, dict) else None for one in facts)
        if first != last:
            faults.append(f"machine: {part}.{key} is {first!r} before the run and {last!r} after it")
    return faults


def _order_in_time(data: Mapping[str, Any], report: Report) -> None:
    """Checks run one after the other. Across a resume the clock may have begun anew."""
    in_order = sorted(data["checks"], key=lambda record: record["seq"])
    for record in in_order:
        if record["finished_ns"] < record["started_ns"]:
            report(record["id"], "finished_ns lies before started_ns")
    for before, after in itertools.pairwise(in_order):
        resumed = any(
            before["finished_utc"] <= moment <= after["finished_utc"] for moment in data["run"]["resumed_utc"]
        )
        if after["started_ns"] < before["finished_ns"] and not resumed:
            report(after["id"], f"starts before {before['id']} ends")


def misplaced(record: Mapping[str, Any]) -> dict[str, list[str]]:
    """Faults by cell label: rounds outside the time of their record, or at the time of another cell's
    rounds.
    """
    faults: dict[str, list[str]] = {}
    spans = []
    for cell in record["cells"]:
        evidence = cell["evidence"] or {}
        # Rounds of another record stand, and are placed, there.
        for one in () if "rounds_of" in evidence else evidence.get("rounds", ()):
            spans.append((one["start_ns"], one["end_ns"], cell["label"]))
            if one["start_ns"] < record["started_ns"] or one["end_ns"] > record["finished_ns"]:
                faults.setdefault(cell["label"], []).append(f"round {one['seq']} lies outside its record")
    end_ns, owner = 0, ""
    overlaps: set[tuple[str, str]] = set()
    for start, end, label in sorted(spans):
        if owner != label and start < end_ns:
            overlaps.update({(label, owner), (owner, label)})
        if end > end_ns:
            end_ns, owner = end, label
    for label, other in sorted(overlaps):
        faults.setdefault(label, []).append(f"rounds overlap those of cell {other!r}")
    return faults
