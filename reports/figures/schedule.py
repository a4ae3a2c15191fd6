"""Claim 7: what the delays gain by the law, on the path, in traffic and in time, on one axis of ratios."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from harness.results import Results
from reports import format as fmt
from reports.figures import found, scales
from reports.figures.canvas import ROW_AT, Canvas, Entry, mark
from reports.figures.palette import Style, colour
from reports.figures.svg import draw
from reports.model import Column, Figure, Row, Table

_LOOKS: Final = {
    "derived": Style("s4", "^"),
    "counted": Style("s3", "s"),
    "timed": Style("s1", "o"),
}
_MOST_ROWS: Final = 12
_ROWS: Final = (
    ("7.law", "The law: bytes that bind a layer"),
    ("7.law_stored", "The law, bytes as stored"),
    ("7.path", "Path: the longest chain of dependent bytes"),
    ("7.traffic", "Traffic: bytes that a token reads"),
    ("7.time", "Time: tokens per second"),
)


@dataclass(frozen=True)
class _Gain:
    """A ratio of no delays over delays, above 1 where delays gain."""

    label: str
    kind: str
    value: float
    low: float | None
    high: float | None
    paper: float | None
    verdict: str

    @property
    def text(self) -> str:
        return fmt.figure(self.value, "ratio", self.low, self.high)


def _gains(results: Results) -> list[_Gain]:
    made = []
    for check, name in _ROWS:
        for cell in found.cells(results, check):
            kind = cell["evidence"]["kind"]
            # Of the untimed checks the first cell is the ratio; others are bytes or other models.
            if cell["unit"] != "ratio" or not scales.on_log(cell["value"]) or kind not in _LOOKS:
                continue
            low, high, paper = (cell[k] if scales.on_log(cell[k]) else None for k in ("low", "high", "paper"))
            where = f", {cell['label']}" if kind == "timed" and cell["label"] else ""
            verdict = cell["verdict"] or "recorded"
            made.append(_Gain(name + where, kind, cell["value"], low, high, paper, verdict))
            if kind != "timed":
                break
    return made


def _alt(gains: list[_Gain]) -> str:
    parts = []
    for one in gains:
        interval = fmt.interval(one.value, one.low, one.high)
        said = f"{one.label}: {one.text}{f', {interval}' if interval else ''}, {one.kind}, {one.verdict}"
        parts.append(said + (f", the paper: {fmt.plain(one.paper)}{fmt.TIMES}" if one.paper else ""))
    return f"Gain with delays (1, 2). {found.sentences(parts)}"


def _table(gains: list[_Gain]) -> Table:
    rows = tuple(
        Row(
            (
                one.label,
                one.kind,
                one.text,
                fmt.interval(one.value, one.low, one.high),
                "" if one.paper is None else fmt.plain(one.paper) + fmt.TIMES,
                one.verdict,
            )
        )
        for one in gains
    )
    numbers = (Column(name, numeric=True) for name in ("Gain", "Interval", "Paper"))
    columns = (Column("Of"), Column("Evidence"), *numbers, Column("Verdict"))
    return Table("What delays (1, 2) gain over (0, 0)", columns, rows)


def schedule(results: Results) -> Figure | None:
    """The four answers of claim 7 side by side; None when none was found."""
    gains = _gains(results)
    if not gains:
        return None
    said = Entry("the paper\u2019s figure", "mark", "D", hollow=True)

    def paint(canvas: Canvas) -> None:
        key = [Entry(name, look.colour, look.marker) for name, look in _LOOKS.items()]
        key = [one for one in key if any(gain.kind == one.label for gain in gains)]
        key += [said] if any(one.paper for one in gains) else []
        drawn = gains[:_MOST_ROWS]
        axes = canvas.rows(key, [one.label for one in drawn], right=150 if canvas.narrow else 190)
        values = [v for g in drawn for v in (g.value, g.low, g.high, g.paper) if v is not None]
        scales.logarithmic(axes, "x", [*values, 1.0], most=4 if canvas.narrow else 7)
        axes.axvline(1, color=colour("ink"), linewidth=1)
        for index, one in enumerate(drawn):
            y, look = index + ROW_AT, _LOOKS[one.kind]
            if one.low is not None and one.high is not None:
                axes.plot([one.low, one.high], [y, y], color=colour(look.colour), linewidth=2)
            if one.paper is not None:
                axes.plot([one.paper], [y], linestyle="", **mark(said, hollow=True) | {"markersize": 11})
            axes.plot([one.value], [y], linestyle="", **mark(look, hollow=one.verdict == "INCONCLUSIVE"))
            axes.annotate(
                f"{one.text} {one.verdict}",
                (1, y),
                xycoords=("axes fraction", "data"),
                xytext=(14, 0),
                textcoords="offset pixels",
                va="center",
                color=colour("soft"),
            )
        canvas.label(axes, f"(0, 0) over (1, 2), {fmt.TIMES}; above 1 delays gain", "")

    title = "Law, path, traffic and time"
    alt = _alt(gains)
    wide, narrow = draw("figure-schedule", title, alt, paint)
    caption = (
        "What delays (1, 2) gain over none, by the paper\u2019s law, by the schedule that ran, by the bytes "
        "that were read, and by the clock. Hollow: inconclusive."
    )
    caption += found.left_out(len(gains), _MOST_ROWS)
    return Figure("figure-schedule", title, caption, alt, _table(gains), wide, narrow)
