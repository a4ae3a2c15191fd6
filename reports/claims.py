"""Claims of a run as view models: verdict, headline, evidence by kind, time per token, history."""

from __future__ import annotations

from collections.abc import Sequence

from harness.registry import Claim
from harness.results import Results
from reports import figures, history, kinds, meaning, samples
from reports import format as fmt
from reports.checks import badge, check_view, label
from reports.model import BADGES, Badge, CheckView, ClaimView
from reports.panels import bar_chart


def _tally(checks: tuple[CheckView, ...]) -> str:
    deciding = [check for check in checks if not check.beyond]
    beyond = len(checks) - len(deciding)
    if not checks:
        return ""
    counts = []
    for word, shown in BADGES.items():
        count = sum(1 for check in deciding if check.badge is shown)
        if count:
            counts.append(f"{count} {word.lower()}")
    text = f"Decided by {len(deciding)} check{'' if len(deciding) == 1 else 's'}: {fmt.series(counts)}."
    return text + (f" Beyond the paper, deciding nothing: {beyond} more." if beyond else "")


def _headline(checks: tuple[CheckView, ...], shown: Badge) -> CheckView | None:
    """The deciding check with a figure that carries the claim's verdict; one with a paper figure first."""
    ranked = sorted(
        (check for check in checks if check.number.value and not check.beyond),
        key=lambda check: (check.badge is not shown, not check.number.paper),
    )
    return ranked[0] if ranked else None


def claim_view(results: Results, claim: Claim, earlier: Sequence[Results] = ()) -> ClaimView:
    """A claim with all its declared checks. earlier: runs for its history, newest first."""
    stored = next(item for item in results.claims if item["id"] == claim.id)
    declared = results.registry.checks_of(claim.id)
    checks = tuple(check_view(results, check, claim) for check in declared)
    shown = badge(stored["verdict"])
    chosen = _headline(checks, shown)
    return ClaimView(
        id=claim.id,
        anchor=f"claim-{claim.id}",
        label=label(claim.id),
        title=claim.title,
        statement=claim.statement,
        paper_finding=fmt.capital(claim.paper_finding),
        badge=shown,
        built=claim.built,
        reason=fmt.capital(stored["reason"]),
        why=fmt.capital(stored["reason"].split("; ")[0]),
        headline=chosen,
        tally=_tally(checks) if claim.built else "This claim is not built yet: nothing here measures it.",
        kinds=kinds.columns(declared, checks),
        per_token=meaning.per_token(results, claim.id),
        history=history.table(results, earlier, claim.id, chosen.id if chosen else None),
        chart=bar_chart(results, claim.id, declared),
        figures=figures.of(results, claim.id),
        samples=samples.samples(results) if claim.id == samples.CLAIM else None,
        checks=checks,
    )
