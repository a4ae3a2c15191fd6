"""Claim 6: speed with a prefetch hint over none, by distance and hint: a map, without a verdict."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from harness.results import Results
from reports import format as fmt
from reports.figures import arms, found, scales
from reports.figures.arms import Measured
from reports.figures.canvas import Canvas, entry, mark
from reports.figures.palette import SERIES, Style, colour, styles
from reports.figures.svg import draw
from reports.model import Column, Figure, Row, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CHECKS: Final = ("6.map", "6.map_large")
_OFF: Final = "no hint"
_ARM: Final = re.compile(r"(\w+) (\d+) (B|KiB)")
_MOST_PANELS: Final = 12


@dataclass(frozen=True)
class _Point:
    """One arm of a cell: hint, bytes ahead, speed over no hint."""

    cell: str
    hint: str
    distance: int
    gain: Measured


def _points(results: Results) -> list[_Point]:
    made = []
    for check in _CHECKS:
        for cell in found.cells(results, check):
            for name in arms.names(cell):
                parts = _ARM.fullmatch(name)
                gain = arms.speed(cell, name, _OFF) if parts else None
                if parts and gain:
                    ahead = int(parts[2]) * (1024 if parts[3] == "KiB" else 1)
                    made.append(_Point(cell["label"] or check, parts[1], ahead, gain))
    return [one for one in made if scales.on_log(one.distance)]


def _distance(size: float) -> str:
    return f"{size / 1024:g}{fmt.NBSP}KiB" if size >= 1024 else f"{size:g}{fmt.NBSP}B"


def _gain(gain: Measured) -> str:
    return fmt.figure(gain.value, "ratio", gain.low, gain.high)


def _alt(points: list[_Point]) -> str:
    parts = []
    for cell in dict.fromkeys(one.cell for one in points):
        mine = [one for one in points if one.cell == cell]
        best = max(mine, key=lambda one: one.gain.value)
        worst = min(mine, key=lambda one: one.gain.value)
        said = [f"{_gain(o.gain)} with {o.hint} {_distance(o.distance)} ahead" for o in (best, worst)]
        void = "" if best.gain.decides else "; all its rounds are void"
        parts.append(f"{fmt.capital(cell)}: from {said[1]} to {said[0]}{void}")
    return found.sentences(parts)


def _table(points: list[_Point]) -> Table:
    rows = tuple(
        Row(
            (
                one.cell,
                one.hint,
                _distance(one.distance),
                _gain(one.gain),
                fmt.interval(one.gain.value, one.gain.low, one.gain.high),
                f"{one.gain.rounds}{'' if one.gain.decides else ', all void'}",
            ),
            muted=not one.gain.decides,
        )
        for one in points
    )
    numbers = (Column(name, numeric=True) for name in ("Ahead", "Speed over no hint", "Interval", "Rounds"))
    return Table("Speed over no hint", (Column("Where"), Column("Hint"), *numbers), rows)


def prefetch(results: Results) -> Figure | None:
    """Gain by distance, a panel a cell of the map; None when no map was measured."""
    points = _points(results)
    if not points:
        return None
    cells = list(dict.fromkeys(one.cell for one in points))
    hints = dict(zip(dict.fromkeys(one.hint for one in points), styles(), strict=False))
    hints = dict(list(hints.items())[: len(SERIES)])

    def paint(canvas: Canvas) -> None:
        key = [entry(f"PREFETCH{name}", style) for name, style in hints.items()]
        drawn = cells[:_MOST_PANELS]
        panels = canvas.panels(
            key, titles=drawn, columns=1 if canvas.narrow else 2, height=170, left=52, right=24
        )
        values = [v for p in points for v in (p.gain.value, p.gain.low, p.gain.high) if v is not None]
        for axes, cell in zip(panels, drawn, strict=True):
            mine = [one for one in points if one.cell == cell]
            scales.logarithmic(axes, "y", [*values, 1.0], most=7)
            distances = sorted({one.distance for one in mine})
            scales.logarithmic(axes, "x", distances)
            scales.ticks_at(axes, distances, _distance)
            axes.axhline(1, color=colour("ink"), linewidth=1)
            for hint, style in hints.items():
                line = sorted((o for o in mine if o.hint == hint), key=lambda one: one.distance)
                _line(axes, line, style)
            if not all(one.gain.decides for one in mine):
                axes.annotate(
                    "all rounds void",
                    (1, 1),
                    xycoords="axes fraction",
                    xytext=(0, 16),
                    textcoords="offset pixels",
                    ha="right",
                    va="center",
                    color=colour("soft"),
                )
            canvas.label(axes, "ahead of the read", f"speed over no hint, {fmt.TIMES}")

    title = "Prefetch map"
    alt = _alt(points)
    wide, narrow = draw("figure-prefetch", title, alt, paint)
    caption = (
        "Median speed of a matrix product with a hint over the same without, with 95 % intervals, by how far "
        "ahead of the read the hint goes. Exploratory: it decides nothing. Hollow: every round is void."
    )
    caption += found.left_out(len(cells), _MOST_PANELS)
    return Figure("figure-prefetch", title, caption, alt, _table(points), wide, narrow)


def _line(axes: Axes, line: list[_Point], style: Style) -> None:
    """Marks with intervals, joined."""
    if not line:
        return
    hollow = not all(one.gain.decides for one in line)
    ends = [(o.distance, o.gain.low, o.gain.high) for o in line if o.gain.low is not None]
    if ends:
        xs, lows, highs = zip(*ends, strict=True)
        axes.vlines(xs, lows, highs, colors=colour(style.colour), linewidth=1.5)
    axes.plot([o.distance for o in line], [o.gain.value for o in line], linewidth=1, **mark(style, hollow))
