"""Checks of a run as view models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from harness.registry import Check, Claim
from harness.results import Results, headline
from reports import exact, rounds
from reports import format as fmt
from reports.model import (
    BADGES,
    RECORDED,
    Badge,
    CellView,
    CheckView,
    Column,
    Fact,
    Number,
    Row,
    Table,
    check_anchor,
)

Json = Mapping[str, Any]


def badge(verdict: str | None) -> Badge:
    """How a verdict is shown; None is a figure without a target."""
    return RECORDED if verdict is None else BADGES[verdict]


def edges(target: Iterable[float | None] | None) -> tuple[float, ...]:
    """The closed ends of a target: rounding must not carry a figure across them."""
    return tuple(end for end in target or () if end is not None and abs(end) != float("inf"))


def number(cell: Json) -> Number:
    """The figure of a cell as text."""
    value, low, high, unit, paper = (cell[key] for key in ("value", "low", "high", "unit", "paper"))
    ends = edges(cell["target"])
    return Number(
        value="" if value is None else fmt.figure(value, unit, low, high, ends),
        interval=fmt.interval(value, low, high, ends),
        paper="" if paper is None else fmt.with_unit(fmt.declared(paper, unit), unit),
        target=fmt.target(cell["target"], unit),
    )


def _cell(cell: Json, check: Check) -> CellView:
    evidence = cell["evidence"]
    timed = evidence is not None and evidence["kind"] == "timed"
    facts: tuple[Fact, ...] = ()
    tables: tuple[Table, ...] = ()
    chart, caption, alt = None, "", ""
    if timed:
        facts = rounds.facts(evidence, cell["summary"], check.guard)
        roof = rounds.roof_table(evidence)
        tables = (rounds.arms_table(evidence), *((roof,) if roof else ()), *exact.inputs(evidence))
        chart, caption = rounds.chart(evidence, cell)
        alt = rounds.chart_alt(evidence, cell) if chart else ""
    elif evidence is not None:
        facts, tables = exact.facts(evidence), exact.tables(evidence)
    return CellView(
        label=cell["label"],
        badge=badge(cell["verdict"]),
        number=number(cell),
        kind=evidence["kind"] if evidence else "",
        reason=cell["reason"],
        rounds=rounds.counts(evidence, cell["summary"]) if timed else "",
        control=rounds.control_text(cell["summary"]) if timed else "",
        facts=facts,
        chart=chart,
        chart_caption=caption,
        chart_alt=alt,
        tables=tables,
        raw=(rounds.raw_table(evidence),) if timed and "rounds_of" not in evidence else (),
    )


def _cell_table(cells: tuple[CellView, ...], head: str) -> Table | None:
    if len(cells) < 2:
        return None
    timed = any(cell.rounds for cell in cells)
    spread = timed or any(cell.number.interval for cell in cells)
    columns = [
        Column("Row"),
        Column("Verdict"),
        Column("Figure", numeric=True),
        *((Column("Interval", numeric=True),) if spread else ()),
        Column("Target"),
        Column("Paper", numeric=True),
        *((Column("Rounds"), Column("A/A control", numeric=True)) if timed else ()),
        Column("Reason", wide=True),
    ]
    rows = []
    for cell in cells:
        one = cell.number
        interval = (one.interval,) if spread else ()
        samples = (cell.rounds, cell.control) if timed else ()
        figures = (one.value, *interval, one.target, one.paper)
        rows.append(Row((cell.label, cell.badge.word, *figures, *samples, cell.reason), muted=not one.value))
    return Table(f"{len(cells)} rows; \u201c{head}\u201d stands for the check", tuple(columns), tuple(rows))


def _without_record(check: Check) -> Number:
    head = check.cells[0]
    return Number(
        value="",
        interval="",
        paper="" if head.paper is None else fmt.with_unit(fmt.declared(head.paper, head.unit), head.unit),
        target=fmt.target(head.target, head.unit),
    )


def _quantity(check: Check, head: str) -> str:
    return check.metric if not head or head in check.metric else f"{check.metric}, {head}"


def _earlier(record: Json) -> str:
    """An attempt that was cut short, in words."""
    count = sum(len((cell["evidence"] or {}).get("rounds", ())) for cell in record["cells"])
    rounds = f"{count} round{'' if count == 1 else 's'}"
    return f"Interrupted after {rounds}, at {record['finished_utc']}: kept in results.json, deciding nothing"


def check_view(results: Results, check: Check, claim: Claim) -> CheckView:
    """A declared check, whether it ran or not."""
    record = results.record(check.id)
    verdict, reason = results.verdict(check.id)
    cells = tuple(_cell(cell, check) for cell in record["cells"]) if record else ()
    head = headline(record)["label"] if record else check.cells[0].label
    default_command = f"pytest claims/ --only {check.id} --profile {results.run['profile']}"
    return CheckView(
        id=check.id,
        anchor=check_anchor(check.id),
        statement=check.statement,
        metric=check.metric,
        quantity=_quantity(check, head),
        paper_finding="" if check.paper_finding == claim.paper_finding else fmt.capital(check.paper_finding),
        badge=badge(verdict),
        number=number(headline(record)) if record else _without_record(check),
        kind=record["kind"] if record and any(cell.kind for cell in cells) else "",
        kinds=fmt.series(list(check.kinds)).replace(" and ", " or "),
        beyond=check.beyond,
        recorded=verdict is None,
        reason=fmt.capital(reason) if len(cells) < 2 else "",
        limits=tuple(fmt.capital(line) for line in record["limits"]) if record else (),
        earlier=tuple(_earlier(record) for record in results.interrupted(check.id)),
        cells=cells,
        cell_table=_cell_table(cells, head),
        repeat=record["command"] if record else default_command,
    )


def label(claim_id: str) -> str:
    """The number of a claim; nothing for the three that have none."""
    return claim_id if claim_id.isdigit() else ""
