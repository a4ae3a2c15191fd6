"""A run against its base as text: tables that the page and the terminal share, and a chart."""

from __future__ import annotations

from typing import Final

from reports import charts, checks
from reports import format as fmt
from reports.compare.base import Move
from reports.compare.comparison import Comparison
from reports.compare.view import entry_text, evidence
from reports.model import Column, ForestGroup, ForestRow, Row, Table

_ORDER: Final = ("loss", "gain", "moved", "not told apart", "not compared")
_MOVED: Final = _ORDER[:3]
_WORDS: Final = {"loss": "confirmed loss"}


def sentence(found: Comparison) -> str:
    """A run against its base in one sentence."""
    compared = [move for move in found.moves if move.outcome != "not compared"]
    if found.losses:
        names = fmt.series([move.row.label for move in found.losses])
        many = "are confirmed losses" if len(found.losses) > 1 else "is a confirmed loss"
        return f"Against the base, {len(found.losses)} of {len(compared)} figures {many}: {names}."
    if not compared:
        return "Nothing was measured alike in the base and in the new run."
    moved = sum(1 for move in compared if move.outcome in ("moved", "gain"))
    return f"Against the base, no figure is a confirmed loss: {moved} of {len(compared)} moved."


def moves_table(found: Comparison, all_of_them: bool = True) -> Table:
    """What became of each figure; losses first. all_of_them: also what has no interval and did not move."""
    shown = [
        move for move in sorted(found.moves, key=lambda move: _ORDER.index(move.outcome))
        if all_of_them or move.outcome in _MOVED or move.shift is not None
    ]  # fmt: skip
    names = ("Check", "Outcome", "New over base", "Interval", "Why", "Evidence", "Base", "New")
    columns = tuple(
        Column(name, numeric=name in ("New over base", "Interval"), wide=name == "Why") for name in names
    )
    rows = tuple(
        Row(
            (
                move.row.label,
                _WORDS.get(move.outcome, move.outcome),
                ratio_text(move),
                interval_text(move),
                fmt.capital(move.reason),
                evidence(move.row),
                entry_text(move.row, move.base),
                entry_text(move.row, move.new),
            ),
            muted=move.outcome not in _MOVED,
        )
        for move in shown
    )
    return Table("What moved against the base", columns, rows)


def left_out(found: Comparison) -> str:
    """How many figures the short table leaves out, "" for none."""
    same = sum(1 for move in found.moves if move.outcome == "not told apart" and move.shift is None)
    other = sum(1 for move in found.moves if move.outcome == "not compared")
    said = [f"{same} figures without rounds are the same"] if same else []
    said += [f"{other} are not compared, for the reasons that --json and --out give"] if other else []
    return fmt.capital("; ".join(said))


def ratio_text(move: Move) -> str:
    """New over base."""
    if move.shift is None:
        return "" if move.ratio is None else fmt.figure(move.ratio, "ratio")
    return fmt.figure(move.shift.ratio, "ratio", move.shift.low, move.shift.high, (1.0,))


def interval_text(move: Move) -> str:
    """The interval of new over base."""
    if move.shift is None:
        return ""
    return fmt.interval(move.shift.ratio, move.shift.low, move.shift.high, (1.0,))


def changes_table(found: Comparison) -> Table:
    """Verdicts that are other than in the base."""
    rows = tuple(
        Row((change.id, checks.badge(change.base).word, checks.badge(change.new).word, change.reason))
        for change in found.changes
    )
    columns = (
        Column("Claim or check"),
        Column("Base"),
        Column("New"),
        Column("Why, in the new run", wide=True),
    )
    return Table("Verdicts that changed", columns, rows)


def forest(found: Comparison) -> ForestGroup | None:
    """New over base of every timed figure with an interval, None when there is none."""
    drawn = [move for move in found.moves if move.shift is not None and move.shift.low is not None]
    if not drawn:
        return None
    values: list[float] = []
    for move in drawn:
        assert move.shift is not None
        values += [v for v in (move.shift.ratio, move.shift.low, move.shift.high) if v is not None]
    axis = charts.log_axis(values)
    ticks = fmt.series([tick.label for tick in axis.ticks])
    return ForestGroup(
        title="New over base",
        axis=axis,
        axis_alt=f"Logarithmic axis of ratios with ticks at {ticks}",
        rows=tuple(_forest_row(move, axis) for move in drawn),
    )


def _forest_row(move: Move, axis: charts.Axis) -> ForestRow:
    assert move.shift is not None
    outcome = _WORDS.get(move.outcome, move.outcome)
    worse = "" if move.worse == "neither" else f"{move.worse} is worse"
    mark = charts.mark(axis, move.shift.ratio, move.shift.low, move.shift.high, (None, None), None)
    text, interval = ratio_text(move), interval_text(move)
    return ForestRow(
        anchor="moves",
        label=move.row.label,
        detail=" \u00b7 ".join(part for part in (outcome, worse) if part),
        value=text,
        interval=interval,
        mark=mark,
        alt=f"{move.row.label}, new over base: {text}, interval {interval}, {outcome}",
    )
