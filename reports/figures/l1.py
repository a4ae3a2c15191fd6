"""Claim 2: L1 read misses of row-major rows over those of tiles, against the columns of the matrix."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final

from harness.results import Results
from reports import format as fmt
from reports.figures import found, scales
from reports.figures.canvas import Canvas, Entry, entry, mark
from reports.figures.found import Json
from reports.figures.palette import colour, styles
from reports.figures.svg import draw
from reports.model import Column, Figure, Row, Table

_BY_COLUMNS, _PAPER = "2.l1.columns", "2.l1.simulated"
_VECTOR_BYTES: Final = {"f32": 4.0, "q8": 1.25}
"""Of a column of the vector: a float, or a code with its part of a scale and a sum for 32 codes (cflow.h)."""
_MOST_CURVES: Final = 12
_SIZE: Final = re.compile(r"(\d+) KiB")
_COLUMNS: Final = re.compile(r"x (\d+)")


@dataclass(frozen=True)
class _Curve:
    label: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class _Fill:
    """Where the vector alone is as large as the cache."""

    columns: float
    text: str


def _curves(cells: list[Json]) -> list[_Curve]:
    """One curve for all cells that found the same."""
    labels: dict[tuple[tuple[float, float], ...], list[str]] = {}
    for cell in cells:
        pairs = found.series(cell, "columns", "row_major_over_tiles")
        points = tuple((x, y) for x, y in pairs if scales.on_log(x) and scales.on_log(y))
        if points:
            labels.setdefault(tuple(sorted(points)), []).append(cell["label"])
    return [_Curve(_joined(names), points) for points, names in labels.items()]


def _joined(labels: list[str]) -> str:
    """Labels as one, their beginning said once: `f32, here` and `f32, there` give `f32, here / there`."""
    head = os.path.commonprefix(labels).rpartition(", ")[0]
    return " / ".join([labels[0], *(label[len(head) :].removeprefix(", ") for label in labels[1:])])


def _fills(cells: list[Json]) -> list[_Fill]:
    marks = {}
    for cell in cells:
        size = _SIZE.search(str(cell["evidence"].get("geometry", "")))
        kind = found.given(cell, "activations")
        if size and kind in _VECTOR_BYTES:
            columns = int(size[1]) * 1024 / _VECTOR_BYTES[kind]
            marks[columns] = f"{'8-bit' if kind == 'q8' else kind} vector = {size[1]} KiB"
    return [_Fill(columns, text) for columns, text in sorted(marks.items()) if scales.on_log(columns)]


def _said(results: Results) -> tuple[float, float] | None:
    """Columns and ratio of the paper."""
    for cell in found.cells(results, _PAPER):
        columns = _COLUMNS.search(found.given(cell, "matrix"))
        if columns and scales.on_log(cell["paper"]) and scales.on_log(float(columns[1])):
            return float(columns[1]), float(cell["paper"])
    return None


def _alt(curves: list[_Curve], fills: list[_Fill], said: tuple[float, float] | None) -> str:
    parts = []
    for one in curves:
        (first, low), (last, high) = one.points[0], one.points[-1]
        crossed = next((x for x, y in one.points if y > 2), None)
        steps = f"first above 2 at {fmt.plain(crossed)} columns" if crossed else "nowhere above 2"
        parts.append(
            f"{one.label}: {fmt.figure(low, 'ratio')} at {fmt.plain(first)} columns, {steps}, "
            f"{fmt.figure(high, 'ratio')} at {fmt.plain(last)}"
        )
    parts += [f"{fill.text} at {fmt.fixed(fill.columns, 0)} columns" for fill in fills]
    if said:
        parts.append(f"the paper: {fmt.figure(said[1], 'ratio')} at {fmt.plain(said[0])} columns")
    return found.sentences(parts)


def _table(curves: list[_Curve]) -> Table:
    values = [dict(one.points) for one in curves]
    rows = tuple(
        Row((fmt.plain(x), *(fmt.figure(one[x], "ratio") if x in one else "" for one in values)))
        for x in sorted({x for one in values for x in one})
    )
    columns = (Column("Columns", numeric=True), *(Column(one.label, numeric=True) for one in curves))
    return Table("Row-major misses over those of tiles", columns, rows)


def l1(results: Results) -> Figure | None:
    """Misses against columns, with the vector lengths that fill the cache; None without `2.l1.columns`."""
    cells = found.cells(results, _BY_COLUMNS)
    curves = _curves(cells)
    if not curves:
        return None
    fills, said = _fills(cells), _said(results)
    xs = [x for one in curves for x, _ in one.points] + [fill.columns for fill in fills]
    ys = [y for one in curves for _, y in one.points] + [1.0]
    if said:
        xs, ys = [*xs, said[0]], [*ys, said[1]]

    def paint(canvas: Canvas) -> None:
        looks = list(zip(curves[:_MOST_CURVES], styles(), strict=False))
        key = [entry(one.label, style) for one, style in looks]
        key += [Entry("the paper\u2019s figure", "mark", "D", hollow=True)] if said else []
        (axes,) = canvas.panels(key, height=240)
        scales.logarithmic(axes, "x", xs, most=4 if canvas.narrow else 8)
        scales.logarithmic(axes, "y", ys, most=6)
        axes.axhline(1, color=colour("ink"), linewidth=1)
        for index, fill in enumerate(fills):
            axes.axvline(fill.columns, color=colour("faint"), linewidth=1, linestyle=(0, (4, 3)))
            place = (fill.columns, 1 - 0.09 * (index + 1))
            axes.annotate(
                fill.text,
                place,
                xycoords=("data", "axes fraction"),
                xytext=(-5, 0),
                textcoords="offset pixels",
                ha="right",
                va="center",
                color=colour("faint"),
            )
        for one, style in looks:
            axes.plot([x for x, _ in one.points], [y for _, y in one.points], **mark(style))
        if said:
            axes.plot([said[0]], [said[1]], linestyle="", **mark(key[-1], hollow=True))
        canvas.label(axes, "columns of the matrix", f"row-major misses over tiles, {fmt.TIMES}")

    title = "L1 misses against columns"
    alt = _alt(curves, fills, said)
    wide, narrow = draw("figure-l1", title, alt, paint)
    caption = (
        "Simulated. Above 1, rows miss more often than tiles. The dashed lines mark where the vector alone "
        "is as large as the cache: a row then finds none of it left by the row before. Weights pass through "
        "the cache as well, so it can begin earlier."
    )
    caption += found.left_out(len(curves), _MOST_CURVES)
    return Figure("figure-l1", title, caption, alt, _table(curves), wide, narrow)
