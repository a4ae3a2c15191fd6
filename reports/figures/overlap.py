"""Claim 7: what staging reads gains, measured and modelled, against the ratio of computing to reading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from harness.results import Results
from reports import format as fmt
from reports.figures import found, scales
from reports.figures.canvas import Canvas, Entry, mark
from reports.figures.found import Json
from reports.figures.palette import Style, colour
from reports.figures.svg import draw
from reports.model import Column, Figure, Row, Table

Terms = tuple[tuple[float, float], ...]
"""Paths: (share of the computing, share of the reading); the longest is the time."""

_RATIO, _FORMULA, _MODEL = "7.overlap_ratio", "7.overlap_quotient", "7.overlap_staged"
_GAINS: Final = ("7.overlap_gain", "7.overlap_wash", "7.overlap_speedup")
"""Where a cell's speed-up stands: a verdict comes before what is only recorded."""
_TIERS: Final = (
    ("500 MB/s emulated", Style("s1", "o")),
    ("2,000 MB/s emulated", Style("s3", "s")),
    ("native", Style("s4", "^")),
    ("other tiers", Style("s2", "D")),
)
_HIGHEST: Final = 2.5
"""Of the upright axis. No overlap of two things gains more than 2; wider bars are cut, the table has them."""
_STEPS: Final = 96


@dataclass(frozen=True)
class _Interval:
    value: float
    low: float | None
    high: float | None

    @property
    def text(self) -> str:
        return fmt.figure(self.value, "ratio", self.low, self.high)

    @property
    def span(self) -> str:
        return fmt.interval(self.value, self.low, self.high)


@dataclass(frozen=True)
class _Cell:
    """x: computing over reading. y: staged over sync. doubtful: nothing may be concluded from it."""

    label: str
    x: _Interval
    y: _Interval
    tier: int
    verdict: str
    doubtful: bool


def _interval(cell: Json) -> _Interval | None:
    value, low, high = (
        cell[name] if scales.on_log(cell[name]) else None for name in ("value", "low", "high")
    )
    return None if value is None else _Interval(value, low, high)


def _tier(label: str) -> int:
    return next((i for i, (name, _) in enumerate(_TIERS) if label.startswith(f"{name},")), len(_TIERS) - 1)


def _cells(results: Results) -> list[_Cell]:
    gains: dict[str, Json] = {}
    for check in _GAINS:
        for cell in found.cells(results, check):
            gains.setdefault(cell["label"], cell)
    made = []
    for cell in found.cells(results, _RATIO):
        gain = gains.get(cell["label"])
        x, y = _interval(cell), None if gain is None else _interval(gain)
        if gain is not None and x is not None and y is not None:
            doubts = [
                *(cell["summary"] or {}).get("reasons", ()),
                *(gain["summary"] or {}).get("reasons", ()),
            ]
            verdict = gain["verdict"] or "recorded"
            doubtful = verdict == "INCONCLUSIVE" or (gain["verdict"] is None and bool(doubts))
            made.append(_Cell(cell["label"], x, y, _tier(cell["label"]), verdict, doubtful))
    return sorted(made, key=lambda one: one.x.value)


def _terms(paths: Any) -> Terms:
    """Paths of a stored figure; empty when they are none."""
    terms = paths.get("terms") if isinstance(paths, dict) else None
    if not isinstance(terms, list) or not terms:
        return ()
    pairs = [
        one for one in terms if isinstance(one, list) and len(one) == 2 and all(map(scales.drawable, one))
    ]
    sound = len(pairs) == len(terms) and all(a + b > 0 and min(a, b) >= 0 for a, b in pairs)
    return tuple((float(a), float(b)) for a, b in pairs) if sound else ()


def _stored(results: Results, check: str, *names: str) -> Terms:
    """Paths that a check's figure names, of the first cell that holds any."""
    for cell in found.cells(results, check):
        item: Any = cell["evidence"].get("figure")
        for name in names:
            item = item.get(name) if isinstance(item, dict) else None
        if terms := _terms(item):
            return terms
    return ()


def _gain(terms: Terms, ratio: float) -> float:
    """(C + IO) over the longest path, C = ratio, IO = 1."""
    return (ratio + 1) / max(a * ratio + b for a, b in terms)


def _curve(low: float, high: float) -> list[float]:
    """Ratios from low to high, evenly on a logarithmic axis, and 1, where the models have their edge."""
    step = (high / low) ** (1 / _STEPS)
    return sorted({*(low * step**index for index in range(_STEPS + 1)), *((1.0,) if low < 1 < high else ())})


def _paper(results: Results) -> float | None:
    papers = (cell["paper"] for check in _GAINS for cell in found.cells(results, check))
    return next((float(paper) for paper in papers if scales.on_log(paper)), None)


