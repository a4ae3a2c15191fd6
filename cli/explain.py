"""`cflow explain`: what a claim or check says, what would support or refute it, how it could fool us."""

import difflib
import sys
from collections.abc import Iterator, Mapping
from shutil import get_terminal_size
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markdown import Markdown

from cli.claim_pages import sections
from cli.completion import claim_and_check_ids
from cli.console import JsonOption, UsageError, print_json, wrapped
from cli.registry import registry
from harness.registry import Check, Claim, Registry

_LABEL = 16
_NARROWEST, _WIDEST = 50, 120


def explain(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="CLAIM",
            help='A claim ("7") or a check ("7.law"); none lists the claims.',
            autocompletion=claim_and_check_ids,
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Explain a claim: what the paper found, what is done here, how it could fool us, and what decides it."""
    found = registry()
    width = min(max(get_terminal_size().columns, _NARROWEST), _WIDEST)
    if name is None:
        if json:
            print_json({"claims": [_claim_json(claim) for claim in found.claims]})
        else:
            _print(_list(found, width))
        return
    claim, checks = _find(found, name)
    text = sections(claim.id) if name == claim.id else {}
    if json:
        print_json(
            {**_claim_json(claim), "text": dict(text), "checks": [_check_json(check) for check in checks]}
        )
        return
    _print(_head(claim, width))
    _print_sections(text, width)
    for check in checks:
        print()
        _print(_fields(_lines(check), width))
    if name == claim.id and claim.built:
        print()
        _print(_fields([("all of them", f"pytest claims/ --only {claim.id}")], width))


def _print(lines: Iterator[str]) -> None:
    for line in lines:
        print(line)


def _list(found: Registry, width: int) -> Iterator[str]:
    for claim in found.claims:
        text = f"{claim.title}. {claim.statement}"
        yield from wrapped(text, f"{claim.id:<11} ", width)
    yield ""
    yield from wrapped("cflow explain CLAIM says more; of a check, too: cflow explain 7.law", "", width)


def _head(claim: Claim, width: int) -> Iterator[str]:
    yield f"Claim {claim.id}: {claim.title}{'' if claim.built else ' (not built yet)'}"
    yield from _fields([("statement", claim.statement), ("paper", claim.paper_finding)], width)


def _print_sections(text: Mapping[str, str], width: int) -> None:
    """Markdown as text for a terminal, or as plain text elsewhere."""
    console = Console(file=sys.stdout, width=width, highlight=False)
    for heading, body in text.items():
        print(f"\n{heading}")
        with console.capture() as captured:
            console.print(Markdown(body))
        for line in captured.get().splitlines():
            print(line.rstrip())


def _find(found: Registry, name: str) -> tuple[Claim, tuple[Check, ...]]:
    for claim in found.claims:
        if claim.id == name:
            return claim, found.checks_of(name)
    for check in found.checks:
        if check.id == name:
            return found.claim(check.claim), (check,)
    near = difflib.get_close_matches(name.lower(), found.ids, n=3)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    claims = ", ".join(claim.id for claim in found.claims)
    raise UsageError(f"no claim or check {name!r}; {hint}claims are {claims}")


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
    rounds = check.cells[0].rounds
    if rounds is not None:
        lines.append(("rounds", ", ".join(f"{profile} {wanted}" for profile, wanted in rounds.items())))
    if check.needs:
        lines.append(("needs", ", ".join(check.needs)))
    lines.append(("run", f"pytest claims/ --only {check.id}"))
    return lines


def _fields(lines: list[tuple[str, str]], width: int) -> Iterator[str]:
    for label, text in lines:
        yield from wrapped(text, f"  {label:<{_LABEL - 2}} ", width)


def _target(check: Check) -> str:
    if check.target is None:
        return "no target: recorded only" if check.beyond else "targets of its rows"
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
        "rounds": None if check.cells[0].rounds is None else dict(check.cells[0].rounds),
        "beyond": check.beyond,
    }
