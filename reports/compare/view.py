"""A comparison as text: tables that the page and the terminal share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from reports import checks, state
from reports import format as fmt
from reports.compare.comparison import Comparison
from reports.compare.facts import FACTS, value_text
from reports.compare.machines import Difference
from reports.compare.rows import Entry, Row
from reports.compare.runs import Run
from reports.model import Badge, Column, Table
from reports.model import Row as TableRow

_FEW: Final = 3
"""Between two runs everything that differs goes with every difference: more than this is said once."""
NOT_RUN: Final = Badge("NOT RUN", "recorded", "\u2022")
ASSOCIATION: Final = (
    "What goes with a difference divides the runs as the difference does. That is an association, not a "
    "cause: with few machines many things go together."
)


@dataclass(frozen=True)
class ClaimRow:
    """A claim with its verdict in every run. note: what a reader of the row must know, "" for nothing."""

    label: str
    title: str
    differs: bool
    badges: tuple[Badge, ...]
    note: str


def claim_rows(found: Comparison) -> tuple[ClaimRow, ...]:
    """Claim by run."""
    rows = []
    for claim in found.runs[0].results.registry.claims:
        verdicts = list(found.claim_verdicts(claim.id).values())
        badges = tuple(NOT_RUN if verdict is None else checks.badge(verdict) for verdict in verdicts)
        differs = len({verdict for verdict in verdicts if verdict is not None}) > 1
        notes = ["differs"] if differs else []
        notes += [] if found.decided_alike(claim.id) else ["not decided by the same checks"]
        label = checks.label(claim.id)
        rows.append(ClaimRow(label, claim.title, differs, badges, fmt.capital(", ".join(notes))))
    return tuple(rows)


def sentence(found: Comparison) -> str:
    """Several machines in one sentence."""
    rows = claim_rows(found)
    differing = [row.label or f"\u201c{row.title}\u201d" for row in rows if row.differs]
    if not differing:
        return f"{len(found.runs)} runs: no claim has different verdicts."
    which = f"claim {differing[0]} has" if len(differing) == 1 else f"claims {fmt.series(differing)} have"
    others = len(rows) - len(differing)
    rest = f"; the other {others} have not" if others else ""
    return f"{len(found.runs)} runs: {which} different verdicts{rest}."


def runs_table(found: Comparison) -> Table:
    """What was compared."""
    columns = ("Run", "Folder", "Started", "Commit", "Machine")
    rows = []
    for run in found.runs:
        stored = run.results.run
        commit = "none" if stored["commit"] is None else stored["commit"][:12]
        name = f"{run.name}, the base" if found.based and run is found.runs[0] else run.name
        machine = state.machine_line(run.results.data["machine"]["before"])
        started = stored["created_utc"].replace("T", " ").replace("Z", " UTC")
        rows.append(TableRow((name, run.id, started, commit, machine)))
    return Table("Runs", tuple(Column(name, wide=name == "Machine") for name in columns), tuple(rows))


def marks_table(found: Comparison) -> Table:
    """What to know before trusting the comparison."""
    rows = tuple(TableRow((", ".join(mark.runs), fmt.capital(mark.text))) for mark in found.marks)
    return Table("Marked", (Column("Run"), Column("What", wide=True)), rows)


def claims_table(found: Comparison) -> Table:
    """Claim by run, in words."""
    rows = tuple(
        TableRow((row.label, row.title, *(badge.word for badge in row.badges), row.note))
        for row in claim_rows(found)
    )
    columns = (Column("Claim"), Column("Title", wide=True), *_run_columns(found.runs), Column(""))
    return Table("Claims", columns, rows)


def _run_columns(runs: Sequence[Run], wide: bool = False) -> tuple[Column, ...]:
    return tuple(Column(run.name, wide=wide) for run in runs)


def facts_table(found: Comparison, same: bool = True) -> Table:
    """What each run records of its machine. same: also what is the same everywhere, muted, at the end."""
    rows = tuple(
        TableRow(
            (fact.name, *(value_text(fact.name, run.facts[fact.name]) for run in found.runs)),
            muted=fact.name not in found.differing,
        )
        for fact in sorted(FACTS, key=lambda fact: fact.name not in found.differing)
        if same or fact.name in found.differing
    )
    columns = (Column("Property"), *_run_columns(found.runs, wide=True))
    title = "What each run records of its machine"
    return Table(f"{title}; what differs comes first" if same else f"{title}: what differs", columns, rows)


def figure(row: Row, entry: Entry) -> str:
    """The figure of an entry with its interval, "" when there is none."""
    if entry.value is None:
        return ""
    ends = checks.edges(row.cell.target)
    text = fmt.figure(entry.value, row.cell.unit, entry.low, entry.high, ends)
    interval = fmt.interval(entry.value, entry.low, entry.high, ends)
    return f"{text} ({interval})" if interval else text


def entry_text(row: Row, entry: Entry | None) -> str:
    """What a run says in a row."""
    if entry is None:
        return "another kind or tier"
    if entry.absent:
        return entry.reason
    word = checks.badge(entry.verdict).word
    return f"{word} {figure(row, entry)}".strip()


def evidence(row: Row) -> str:
    """Kind and tier of a row."""
    return f"{row.kind}, {row.tier}" if row.tier else row.kind


def check_tables(found: Comparison) -> tuple[Table, ...]:
    """Check by run, a table per claim; a row per cell and kind of evidence."""
    columns = (Column("Check"), Column("Evidence"), *_run_columns(found.runs))
    tables = []
    for claim in found.runs[0].results.registry.claims:
        rows = tuple(
            TableRow(
                (
                    row.label,
                    evidence(row),
                    *(entry_text(row, row.entries.get(run.name)) for run in found.runs),
                ),
                muted=all(entry.value is None for entry in row.entries.values()),
            )
            for row in found.rows
            if row.check.claim == claim.id
        )
        if rows:
            number = checks.label(claim.id)
            title = f"Claim {number}: {claim.title}" if number else claim.title
            tables.append(Table(title, columns, rows))
    return tuple(tables)


def differences_table(found: Comparison) -> Table:
    """Where the runs disagree, opposite verdicts first, with what goes with it."""
    order = ("opposite verdicts", "decided on some", "measurable on some", "figures apart")
    ranked = sorted(found.differences, key=lambda item: order.index(item.what))
    names = ("Check", "Evidence", "What", "By run", "Goes with")
    columns = tuple(Column(name, wide=name in ("By run", "Goes with")) for name in names)
    rows = tuple(
        TableRow((item.row.label, evidence(item.row), item.what, _by_group(item), _goes_with(item, found)))
        for item in ranked
    )
    return Table("Where the runs disagree", columns, rows)


def _by_group(item: Difference) -> str:
    said = []
    for group in item.groups:
        texts = [f"{name} {entry_text(item.row, item.row.entries[name])}" for name in group]
        said.append(", ".join(texts))
    left = f"; nothing from {', '.join(item.left_out)}" if item.left_out else ""
    return "; ".join(said) + left


def _goes_with(item: Difference, found: Comparison) -> str:
    names = [known.fact for known in item.goes_with]
    if not names:
        text = "nothing that was recorded"
    elif len(names) > _FEW and len(found.runs) == 2 and set(names) == set(found.differing):
        text = f"all {len(names)} properties that differ, listed with the machines"
    else:
        text = "; ".join(
            f"{known.fact}: "
            + ", ".join(f"{run} {value_text(known.fact, v)}" for run, v in known.values.items())
            for known in item.goes_with
        )
    if item.unknown:
        text += f" (not recorded everywhere: {', '.join(item.unknown)})"
    return fmt.capital(text)


def refused_table(found: Comparison) -> Table:
    """Checks that are not compared."""
    rows = tuple(TableRow((item.check_id, fmt.capital(item.reason))) for item in found.refused)
    return Table("Not compared", (Column("Check"), Column("Why", wide=True)), rows)
