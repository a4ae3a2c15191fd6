"""What of several runs may stand side by side: a row per check, cell, kind of evidence, tier of storage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from harness.kinds import INCONCLUSIVE, Verdict
from harness.registry import Cell, Check
from reports.compare.runs import Run

Json = Mapping[str, Any]

_DECLARED: Final = (
    "claim", "statement", "metric", "unit", "target", "kinds", "beyond", "margin", "positive_control",
    "guard", "cells",
)  # fmt: skip
"""What of a check must be the same. The paper's figures and the budgets decide nothing."""
_CONDITIONS: Final = ("geometry", "events", "figure")
"""Beside the inputs: what of the evidence says how a figure came about."""


@dataclass(frozen=True)
class Entry:
    """What one run says in a row. verdict None: recorded, no target. absent: it has no record of the check.

    sound: the figure can decide something: its controls held. doubted: what the separate checker disagrees
    with, "" for nothing. evidence: as stored, None where nothing was measured.
    """

    verdict: Verdict | None
    reason: str
    value: float | None
    low: float | None
    high: float | None
    sound: bool
    absent: bool
    doubted: str
    evidence: Json | None

    @property
    def undecided(self) -> bool:
        """Whether it is INCONCLUSIVE or was not measured in this run at all."""
        return self.absent or self.verdict == INCONCLUSIVE


@dataclass(frozen=True)
class Row:
    """One quantity with what each run says of it, by the letter of the run; a run whose evidence is of
    another kind or tier has a row of its own and is not in this one.
    """

    check: Check
    cell: Cell
    kind: str
    tier: str
    entries: Mapping[str, Entry]

    @property
    def label(self) -> str:
        """Check and cell."""
        return f"{self.check.id}, {self.cell.label}" if self.cell.label else self.check.id


@dataclass(frozen=True)
class Refused:
    """A check that is not compared, and why."""

    check_id: str
    reason: str


def comparable(runs: Sequence[Run]) -> tuple[tuple[Check, ...], tuple[Refused, ...]]:
    """The checks that every run declares alike, in the order of the first run, and those that they do not."""
    ids = dict.fromkeys(check.id for run in runs for check in run.results.registry.checks)
    alike, refused = [], []
    for check_id in ids:
        declared = {
            run.name: check for run in runs for check in run.results.registry.checks if check.id == check_id
        }
        missing = [run.name for run in runs if run.name not in declared]
        first = next(iter(declared.values()))
        changed = [
            name for name in _DECLARED
            if any(getattr(check, name) != getattr(first, name) for check in declared.values())
        ]  # fmt: skip
        if missing:
            refused.append(Refused(check_id, f"not declared in {', '.join(missing)}"))
        elif changed:
            refused.append(Refused(check_id, f"declared otherwise: {_changes(changed, declared)}"))
        else:
            alike.append(first)
    return tuple(alike), tuple(refused)


def _changes(names: Sequence[str], declared: Mapping[str, Check]) -> str:
    said = []
    for name in names:
        if name == "target":
            values = (f"{run} {_target(check)}" for run, check in declared.items())
            said.append(f"target ({', '.join(values)})")
        elif name != "cells" or "target" not in names:
            said.append(name.replace("_", " "))
    return ", ".join(said)


def _target(check: Check) -> str:
    return "none" if check.target is None else f"[{check.target[0]:g}, {check.target[1]:g}]"


def rows_of(check: Check, runs: Sequence[Run]) -> tuple[Row, ...]:
    """The rows of a check that all runs declare alike."""
    return tuple(row for index in range(len(check.cells)) for row in _rows(check, check.cells[index], runs))


def _rows(check: Check, cell: Cell, runs: Sequence[Run]) -> list[Row]:
    entries = {run.name: _entry(check, cell, run) for run in runs}
    keys = dict.fromkeys(
        _key(entry.evidence) for entry in entries.values() if entry.evidence is not None
    ) or {(check.kinds[0], ""): None}
    return [
        Row(
            check,
            cell,
            *key,
            {
                name: entry
                for name, entry in entries.items()
                if entry.evidence is None or _key(entry.evidence) == key
            },
        )
        for key in keys
    ]


def _key(evidence: Json) -> tuple[str, str]:
    """Kind and tier: figures that differ in either are never compared."""
    return evidence["kind"], str(evidence["inputs"].get("tier") or "")


def _entry(check: Check, cell: Cell, run: Run) -> Entry:
    doubted = run.problems.get(check.id, "")
    record = run.results.record(check.id)
    found = next((one for one in record["cells"] if one["label"] == cell.label), None) if record else None
    if found is None:
        verdict, reason = run.results.verdict(check.id)
        return Entry(verdict, reason, None, None, None, False, True, doubted, None)
    summary, evidence = found["summary"], found["evidence"]
    timed = evidence is not None and evidence["kind"] == "timed"
    held = found["low"] is not None and summary is not None and not summary["reasons"]
    return Entry(
        verdict=found["verdict"],
        reason=found["reason"],
        value=found["value"],
        low=found["low"],
        high=found["high"],
        sound=found["value"] is not None and (held or not timed),
        absent=False,
        doubted=doubted,
        evidence=evidence,
    )


def other_conditions(one: Json, other: Json) -> tuple[str, ...]:
    """Names of what two pieces of evidence did not have in common. Fractions among the inputs are measured or
    derived, not set: they are no conditions.
    """
    found = [
        name
        for name in dict.fromkeys((*one["inputs"], *other["inputs"]))
        if not any(isinstance(side["inputs"].get(name), float) for side in (one, other))
        and one["inputs"].get(name) != other["inputs"].get(name)
    ]
    return (*found, *(name for name in _CONDITIONS if one.get(name) != other.get(name)))
