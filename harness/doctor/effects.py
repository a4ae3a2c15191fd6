"""What a finding means for the checks of a profile, derived from what claims.toml declares."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from harness.doctor.finding import Finding
from harness.kinds import INCONCLUSIVE, NOT_MEASURABLE, Verdict
from harness.registry import Check, Registry


@dataclass(frozen=True)
class Effect:
    """A verdict to expect, and for what.

    checks: whole checks. rows: single cells, as "check: label". certain: False where it only may come out
    so.
    """

    verdict: Verdict
    certain: bool
    checks: tuple[str, ...]
    rows: tuple[str, ...]


def effects(finding: Finding, registry: Registry, profile: str) -> tuple[Effect, ...]:
    """What follows when the state of the finding is "no"; nothing otherwise."""
    if finding.state != "no":
        return ()
    checks = [check for check in registry.checks if check.built and profile in check.budget_s]
    lost = [check for check in checks if _lost(check, finding)]
    rows = [row for check in checks if check not in lost for row in _rows(check, finding)]
    found = []
    if lost or rows:
        ids = tuple(check.id for check in lost)
        found.append(Effect(NOT_MEASURABLE, True, ids, tuple(rows)))
    timed = tuple(check.id for check in checks if finding.doubts and "timed" in check.kinds)
    if timed:
        found.append(Effect(INCONCLUSIVE, False, timed, ()))
    return tuple(found)


def _lost(check: Check, finding: Finding) -> bool:
    needed = not set(check.needs).isdisjoint(finding.needs)
    return needed or set(check.kinds) <= set(finding.kinds)


def _rows(check: Check, finding: Finding) -> Iterator[str]:
    words = [re.compile(rf"(?<!\w){re.escape(word)}(?!\w)", re.IGNORECASE) for word in finding.rows]
    for cell in check.cells:
        if any(word.search(cell.label) for word in words):
            yield f"{check.id}: {cell.label}"
