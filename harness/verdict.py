"""The verdict rules. harness/check.py applies the same rules through code of its own; neither imports the
other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import EvidenceError
from harness.estimates import estimate
from harness.evidence import Evidence
from harness.kinds import INCONCLUSIVE, NOT_MEASURABLE, REFUTED, SUPPORTED, Kind, Target, Verdict
from harness.registry import Check, Claim
from harness.rounds import Timed
from harness.statistics import PositiveControl, TimedSummary, summarise

NOT_BUILT = "not built yet"
NOT_RUN = "not run"


@dataclass(frozen=True)
class NotMeasurable:
    """What the machine cannot show, and why."""

    reason: str


@dataclass(frozen=True)
class CellResult:
    """A cell with its verdict. verdict None: recorded, no target. low, high: None for an exact value."""

    label: str
    unit: str
    paper: float | None
    target: Target | None
    verdict: Verdict | None
    reason: str
    value: float | None
    low: float | None
    high: float | None
    summary: TimedSummary | None
    evidence: Evidence | None


@dataclass(frozen=True)
class CheckResult:
    """The verdict of a check over its cells. kind None: nothing could be measured."""

    check: Check
    kind: Kind
    verdict: Verdict | None
    reason: str
    cells: tuple[CellResult, ...]

    @property
    def headline(self) -> CellResult:
        """The cell that stands for the check: the first with its verdict, so the one that decided it."""
        return next((cell for cell in self.cells if cell.verdict == self.verdict), self.cells[0])


def place(low: float, high: float, target: Target) -> Verdict:
    """Inside the target: SUPPORTED; disjoint from it: REFUTED; else INCONCLUSIVE. An exact value has low =
    high.
    """
    if target[0] <= low and high <= target[1]:
        return SUPPORTED
    if high < target[0] or low > target[1]:
        return REFUTED
    return INCONCLUSIVE


def combine(verdicts: Iterable[Verdict]) -> Verdict:
    """Any REFUTED, else any INCONCLUSIVE, else SUPPORTED if one is, else NOT MEASURABLE HERE."""
    found = set(verdicts)
    for verdict in (REFUTED, INCONCLUSIVE, SUPPORTED):
        if verdict in found:
            return verdict
    return NOT_MEASURABLE


def judge_cell(check: Check, index: int, found: Evidence | NotMeasurable) -> CellResult:
    """Verdict of cell `index` of a check on its evidence."""
    cell = check.cells[index]

    def result(
        verdict: Verdict | None,
        reason: str,
        figure: tuple[float | None, float | None, float | None] = (None, None, None),
        summary: TimedSummary | None = None,
    ) -> CellResult:
        evidence = None if isinstance(found, NotMeasurable) else found
        return CellResult(
            cell.label, cell.unit, cell.paper, cell.target, verdict, reason, *figure, summary, evidence
        )

    if isinstance(found, NotMeasurable):
        return result(None if cell.target is None else NOT_MEASURABLE, found.reason)
    if isinstance(found, Timed):
        summary = summarise(found, check.confidence, check.guard, _positive_control(check))
        figure = (summary.value, summary.low, summary.high)
        if cell.target is None:
            return result(None, "; ".join(("recorded, no target", *summary.reasons)), figure, summary)
        if summary.reasons or summary.low is None or summary.high is None:
            return result(INCONCLUSIVE, "; ".join(summary.reasons), figure, summary)
        verdict = place(summary.low, summary.high, cell.target)
        return result(verdict, _words("interval", verdict), figure, summary)
    estimated = estimate(found.observations, found.reduction, check.confidence)
    if estimated is not None:
        figure = (estimated.value, estimated.low, estimated.high)
        if cell.target is None:
            return result(None, _noted("recorded, no target", found.note), figure)
        doubt = estimated.doubt(cell.repetitions)
        if doubt or estimated.low is None or estimated.high is None:
            return result(INCONCLUSIVE, _noted(doubt, found.note), (estimated.value, None, None))
        verdict = place(estimated.low, estimated.high, cell.target)
        return result(verdict, _noted(_words("interval", verdict), found.note), figure)
    if cell.target is None:
        return result(None, "recorded, no target", (found.value, None, None))
    verdict = place(found.value, found.value, cell.target)
    return result(verdict, _words("exact value", verdict), (found.value, None, None))


def _positive_control(check: Check) -> PositiveControl | None:
    if check.positive_control is None or check.margin is None:
        return None
    return PositiveControl(check.positive_control, check.margin)


def _noted(reason: str, note: str) -> str:
    return f"{reason} ({note})" if note else reason


def _words(what: str, verdict: Verdict) -> str:
    places = {SUPPORTED: "inside the target", REFUTED: "outside the target"}
    return f"{what} {places.get(verdict, 'reaches over an end of the target')}"


def judge_check(check: Check, cells: Mapping[str, Evidence | NotMeasurable]) -> CheckResult:
    """Verdict of a check.

    Args:
        cells: evidence, or why there is none, for every declared cell label ("" when no cells are declared).

    Raises:
        EvidenceError: a cell is missing or not declared, kinds are mixed, or the kind does not count for this
        check.
    """
    declared = [cell.label for cell in check.cells]
    if sorted(cells) != sorted(declared):
        raise EvidenceError(f"{check.id}: cells found {sorted(cells)}, declared {sorted(declared)}")
    kinds = {item.kind for item in cells.values() if not isinstance(item, NotMeasurable)}
    if len(kinds) > 1:
        raise EvidenceError(f"{check.id}: kinds {', '.join(sorted(kinds))} mixed in one check")
    kind = next(iter(kinds), check.kinds[0])
    if kind not in check.kinds:
        raise EvidenceError(f"{check.id}: evidence is {kind}, kinds that count are {', '.join(check.kinds)}")
    judged = tuple(judge_cell(check, index, cells[cell.label]) for index, cell in enumerate(check.cells))
    verdicts = [cell.verdict for cell in judged if cell.verdict is not None]
    verdict = combine(verdicts) if verdicts else None
    decisive = [cell for cell in judged if cell.verdict == verdict]
    reason = _joined(decisive)
    missing = [cell.label for cell in judged if cell.verdict == NOT_MEASURABLE]
    if missing and verdict != NOT_MEASURABLE:
        reason += f"; not measured: {', '.join(missing)}"
    return CheckResult(check, kind, verdict, reason, judged)


def _joined(cells: Sequence[CellResult]) -> str:
    """The reasons of cells with their labels; what kept all of them from being measured is said once."""
    reasons = {cell.reason for cell in cells}
    if len(reasons) == 1 and all(cell.verdict == NOT_MEASURABLE for cell in cells):
        return reasons.pop()
    return "; ".join(
        dict.fromkeys(f"{cell.label}: {cell.reason}" if cell.label else cell.reason for cell in cells)
    )


def absent_check(check: Check, profile: str) -> tuple[Verdict | None, str]:
    """Verdict and reason of a check without a record in the results."""
    if not check.built:
        verdict: Verdict = NOT_MEASURABLE
        reason = NOT_BUILT
    elif profile not in check.budget_s:
        verdict, reason = NOT_MEASURABLE, f"not part of profile {profile}"
    else:
        verdict, reason = INCONCLUSIVE, NOT_RUN
    recorded = all(cell.target is None for cell in check.cells)
    return (None if recorded else verdict), reason


def judge_claim(claim: Claim, checks: Mapping[str, tuple[Check, Verdict | None, str]]) -> tuple[Verdict, str]:
    """Verdict of a claim over its checks that are not beyond the paper, and the reason in words."""
    if not claim.built:
        return NOT_MEASURABLE, NOT_BUILT
    deciding = {
        key: (verdict, reason) for key, (check, verdict, reason) in checks.items() if not check.beyond
    }
    verdict = combine(found for found, _ in deciding.values() if found is not None)
    named = [f"{key}: {reason}" for key, (found, reason) in deciding.items() if found == verdict]
    missing = [key for key, (found, _) in deciding.items() if found == NOT_MEASURABLE]
    if missing and verdict != NOT_MEASURABLE:
        named.append(f"not measured: {', '.join(missing)}")
    return verdict, "; ".join(named)


def refuse_other_rounds_wanted(
    check: Check, profile: str, cells: Mapping[str, Evidence | NotMeasurable]
) -> None:
    """Raises EvidenceError when a paired run wanted another number of rounds than claims.toml declares: how
    long rounds go on is not chosen while they are looked at.
    """
    for label, found in cells.items():
        declared = check.rounds(profile, label)
        if isinstance(found, Timed) and declared not in (None, found.rounds_wanted):
            raise EvidenceError(
                f"check {check.id}, cell {label!r}: rounds_wanted is {found.rounds_wanted}, "
                f"claims.toml declares {declared} in profile {profile}"
            )


def to_json(result: CheckResult) -> dict[str, Any]:
    """The verdict part of a check record in results.json."""
    head = result.headline
    return {
        "id": result.check.id,
        "claim": result.check.claim,
        "kind": result.kind,
        "beyond": result.check.beyond,
        "verdict": result.verdict,
        "reason": result.reason,
        "value": head.value,
        "low": head.low,
        "high": head.high,
        "unit": head.unit,
        "paper": head.paper,
        "cells": [_cell_json(cell) for cell in result.cells],
    }


def _cell_json(cell: CellResult) -> dict[str, Any]:
    return {
        "label": cell.label,
        "unit": cell.unit,
        "paper": cell.paper,
        "target": target_json(cell.target),
        "verdict": cell.verdict,
        "reason": cell.reason,
        "value": cell.value,
        "low": cell.low,
        "high": cell.high,
        "summary": None if cell.summary is None else cell.summary.to_json(),
        "evidence": None if cell.evidence is None else cell.evidence.to_json(),
    }


def target_json(target: Target | None) -> list[float | None] | None:
    """A target as [low, high] with null for an open end."""
    if target is None:
        return None
    return [None if abs(end) == float("inf") else end for end in target]
