"""The evidence of a claim side by side: one column per kind, so that no two kinds share a figure."""

from __future__ import annotations

from collections.abc import Sequence

from harness.kinds import KINDS
from harness.registry import Check
from reports.model import CheckView, Finding, KindColumn


def _finding(check: CheckView) -> Finding:
    return Finding(anchor=check.anchor, id=check.id, badge=check.badge, figure=check.number.value)


def columns(declared: Sequence[Check], shown: Sequence[CheckView]) -> tuple[KindColumn, ...]:
    """The checks of a claim by kind of evidence. What was not measured stands under the kind that would count
    first.
    """
    kinds = [view.kind or check.kinds[0] for check, view in zip(declared, shown, strict=True)]

    def of(kind: str, beyond: bool) -> tuple[Finding, ...]:
        pairs = zip(shown, kinds, strict=True)
        return tuple(_finding(view) for view, found in pairs if found == kind and view.beyond == beyond)

    return tuple(KindColumn(kind, of(kind, False), of(kind, True)) for kind in KINDS if kind in kinds)
