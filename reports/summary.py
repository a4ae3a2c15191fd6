"""The answer in words: is the paper right on this machine, and what kept the rest from being decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.kinds import INCONCLUSIVE
from harness.registry import Check
from harness.results import Results
from harness.statistics import MIN_ROUNDS
from reports import format as fmt
from reports.model import ClaimView

Json = Mapping[str, Any]

_PHRASES: Final = {
    "supported": ("is supported", "are supported"),
    "refuted": ("is refuted", "are refuted"),
    "inconclusive": ("is inconclusive", "are inconclusive"),
    "not-measurable": ("cannot be measured here", "cannot be measured here"),
    "not-run": ("was not measured in this run", "were not measured in this run"),
    "not-built": ("is not built yet", "are not built yet"),
}


def _state(claim: ClaimView) -> str:
    """Which phrase goes with a claim: that of its verdict, unless nothing was looked at."""
    if not claim.built:
        return "not-built"
    return claim.badge.slug if any(check.cells for check in claim.checks) else "not-run"


def _by_state(claims: Sequence[ClaimView]) -> dict[str, list[ClaimView]]:
    grouped: dict[str, list[ClaimView]] = {state: [] for state in _PHRASES}
    for claim in claims:
        grouped[_state(claim)].append(claim)
    return {state: found for state, found in grouped.items() if found}


def _phrase(state: str, subject: str, count: int) -> str:
    one, many = _PHRASES[state]
    return f"{subject} {one if count == 1 else many}"


def _numbered(claims: Sequence[ClaimView]) -> str:
    return f"claim{'s' if len(claims) > 1 else ''} {fmt.series([claim.label for claim in claims])}"


def _quoted(claims: Sequence[ClaimView]) -> list[str]:
    return [f"\u201c{claim.title}\u201d" for claim in claims]


def sentence(claims: Sequence[ClaimView]) -> str:
    """The verdicts on the claims that have a number, in one sentence."""
    numbered = [claim for claim in claims if claim.label]
    if not numbered:
        return "This run holds no claims."
    grouped = _by_state(numbered)
    parts = []
    for state, found in grouped.items():
        parts.append(_phrase(state, _numbered(found), len(found)))
        if state == "supported" and "refuted" not in grouped:
            parts.append("none is refuted")
    if not {"supported", "refuted"} & grouped.keys():
        return f"On this machine no claim of the paper is decided: {fmt.series(parts)}."
    return f"On this machine the paper\u2019s {fmt.series(parts)}."


def beside(claims: Sequence[ClaimView]) -> str:
    """The verdicts on what has no number, such as the parity with PyTorch; empty when there is none."""
    parts = [
        _phrase(state, fmt.series(_quoted(found)), len(found))
        for state, found in _by_state([claim for claim in claims if not claim.label]).items()
    ]
    return f"{fmt.series(parts)}." if parts else ""


def partial(claims: Sequence[ClaimView]) -> str:
    """Which claims are supported by some of their checks while others were not measured; empty for none."""
    found = [claim for claim in claims if _state(claim) == "supported" and _lacks_checks(claim)]
    numbered = [claim for claim in found if claim.label]
    names = [_numbered(numbered)] if numbered else []
    names += _quoted([claim for claim in found if not claim.label])
    return f"Supported, though not every deciding check was measured: {fmt.series(names)}." if names else ""


def _lacks_checks(claim: ClaimView) -> bool:
    return any(check.badge.slug == "not-measurable" for check in claim.checks if not check.beyond)


def _doubts(cell: Json, check: Check) -> set[str]:
    """What keeps a timed cell from deciding, by the rules that its summary names."""
    summary = cell["summary"]
    if cell["evidence"]["interrupted"]:
        return {"interrupted"}
    found = set()
    if summary["valid"] < MIN_ROUNDS or 3 * summary["void"] > summary["valid"] + summary["void"]:
        found.add("void")
    control = summary.get("a_a")
    if control and not (1 / (1 + check.guard) <= control[0] and control[1] <= 1 + check.guard):
        found.add("control")
    if not summary["reasons"]:
        found.add("reach")
    return found or {"other"}


_DOUBTS: Final = {
    "interrupted": "ended early, as the run was interrupted",
    "void": "lost too many rounds to whatever else ran",
    "control": "had an A/A control out of its bounds",
    "reach": "had an interval that reaches over an end of the target",
    "other": "drifted, or had another control that did not hold",
}


def undecided(results: Results) -> str:
    """Why the inconclusive figures that decide claims are so, counted; empty when there are none."""
    counts = dict.fromkeys(_DOUBTS, 0)
    figures = 0
    for record in results.checks:
        check = results.registry.check(record["id"])
        for cell in () if check.beyond else record["cells"]:
            if cell["verdict"] == INCONCLUSIVE and cell["summary"] is not None:
                figures += 1
                for doubt in _doubts(cell, check):
                    counts[doubt] += 1
    if not figures:
        return ""
    parts = [f"{count} {_DOUBTS[doubt]}" for doubt, count in counts.items() if count]
    more = f"{figures} timed figure{'s' if figures > 1 else ''} that would decide"
    return f"Inconclusive is not refuted: of {more}, {fmt.series(parts)}."
