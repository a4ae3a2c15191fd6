"""The projection: tokens per second of each model by an assumed read bandwidth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from harness.results import Results
from reports import format as fmt
from reports.figures import found, scales
from reports.figures.canvas import Canvas, Entry
from reports.figures.palette import colour
from reports.figures.svg import draw
from reports.model import Column, Figure, Row, Table

CHECK_ID: Final = "0.projection"
_UNIT: Final = "tok/s"
_MOST_PANELS: Final = 12


@dataclass(frozen=True)
class _Curve:
    """(roof in GB/s, tokens per second at the assumed share of it, at all of it), and the paper's figure."""

    label: str
    points: tuple[tuple[float, ...], ...]
    paper: float | None


def _speed(value: float) -> str:
    """Three significant digits: the assumption supports no more."""
    return fmt.fixed(value, 2 if value < 10 else 1 if value < 100 else 0)


def _curves(results: Results) -> list[_Curve]:
    made = []
    for cell in found.cells(results, CHECK_ID):
        items = found.series(cell, "roof_gb_per_s", "tok_per_s", "tok_per_s_at_the_roof")
        points = tuple(sorted(one for one in items if min(one) >= 0))
        paper = float(cell["paper"]) if scales.on_log(cell["paper"]) else None
        if points and points[0][0] < points[-1][0]:
            made.append(_Curve(cell["label"], points, paper))
    return made


def _said(one: _Curve) -> str:
    return fmt.with_unit(fmt.plain(one.paper), _UNIT) if one.paper is not None else ""


def _alt(curves: list[_Curve]) -> str:
    parts = []
    for one in curves:
        ends = (one.points[0], one.points[-1])
        said = ", ".join(
            f"{_speed(low)} to {_speed(high)}{fmt.NBSP}{_UNIT} at {fmt.plain(roof)}{fmt.NBSP}GB/s"
            for roof, low, high in ends
        )
        parts.append(f"{one.label}, projected: {said}{f'; the paper: {_said(one)}' if one.paper else ''}")
    return found.sentences(parts)


def _table(curves: list[_Curve]) -> Table:
    columns = [Column("Assumed roof, GB/s", numeric=True)]
    for one in curves:
        columns += [Column(one.label, numeric=True), Column("at the roof", numeric=True)]
    values = [{roof: (low, high) for roof, low, high in one.points} for one in curves]
    roofs = sorted({roof for one in values for roof in one})
    rows = tuple(
        Row((fmt.plain(roof), *(_speed(v) if v is not None else "" for v in _at(values, roof))))
        for roof in roofs
    )
    return Table("Projected tokens per second by assumed roof", tuple(columns), rows)


def _at(values: list[dict[float, tuple[float, float]]], roof: float) -> list[float | None]:
    """The two speeds of each curve at one roof, None where it has no point."""
    return [speed for one in values for speed in one.get(roof, (None, None))]


def projection(results: Results) -> Figure | None:
    """A panel a model, on a scale of its own; None when the run holds no projection."""
    curves = _curves(results)
    if not curves:
        return None
    roofs = [point[0] for one in curves for point in one.points]

    def paint(canvas: Canvas) -> None:
        key = [Entry("at the assumed share of the roof", "s1", line="-")]
        key += [Entry("at the whole roof", "s1", line="--")]
        key += (
            [Entry("the paper\u2019s figure, its roof not stated", "mark", line=":")]
            if _has_paper(curves)
            else []
        )
        columns = 1 if canvas.narrow else 2
        drawn = curves[:_MOST_PANELS]
        panels = canvas.panels(
            key, titles=[one.label for one in drawn], columns=columns, height=150, right=24
        )
        for axes, one in zip(panels, drawn, strict=True):
            xs, shares, wholes = zip(*one.points, strict=True)
            scales.between(axes, "x", min(roofs), max(roofs))
            scales.linear(axes, "y", [*wholes, *shares, one.paper or 0.0], most=4)
            if one.paper is not None:
                axes.axhline(one.paper, color=colour("mark"), linestyle=":", linewidth=2)
            axes.plot(xs, shares, color=colour("s1"), linewidth=2, clip_on=False)
            axes.plot(xs, wholes, color=colour("s1"), linestyle="--", linewidth=1.5, clip_on=False)
            canvas.label(axes, "assumed roof, GB/s", _UNIT)

    title = "Projected tokens per second by assumed read bandwidth"
    alt = _alt(curves)
    wide, narrow = draw("figure-projection", title, alt, paint)
    caption = (
        "A projection, not a measurement. Every line rests on the assumptions above; each model has a scale "
        "of its own."
    )
    caption += found.left_out(len(curves), _MOST_PANELS)
    return Figure("figure-projection", title, caption, alt, _table(curves), wide, narrow)


def _has_paper(curves: list[_Curve]) -> bool:
    return any(one.paper is not None for one in curves)
