"""A comparison as a whole: read, refused or marked, and worked out. What is printed only shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from harness.errors import ComparisonError
from harness.kinds import Verdict
from harness.registry import Check
from reports.compare import base as base_run
from reports.compare.base import Move, VerdictChange
from reports.compare.facts import FACTS
from reports.compare.machines import Difference, difference, differing_facts
from reports.compare.rows import Entry, Refused, Row, comparable, rows_of
from reports.compare.runs import Mark, Run, base_marks, claim_verdict, marks, read_runs, refuse_other_machine

LOSS: Final = "loss"


@dataclass(frozen=True)
class Comparison:
    """Runs side by side.

    checks: those that all runs declare alike, with their rows; refused: the others. differing: names of the
    facts in which runs differ. Of several machines: differences. Of a run against its base (runs[0]): moves
    and changes; based says which it is.
    """

    runs: tuple[Run, ...]
    marks: tuple[Mark, ...]
    checks: tuple[Check, ...]
    rows: tuple[Row, ...]
    refused: tuple[Refused, ...]
    differing: tuple[str, ...]
    based: bool
    differences: tuple[Difference, ...]
    moves: tuple[Move, ...]
    changes: tuple[VerdictChange, ...]

    @property
    def losses(self) -> tuple[Move, ...]:
        """Confirmed losses against the base."""
        return tuple(move for move in self.moves if move.outcome == LOSS)

    def to_json(self) -> dict[str, Any]:
        """For programs: base (letter or null), profile, runs with their facts, marks, facts_that_differ,
        claims and rows with what each run says by its letter, not_compared; then differences, or moves,
        verdict_changes and confirmed_losses against the base.
        """
        names = [run.name for run in self.runs]
        compared: dict[str, Any]
        if self.based:
            compared = {
                "moves": [_move_json(move) for move in self.moves],
                "verdict_changes": [vars(change).copy() for change in self.changes],
                "confirmed_losses": [move.row.label for move in self.losses],
            }
        else:
            compared = {"differences": [_difference_json(found) for found in self.differences]}
        return {
            "base": names[0] if self.based else None,
            "profile": self.runs[0].results.run["profile"],
            "runs": [_run_json(run) for run in self.runs],
            "marks": [{"runs": list(mark.runs), "text": mark.text} for mark in self.marks],
            "facts_that_differ": list(self.differing),
            "claims": [
                {
                    "id": claim.id,
                    "title": claim.title,
                    "verdicts": self.claim_verdicts(claim.id),
                    "decided_alike": self.decided_alike(claim.id),
                }
                for claim in self.runs[0].results.registry.claims
            ],
            "rows": [_row_json(row) for row in self.rows],
            "not_compared": [{"check": item.check_id, "reason": item.reason} for item in self.refused],
            **compared,
        }

    def claim_verdicts(self, claim_id: str) -> dict[str, Verdict | None]:
        """Verdict of a claim by run, None where it did not run."""
        return {run.name: claim_verdict(run, claim_id) for run in self.runs}

    def decided_alike(self, claim_id: str) -> bool:
        """Whether all runs decide a claim by the same checks, declared alike."""
        refused = {item.check_id for item in self.refused}
        return not any(
            check.id in refused and not check.beyond
            for run in self.runs
            for check in run.results.registry.checks_of(claim_id)
        )


def compare(directories: Sequence[Path], based: bool = False, now: datetime | None = None) -> Comparison:
    """Holds runs against each other.

    Args:
        directories: folders with results.json; the first one is the base when based is set.
        now: the time of the comparison, for starts that lie in the future.

    Raises:
        ComparisonError: runs that cannot be compared, naming both. ResultsError: a results.json is missing or
        damaged, naming file and field.
    """
    if based and len(directories) != 2:
        raise ComparisonError(
            f"--base: found {len(directories)} run(s), allowed: 2, the base and the new run"
        )
    runs = read_runs(directories)
    found = marks(runs, now or datetime.now(UTC))
    if based:
        refuse_other_machine(*runs)
        found += base_marks(*runs)
    checks, refused = comparable(runs)
    rows = tuple(row for check in checks for row in rows_of(check, runs))
    moves: tuple[Move, ...] = ()
    changes: tuple[VerdictChange, ...] = ()
    differences: tuple[Difference, ...] = ()
    if based:
        moves = base_run.moves(rows, *runs)
        changes = base_run.verdict_changes([check.id for check in checks], *runs)
    else:
        worked_out = (difference(row, runs) for row in rows)
        differences = tuple(item for item in worked_out if item is not None)
    return Comparison(
        runs=runs,
        marks=found,
        checks=checks,
        rows=rows,
        refused=(*refused, *_apart(rows, runs)),
        differing=differing_facts(runs),
        based=based,
        differences=differences,
        moves=moves,
        changes=changes,
    )


def _apart(rows: Sequence[Row], runs: Sequence[Run]) -> list[Refused]:
    """Rows that some runs are not in, because their evidence is of another kind or tier."""
    return [
        Refused(
            row.label, f"{_sort(row)} in {', '.join(row.entries)} alone: another kind of evidence or tier"
        )
        for row in rows
        if len(row.entries) < len(runs)
    ]


def _sort(row: Row) -> str:
    return f"{row.kind}, {row.tier}" if row.tier else row.kind


def _run_json(run: Run) -> dict[str, Any]:
    stored = run.results.run
    return {
        "name": run.name,
        "directory": str(run.results.directory),
        "id": run.id,
        "created_utc": stored["created_utc"],
        "commit": stored["commit"],
        "dirty": stored["dirty"],
        "registry_sha256": run.results.data["registry"]["sha256"],
        "facts": {fact.name: run.facts[fact.name] for fact in FACTS},
    }


def _entry_json(entry: Entry) -> dict[str, Any]:
    shown = ("verdict", "reason", "value", "low", "high", "sound", "doubted")
    return {name: getattr(entry, name) for name in shown}


def _row_json(row: Row) -> dict[str, Any]:
    return {
        "claim": row.check.claim,
        "check": row.check.id,
        "cell": row.cell.label,
        "kind": row.kind,
        "tier": row.tier or None,
        "unit": row.cell.unit,
        "beyond": row.check.beyond,
        "runs": {name: _entry_json(entry) for name, entry in row.entries.items()},
    }


def _named(row: Row) -> dict[str, Any]:
    return {"check": row.check.id, "cell": row.cell.label, "kind": row.kind, "tier": row.tier or None}


def _difference_json(found: Difference) -> dict[str, Any]:
    goes_with: list[Mapping[str, Any]] = [
        {"fact": item.fact, "values": dict(item.values)} for item in found.goes_with
    ]
    return {
        **_named(found.row),
        "what": found.what,
        "groups": [list(group) for group in found.groups],
        "left_out": list(found.left_out),
        "goes_with": goes_with,
        "not_recorded_everywhere": list(found.unknown),
    }


def _move_json(move: Move) -> dict[str, Any]:
    interval = move.shift
    return {
        **_named(move.row),
        "outcome": move.outcome,
        "reason": move.reason,
        "worse": move.worse,
        "ratio": move.ratio,
        "low": None if interval is None else interval.low,
        "high": None if interval is None else interval.high,
        "confidence": None if interval is None else interval.confidence,
        "base": _entry_json(move.base),
        "new": _entry_json(move.new),
    }
