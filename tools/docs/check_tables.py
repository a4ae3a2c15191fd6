"""Tables of what claims.toml declares, for the pages of the claims."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from harness.kinds import Target
from harness.registry import Cell, Check, Registry
from tools.docs.markdown import code, escaped, table

_MARK = re.compile(r'pytest\.mark\.check\("([^"]+)"\)')


def claim_statement(registry: Registry, claim_id: str) -> str:
    """What is judged and what the paper found, as the registry has it."""
    claim = registry.claim(claim_id)
    return (
        f"**What is judged:** {escaped(claim.statement)}\n\n"
        f"**What the paper found:** {escaped(claim.paper_finding)}.\n"
    )


def modules_of(registry: Registry, claim_id: str, folder: Path) -> list[str]:
    """Names of the modules in `folder` that measure checks of the claim: those marked with their ids."""
    ids = {check.id for check in registry.checks_of(claim_id)}
    return [
        path.name
        for path in sorted(folder.glob("test_*.py"))
        if ids & set(_MARK.findall(path.read_text(encoding="utf-8")))
    ]


def check_table(registry: Registry, claim_id: str, modules: Sequence[str]) -> str:
    """The checks of a claim, those that decide it first, then those beyond the paper; and where they are."""
    checks = registry.checks_of(claim_id)
    parts = [f"Measured in {', '.join(code(f'claims/{name}') for name in modules)}.\n"]
    for title, beyond in (("They decide the claim:", False), ("Beyond the paper, they do not:", True)):
        rows = [_row(check) for check in checks if check.beyond is beyond]
        if rows:
            head = ("Check", "What it states", "Supported in", "Evidence", "Profiles")
            parts.append(f"{title}\n\n{table(head, rows)}")
    return "\n".join(parts)


def _row(check: Check) -> Sequence[str]:
    return (
        code(check.id),
        escaped(check.statement),
        targets(check),
        ", ".join(check.kinds),
        ", ".join(check.budget_s),
    )


def targets(check: Check) -> str:
    """The targets of the cells, each once, with its unit."""
    found = dict.fromkeys(_target(cell) for cell in check.cells if cell.target is not None)
    return "; ".join(found) or "recorded only"


def _target(cell: Cell) -> str:
    assert cell.target is not None
    return f"{interval(cell.target)} {escaped(cell.unit)}"


def interval(target: Target) -> str:
    """In words, with open ends."""
    low, high = target
    if low == high:
        return f"{low:g}"
    if math.isinf(high):
        return f"{low:g} or more"
    if math.isinf(low):
        return f"{high:g} or less"
    return f"{low:g} to {high:g}"
