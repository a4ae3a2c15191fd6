"""`cflow explain`: what a claim or a check says, and what would support or refute it."""

from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.console import JsonOption, UsageError, print_json
from harness.registry import Check, Claim, Registry, load_registry


def explain(
    name: Annotated[str, typer.Argument(metavar="CLAIM", help='A claim ("7") or a check ("7.law").')],
    json: JsonOption = False,
) -> None:
    """Explain a claim: its statement, the paper's finding, and the checks that decide it."""
    registry = load_registry(claims_path())
    claim, checks = _find(registry, name)
    if json:
        print_json({**_claim_json(claim), "checks": [_check_json(check) for check in checks]})
        return
    print(f"Claim {claim.id}: {claim.title}{'' if claim.built else ' (not built yet)'}")
    print(f"  statement      {claim.statement}")
    print(f"  paper          {claim.paper_finding}")
    for check in checks:
        print()
        for label, text in _lines(check):
            print(f"  {label:<14} {text}")


def claims_path() -> Path:
    """The registry of this installation."""
    return Path(str(resources.files("claims") / "claims.toml"))


def _find(registry: Registry, name: str) -> tuple[Claim, tuple[Check, ...]]:
    for claim in registry.claims:
        if claim.id == name:
            return claim, registry.checks_of(name)
    for check in registry.checks:
        if check.id == name:
            return registry.claim(check.claim), (check,)
    claims = ", ".join(claim.id for claim in registry.claims)
    raise UsageError(f"no claim or check {name!r}; claims are {claims}")


def _lines(check: Check) -> list[tuple[str, str]]:
    lines = [
        ("check", check.id + (" (beyond the paper: does not decide the claim)" if check.beyond else "")),
        ("statement", check.statement),
        ("measures", f"{check.metric}, in {check.unit}"),
        ("supported in", _target(check)),
        ("evidence", ", ".join(check.kinds)),
        ("budget", ", ".join(f"{profile} {seconds:g} s" for profile, seconds in check.budget_s.items())),
    ]
    if check.paper is not None:
        lines.insert(3, ("paper's figure", f"{check.paper:g} {check.paper_unit}"))
    if check.needs:
        lines.append(("needs", ", ".join(check.needs)))
    lines.append(("run", f"pytest claims/ --only {check.id}"))
    return lines


def _target(check: Check) -> str:
    if check.target is None:
        return "no target: recorded only"
    low, high = check.target
    return f"[{low:g}, {high:g}]"


def _claim_json(claim: Claim) -> dict[str, Any]:
    return {
        "id": claim.id,
        "title": claim.title,
        "statement": claim.statement,
        "paper_finding": claim.paper_finding,
        "built": claim.built,
    }


def _check_json(check: Check) -> dict[str, Any]:
    return {
        "id": check.id,
        "statement": check.statement,
        "metric": check.metric,
        "unit": check.unit,
        "paper": check.paper,
        "target": None if check.target is None else _target(check),
        "kinds": list(check.kinds),
        "needs": list(check.needs),
        "budget_s": dict(check.budget_s),
        "beyond": check.beyond,
    }
