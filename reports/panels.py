"""The two overview charts: every timed ratio on a logarithmic axis, and byte figures side by side."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from harness.registry import Check
from harness.results import Results
from reports import charts, exact
from reports import format as fmt
from reports.charts import Axis
from reports.model import BarChart, Column, Forest, ForestGroup, ForestRow, Panel, Row, Table, check_anchor

Json = Mapping[str, Any]

MIB: Final = 2.0**20
_PER_MIB: Final = {
    "bytes": 1 / MIB,
    "KiB": 1 / 1024,
    "MiB": 1.0,
    "GiB": 1024.0,
    "MB": 1e6 / MIB,
    "GB": 1e9 / MIB,
}
_NEAR: Final = 1.5
_SUFFIX: Final = re.compile(r"_(mib|bytes)$")


def _joined(*parts: str) -> str:
    return " \u00b7 ".join(part for part in parts if part)


def _paper_alt(paper: float | None) -> str:
    return "" if paper is None else f"the paper: {fmt.plain(paper)}{fmt.TIMES}"


def _ratios(results: Results) -> list[tuple[Check, Json]]:
    found = []
    for check in results.registry.checks:
        record = results.record(check.id)
        for cell in record["cells"] if record else ():
            timed = cell["evidence"] is not None and cell["evidence"]["kind"] == "timed"
            if timed and cell["unit"] == "ratio" and cell["value"] is not None and cell["value"] > 0:
                found.append((check, cell))
    return found


def _group(title: str, found: Sequence[tuple[Check, Json]]) -> ForestGroup:
    values: list[float] = []
    for _, cell in found:
        values += [v for v in (cell["value"], cell["low"], cell["high"], cell["paper"]) if v is not None]
    axis = charts.log_axis(values)
    ticks = fmt.series([tick.label for tick in axis.ticks])
    return ForestGroup(
        title=title,
        axis=axis,
        axis_alt=f"Logarithmic axis of ratios with ticks at {ticks}",
        rows=tuple(_forest_row(check, cell, axis) for check, cell in found),
    )


def _forest_row(check: Check, cell: Json, axis: Axis) -> ForestRow:
    value, low, high, target = cell["value"], cell["low"], cell["high"], cell["target"] or (None, None)
    ends = [end for end in target if end is not None]
    shown = fmt.figure(value, "ratio", low, high, ends)
    interval = fmt.interval(value, low, high, ends)
    paper = _paper_alt(cell["paper"])
    parts = [f"{check.metric}{', ' + cell['label'] if cell['label'] else ''}: {shown}"]
    parts += [f"interval {interval}"] if interval else []
    parts += [f"target {fmt.target(cell['target'], 'ratio')}"] if ends else []
    parts += [paper] if paper else []
    return ForestRow(
        anchor=check_anchor(check.id),
        label=fmt.capital(check.metric),
        detail=_joined(check.id, cell["label"], "beyond the paper" if check.beyond else ""),
        value=shown,
        interval=interval,
        mark=charts.mark(axis, value, low, high, target, cell["paper"]),
        alt=", ".join(parts),
    )


def forest(results: Results) -> Forest | None:
    """Forest plot of every timed ratio, None when nothing timed has one.

    Ratios near one and ratios far from it get an axis each: beside a 9x, a 1.05x would lie on the line at 1.
    """
    found = _ratios(results)
    if not found:
        return None
    near = [item for item in found if abs(math.log(item[1]["value"])) <= math.log(_NEAR)]
    far = [item for item in found if item not in near]
    groups = [_group(title, items) for title, items in (("Near one", near), ("Far from one", far)) if items]
    columns = (
        Column("Check"),
        Column("Ratio of", wide=True),
        Column("Ratio", numeric=True),
        Column("Interval", numeric=True),
        Column("Target"),
        Column("Paper", numeric=True),
    )
    rows = tuple(
        Row(
            (
                _joined(check.id, cell["label"]),
                check.metric,
                fmt.figure(cell["value"], "ratio", cell["low"], cell["high"]),
                fmt.interval(cell["value"], cell["low"], cell["high"]),
                fmt.target(cell["target"], "ratio"),
                "" if cell["paper"] is None else fmt.plain(cell["paper"]) + fmt.TIMES,
            )
        )
        for check, cell in found
    )
    return Forest(tuple(groups), Table("Timed ratios", columns, rows))


def _observed_mib(evidence: Json) -> Iterable[tuple[str, float]]:
    """The sums behind an exact ratio, of observations whose names end in `_bytes` or `_mib`."""
    for name in evidence["reduction"]["of"]:
        suffix = _SUFFIX.search(name)
        value = evidence["observations"].get(name)
        items = value if isinstance(value, list) else [value]
        numbers = [float(item) for item in items if isinstance(item, int | float)]
        if suffix and numbers:
            total = math.fsum(numbers)
            yield exact.words(_SUFFIX.sub("", name)), total / (1.0 if suffix.group(1) == "mib" else MIB)


def _bars(record: Json) -> list[tuple[str, float, float | None]]:
    """(label, MiB, the paper's MiB) of exact evidence: byte cells, else the bytes behind the first ratio."""
    found: list[tuple[str, float, float | None]] = []
    for cell in record["cells"]:
        scale = _PER_MIB.get(cell["unit"].removesuffix("/token"))
        if scale is not None and cell["value"] is not None and cell["evidence"]["kind"] != "timed":
            paper = None if cell["paper"] is None else cell["paper"] * scale
            found.append((cell["label"] or record["id"], cell["value"] * scale, paper))
    head = record["cells"][0]["evidence"]
    if not found and head is not None and head["kind"] != "timed":
        found = [(name, value, None) for name, value in _observed_mib(head)]
    return found


def _mib(value: float) -> str:
    return f"{fmt.fixed(value, 2)}{fmt.NBSP}MiB"


def _ratio_text(record: Json) -> str:
    for cell in record["cells"]:
        if cell["unit"] == "ratio" and cell["value"] is not None:
            ends = [end for end in cell["target"] or () if end is not None]
            return fmt.figure(cell["value"], "ratio", None, None, ends)
    return ""


def bar_chart(results: Results, claim_id: str, declared: Sequence[Check]) -> BarChart | None:
    """Byte figures of a claim's exact checks, one panel a check; None when fewer than two checks have any."""
    found = []
    for check in declared:
        record = results.record(check.id)
        bars = _bars(record) if record else []
        if record and bars:
            found.append((check, record, bars))
    if len(found) < 2:
        return None
    drawn = [bar for _, _, bars in found for bar in bars]
    axis = charts.linear_axis(max(mib, paper or 0.0) for _, mib, paper in drawn)
    panels = tuple(
        Panel(
            title=fmt.capital(check.metric),
            anchor=check_anchor(check.id),
            kind=record["kind"],
            figure=_ratio_text(record),
            bars=charts.bars(axis, [(label, mib, _mib(mib), paper) for label, mib, paper in bars]),
        )
        for check, record, bars in found
    )
    rows = tuple(
        Row((check.id, record["kind"], label, _mib(mib), "" if paper is None else _mib(paper)))
        for check, record, bars in found
        for label, mib, paper in bars
    )
    texts = tuple(Column(name) for name in ("Check", "Evidence", "Of"))
    columns = (*texts, Column("Figure", numeric=True), Column("Paper", numeric=True))
    return BarChart(
        id=f"bars-{claim_id}",
        axis=axis,
        axis_alt=f"Axis in MiB from 0 to {fmt.plain(axis.high)}",
        has_paper=any(bar.paper is not None for panel in panels for bar in panel.bars),
        panels=panels,
        table=Table("Bytes, one panel a check", columns, rows),
    )
