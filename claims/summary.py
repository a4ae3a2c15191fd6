"""The table at the end of a run: a row per claim, then the checks beyond the paper of the first screen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from io import StringIO
from typing import Any

from rich.console import Console
from rich.table import Table

from harness.kinds import INCONCLUSIVE, NOT_MEASURABLE
from harness.results import Results

RECORDED = "recorded"


def table(results: Results, width: int) -> str:
    """Plain text of at most `width` columns; reasons are folded, never cut."""
    grid = Table(box=None, pad_edge=False, header_style="")
    for heading in ("claim", "verdict", "figure", "paper"):
        grid.add_column(heading, no_wrap=heading in ("claim", "verdict"))
    grid.add_column("what", overflow="fold")
    for row in (*_claims(results), *_beyond(results)):
        grid.add_row(*row)
    text = StringIO()
    Console(file=text, width=width, color_system=None, highlight=False, markup=False, emoji=False).print(grid)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def _claims(results: Results) -> Iterator[tuple[str, ...]]:
    for claim in results.claims:
        deciding = [check for check in results.registry.checks_of(claim["id"]) if not check.beyond]
        # The check that made the verdict speaks for the claim; where all agree, the first.
        chosen = next((check for check in deciding if results.verdict(check.id)[0] == claim["verdict"]), None)
        record = None if chosen is None else results.record(chosen.id)
        undecided = claim["verdict"] in (INCONCLUSIVE, NOT_MEASURABLE)
        what = f"{claim['title']}: {claim['reason'].split('; ')[0]}" if undecided else claim["title"]
        yield claim["id"], claim["verdict"], *_figure(record), what


def _beyond(results: Results) -> Iterator[tuple[str, ...]]:
    for check in results.registry.checks:
        record = results.record(check.id)
        if check.beyond and check.first_screen and record is not None:
            verdict = record["verdict"] or RECORDED
            what = record["reason"].split("; ")[0] if verdict == INCONCLUSIVE else check.statement
            yield check.id, verdict, *_figure(record), what


def _figure(record: Mapping[str, Any] | None) -> tuple[str, str]:
    if record is None or record["value"] is None:
        return "", ""
    interval = "" if record["low"] is None else f" [{record['low']:.3g}, {record['high']:.3g}]"
    paper = "" if record["paper"] is None else f"{record['paper']:g}"
    return f"{record['value']:.4g}{interval} {record['unit']}", paper
