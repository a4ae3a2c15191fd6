"""The projection of decode speed by an assumed read bandwidth: one small chart a model, on one axis of roofs.

Everything drawn is in the evidence of the check; nothing is computed here but places on the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.results import Results
from reports import charts, exact
from reports import format as fmt
from reports.charts import Axis
from reports.model import Column, Curve, Fact, Projection, Row, Table, check_anchor

Json = Mapping[str, Any]

CHECK_ID: Final = "0.projection"
_ROOFS, _SPEEDS, _SPEEDS_AT_ROOF = "roof_gb_per_s", "tok_per_s", "tok_per_s_at_the_roof"
_UNIT: Final = "tok/s"


def _speed(value: float) -> str:
    """Three significant digits: the assumption supports no more."""
    return fmt.fixed(value, 2 if value < 10 else 1 if value < 100 else 0)


def _curve(cell: Json, x_axis: Axis) -> Curve:
    seen = cell["evidence"]["observations"]
    roofs, speeds, at_roof = seen[_ROOFS], seen[_SPEEDS], seen[_SPEEDS_AT_ROOF]
    paper = cell["paper"]
    y_axis = charts.linear_axis([*at_roof, paper or 0.0], most=3)
    said = fmt.with_unit(fmt.plain(paper), _UNIT) if paper is not None else ""
    first, last = (f"{_speed(speeds[i])} to {_speed(at_roof[i])}{fmt.NBSP}{_UNIT}" for i in (0, -1))
    ends = f"{first} at {fmt.plain(roofs[0])} GB/s, {last} at {fmt.plain(roofs[-1])} GB/s"
    alt = f"{cell['label']}, projected: {ends}"
    return Curve(
        label=cell["label"],
        text=ends,
        paper_text=f"the paper: {said}, at a roof that it does not state" if said else "",
        ticks=charts.from_the_top(y_axis),
        line=charts.segments(x_axis, y_axis, roofs, speeds),
        ceiling=charts.segments(x_axis, y_axis, roofs, at_roof),
        paper=None if paper is None else round(100 - y_axis.at(paper), 2),
        alt=f"{alt}; the paper: {said}" if said else alt,
    )


def _table(cells: Sequence[Json]) -> Table:
    columns = [Column("Assumed roof, GB/s", numeric=True)]
    for cell in cells:
        columns += [Column(cell["label"], numeric=True), Column("at the roof", numeric=True)]
    series = [cell["evidence"]["observations"][key] for cell in cells for key in (_SPEEDS, _SPEEDS_AT_ROOF)]
    roofs = cells[0]["evidence"]["observations"][_ROOFS]
    rows = tuple(
        Row((fmt.plain(roof), *(_speed(values[index]) for values in series)))
        for index, roof in enumerate(roofs)
    )
    return Table("Projected tokens per second by assumed roof", tuple(columns), rows)


def projection(results: Results) -> Projection | None:
    """The figure, None when the run holds no projection."""
    record = results.record(CHECK_ID)
    cells = [cell for cell in record["cells"] if cell["evidence"] is not None] if record else []
    if not cells:
        return None
    roofs = cells[0]["evidence"]["observations"][_ROOFS]
    x_axis = charts.axis_between(roofs[0], roofs[-1])
    inputs = cells[0]["evidence"]["inputs"]
    return Projection(
        anchor=check_anchor(CHECK_ID),
        machine=str(inputs["machine"]),
        assumptions=(
            Fact("Assumed roof", str(inputs["assumed roofs"])),
            Fact("Share of it", f"{exact.scalar(inputs['share of the roof'])}, {inputs['the share is']}"),
            Fact("Formula", str(cells[0]["evidence"]["method"])),
        ),
        axis=x_axis,
        axis_alt=f"Axis of assumed read bandwidth from {fmt.plain(roofs[0])} to {fmt.plain(roofs[-1])} GB/s",
        has_paper=any(cell["paper"] is not None for cell in cells),
        curves=tuple(_curve(cell, x_axis) for cell in cells),
        table=_table(cells),
    )