def _table(cells: Sequence[_Cell], model: Terms, formula: Terms) -> Table:
    def modelled(terms: Terms, one: _Cell) -> str:
        return fmt.figure(_gain(terms, one.x.value), "ratio") if terms else ""

    rows = tuple(
        Row(
            (
                one.label,
                one.x.text,
                one.x.span,
                one.y.text,
                one.y.span,
                modelled(model, one),
                modelled(formula, one),
                one.verdict + (", doubtful" if one.doubtful and one.verdict == "recorded" else ""),
            )
        )
        for one in cells
    )
    numbers = ("C / IO", "Interval", "Speed-up", "Interval", "Model with fill", "Paper\u2019s formula")
    columns = (Column("Cell"), *(Column(name, numeric=True) for name in numbers), Column("Verdict"))
    return Table("Staged over sync, by computing over reading", columns, rows)


def _alt(cells: Sequence[_Cell], model: Terms, formula: Terms, paper: float | None) -> str:
    parts = []
    for one in cells:
        promised = f", the model {fmt.figure(_gain(model, one.x.value), 'ratio')}" if model else ""
        doubt = ", hollow: nothing may be concluded" if one.doubtful else ""
        span = f" ({one.y.span})" if one.y.span else ""
        parts.append(f"{one.label}: C / IO {one.x.text}, speed-up {one.y.text}{span}{promised}{doubt}")
    best = [
        f"the {name} is highest, {fmt.figure(_gain(terms, 1.0), 'ratio')}, where both take as long"
        for name, terms in (("model", model), ("paper\u2019s formula", formula))
        if terms
    ]
    parts += best
    if paper is not None:
        parts.append(
            f"the paper: up to {fmt.plain(paper)}{fmt.TIMES} on an NVMe server, a wash on a SATA desktop"
        )
    return ". ".join(fmt.capital(part) for part in parts) + "."


def overlap(results: Results) -> Figure | None:
    """Speed-up of staged reads against C / IO; None when no cell has both."""
    cells = _cells(results)
    if not cells:
        return None
    model = _stored(results, _MODEL, "reference")
    formula = _stored(results, _FORMULA, "expected", "below")
    paper = _paper(results)
    doubts = any(one.doubtful for one in cells)

    def paint(canvas: Canvas) -> None:
        key = [
            Entry(name, s.colour, s.marker)
            for i, (name, s) in enumerate(_TIERS)
            if any(c.tier == i for c in cells)
        ]
        key += [Entry("model with fill", "ink", line="-")] if model else []
        key += [Entry("paper\u2019s formula", "faint", line="--")] if formula else []
        key += (
            [Entry("paper\u2019s figure, at no stated C/IO", "mark", line=":")] if paper is not None else []
        )
        key += [Entry("nothing may be concluded", "soft", "o", hollow=True)] if doubts else []
        (axes,) = canvas.panels(key, height=260)
        ratios = [v for one in cells for v in (one.x.value, one.x.low, one.x.high) if v is not None]
        scales.logarithmic(axes, "x", [*ratios, 1.0], most=4 if canvas.narrow else 8)
        highest = min(
            max(1.0, *(v for one in cells for v in (one.y.value, one.y.high) if v is not None)), _HIGHEST
        )
        lowest = max(min(1.0, *(v for one in cells for v in (one.y.value, one.y.low) if v is not None)), 0.5)
        scales.between(axes, "y", min(lowest, 0.9) - 0.05, max(highest, 2.1))
        axes.axhline(1, color=colour("ink"), linewidth=1)
        xs = _curve(*axes.get_xlim())
        for terms, ink, line in ((formula, "faint", "--"), (model, "ink", "-")):
            if terms:
                axes.plot(xs, [_gain(terms, x) for x in xs], color=colour(ink), linestyle=line, linewidth=1.5)
        if paper is not None:
            axes.axhline(paper, color=colour("mark"), linestyle=":", linewidth=1.5)
        for one in cells:
            _draw_cell(axes, one)
        canvas.label(
            axes, "computing over reading, C / IO", f"staged over sync, {fmt.TIMES} tokens per second"
        )

    title = "What staging gains, against C / IO"
    alt = _alt(cells, model, formula, paper)
    wide, narrow = draw("figure-overlap", title, alt, paint)
    caption = (
        "C is what a token computes, IO what reading its experts alone takes; a cell hit the ratio that it "
        "did. Above 1 staged reads are faster. Bars are intervals, of C / IO, too; where they leave the plot "
        "they are cut, and whole in the table. The model pays one step of a token to fill its pipeline, the "
        "paper\u2019s formula, (C + IO) / max(C, IO), does not."
    )
    return Figure("figure-overlap", title, caption, alt, _table(cells, model, formula), wide, narrow)


def _draw_cell(axes: Any, one: _Cell) -> None:
    style = _TIERS[one.tier][1]
    bar = {"color": colour(style.colour), "linewidth": 1.5}
    if one.x.low is not None and one.x.high is not None:
        axes.plot([one.x.low, one.x.high], [one.y.value] * 2, **bar)
    if one.y.low is not None and one.y.high is not None:
        axes.plot([one.x.value] * 2, [one.y.low, one.y.high], **bar)
    axes.plot(
        [one.x.value], [one.y.value], linestyle="", **mark(style, hollow=one.doubtful) | {"clip_on": True}
    )
