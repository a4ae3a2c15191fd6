"""The part of the second opinion that judges the cells of one check. Like harness/check.py it shares no code
with the judges.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from harness.check_estimates import Triple, incomplete, interval_of
from harness.check_records import misplaced
from harness.check_reductions import reduced
from harness.check_rounds import same, timed_finding

DEFAULT_GUARD: Final = 0.03
NOT_MEASURABLE: Final = "NOT MEASURABLE HERE"
_NONE: Final[Triple] = (None, None, None)


@dataclass(frozen=True)
class Finding:
    """Verdict of a cell (None: recorded, no target) and its value, low and high."""

    verdict: str | None
    triple: Triple


def declared_cells(item: Mapping[str, Any]) -> list[dict[str, Any]]:
    """label, unit, paper, target, repetitions and rounds of every cell of a check; of one when it names
    none.
    """
    shared = {
        "label": "",
        "unit": item["unit"],
        "paper": item.get("paper"),
        "target": item.get("target"),
        "repetitions": item.get("repetitions"),
        "rounds": item.get("rounds", {}),
    }
    if not item.get("cells"):
        return [shared]
    return [
        {
            "label": cell["label"],
            "unit": cell.get("unit", item["unit"]),
            "paper": cell.get("paper"),
            "target": cell.get("target", item.get("target")),
            "repetitions": cell.get("repetitions", item.get("repetitions")),
            "rounds": cell.get("rounds", item.get("rounds", {})),
        }
        for cell in item["cells"]
    ]


def judge_cells(
    item: Mapping[str, Any], record: Mapping[str, Any], profile: str, report: Callable[[str], None]
) -> list[Finding]:
    """Judges every declared cell of a check anew.

    Args:
        item: the check as declared. record: as stored. profile: of the run.
        report: called with every disagreement between the record and its raw material.
    """
    cells = declared_cells(item)
    stored = {cell["label"]: cell for cell in record["cells"]}
    if [cell["label"] for cell in record["cells"]] != [cell["label"] for cell in cells]:
        report(f"cells are {list(stored)}, declared {[cell['label'] for cell in cells]}")
    faults = misplaced(record)
    found = []
    for cell in cells:
        label = cell["label"]
        if label in stored:
            one = _Cell(item, cell, stored[label], record["kind"], len(cells), profile, report)
            found.append(one.judge(faults.get(label, [])))
        else:
            found.append(Finding("INCONCLUSIVE", _NONE))
    return found


@dataclass(frozen=True)
class _Cell:
    """A cell as declared and as stored."""

    item: Mapping[str, Any]
    declared: Mapping[str, Any]
    stored: Mapping[str, Any]
    kind: str
    cell_count: int
    profile: str
    tell: Callable[[str], None]

    def report(self, text: str) -> None:
        label = self.declared["label"]
        self.tell(f"cell {label!r}: {text}" if label else text)

    def judge(self, faults: Sequence[str]) -> Finding:
        """faults: of where its rounds lie in time."""
        target = None if self.declared["target"] is None else [float(end) for end in self.declared["target"]]
        self._compare_declared(target)
        for fault in faults:
            self.report(fault)
        evidence, triple = self.stored["evidence"], _NONE
        if evidence is None:
            if not self.stored["reason"].strip():
                self.report("no evidence and no reason")
            verdict = NOT_MEASURABLE
        else:
            mixed = evidence["kind"] != self.kind
            if mixed:
                self.report(f"evidence is {evidence['kind']}, the check is {self.kind}")
            triple, decides = self._figure(evidence)
            verdict = _placed(triple, target) if decides and not mixed and not faults else "INCONCLUSIVE"
        judged = None if target is None else verdict
        if self.stored["verdict"] != judged:
            self.report(f"verdict is {self.stored['verdict']}, the raw material gives {judged}")
        for key, derived in zip(("value", "low", "high"), triple, strict=True):
            if not same(self.stored[key], derived):
                self.report(f"{key} is {self.stored[key]}, the raw material gives {derived}")
        return Finding(judged, triple)

    def _compare_declared(self, target: Sequence[float] | None) -> None:
        wanted = None if target is None else [None if math.isinf(end) else end for end in target]
        if self.stored["target"] != wanted:
            self.report(f"target is {self.stored['target']}, declared {wanted}")
        for key in ("unit", "paper"):
            if self.stored[key] != self.declared[key]:
                self.report(f"{key} is {self.stored[key]!r}, declared {self.declared[key]!r}")

    def _figure(self, evidence: Mapping[str, Any]) -> tuple[Triple, bool]:
        """Value and ends that the raw material gives, and whether they may decide."""
        if "rounds_of" in evidence and "rounds" not in evidence:  # they are nowhere
            return _NONE, False
        if evidence["kind"] == "timed":
            return self._timed(evidence)
        estimated = self._estimated(evidence)
        return ((reduced(evidence, self.report), None, None), True) if estimated is None else estimated

    def _timed(self, evidence: Mapping[str, Any]) -> tuple[Triple, bool]:
        item, summary = self.item, self.stored["summary"]
        positive = (item["positive_control"], float(item["margin"])) if "positive_control" in item else None
        guard = float(item.get("guard", DEFAULT_GUARD))
        wanted = self.declared["rounds"].get(self.profile, evidence["rounds_wanted"])
        if evidence["rounds_wanted"] != wanted:
            self.report(f"rounds_wanted is {evidence['rounds_wanted']}, declared {wanted}")
        found = timed_finding(evidence, summary, guard, self.cell_count, self.report, positive)
        reasons = (summary or {}).get("reasons")
        if bool(reasons) is not bool(found.doubts):
            self.report(f"summary.reasons is {reasons}, the raw material gives {list(found.doubts)}")
        return (found.value, found.low, found.high), not found.doubts

    def _estimated(self, evidence: Mapping[str, Any]) -> tuple[Triple, bool] | None:
        """Of a figure over repetitions; None for one that is exact. What is judged has no ends before all of
        its runs are there.
        """
        try:
            triple = interval_of(evidence, 0.05 / self.cell_count)
            if triple is None or self.declared["target"] is None:
                return None if triple is None else (triple, True)
            doubt = incomplete(evidence, self.declared["repetitions"])
        except (LookupError, TypeError, ValueError, ArithmeticError) as error:
            self.report(f"{evidence['reduction']['op']} fails: {error!r}")
            return _NONE, False
        decides = doubt is None and triple[1] is not None
        return (triple, True) if decides else ((triple[0], None, None), False)


def _placed(triple: Triple, target: Sequence[float] | None) -> str:
    value, low, high = triple
    if value is None or target is None:
        return "INCONCLUSIVE"
    low, high = (value if low is None else low), (value if high is None else high)
    if low >= target[0] and high <= target[1]:
        return "SUPPORTED"
    return "REFUTED" if low > target[1] or high < target[0] else "INCONCLUSIVE"
