"""Quality: how the log perplexity of each architecture fell while it was trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from harness.results import Results
from reports import format as fmt
from reports.figures import found, scales
from reports.figures.canvas import Canvas, entry, mark
from reports.figures.found import Json
from reports.figures.palette import styles
from reports.figures.svg import draw
from reports.model import Column, Figure, Row, Table

_CHECK: Final = "quality.perplexity"
_MARGIN: Final = 0.06


@dataclass(frozen=True)
class _Curve:
    """One arm. points: steps, and the mean of its runs. complete: none of its runs is missing."""

    label: str
    points: tuple[tuple[float, float], ...]
    complete: bool


def _curve(cell: Json) -> _Curve:
    pairs = found.series(cell, "step", "validation_log_perplexity")
    seeds = cell["evidence"].get("observations", {}).get("seed")
    runs, planned = len(seeds) if isinstance(seeds, list) else 0, found.given(cell, "seeds planned")
    complete = str(runs) == planned
    label = cell["label"] if complete else f"{cell['label']} ({runs} of {planned or 'unknown'} runs)"
    return _Curve(label, tuple(sorted((x, y) for x, y in pairs)), complete)


def _alt(curves: list[_Curve]) -> str:
    said = []
    for one in curves:
        (first, high), (last, low) = one.points[0], one.points[-1]
        said.append(f"{one.label}: {_log(high)} at step {_step(first)}, {_log(low)} at step {_step(last)}")
    return ". ".join(fmt.capital(part) for part in said) + "."


def _log(value: float) -> str:
    return fmt.fixed(value, 3) if abs(value) < 1000 else fmt.plain(value)


def _step(value: float) -> str:
    return fmt.fixed(value, 0)


def _table(curves: list[_Curve]) -> Table:
    values = [dict(one.points) for one in curves]
    rows = tuple(
        Row((_step(x), *(_log(one[x]) if x in one else "" for one in values)))
        for x in sorted({x for one in values for x in one})
    )
    columns = (Column("Step", numeric=True), *(Column(one.label, numeric=True) for one in curves))
    return Table("Log perplexity of the validation text, nats per token", columns, rows)


def training(results: Results) -> Figure | None:
    """Validation log perplexity against steps, a curve an architecture; None when the run holds none."""
    cells = found.cells(results, _CHECK)
    curves = [curve for curve in map(_curve, cells) if curve.points]
    if not curves:
        return None
    steps = [x for one in curves for x, _ in one.points]
    logs = [y for one in curves for _, y in one.points]
    room = _MARGIN * ((max(logs) - min(logs)) or abs(max(logs)) or 1.0)

    def paint(canvas: Canvas) -> None:
        looks = list(zip(curves, styles(), strict=False))
        (axes,) = canvas.panels([entry(one.label, style) for one, style in looks], height=260)
        scales.linear(axes, "x", steps, most=4 if canvas.narrow else 8)
        scales.between(axes, "y", min(logs) - room, max(logs) + room)
        for one, style in looks:
            places = [x for x, _ in one.points], [y for _, y in one.points]
            axes.plot(*places, **mark(style, hollow=not one.complete))
        canvas.label(axes, "step of training", "log perplexity, nats per token")

    title = "Log perplexity while training"
    alt = _alt(curves)
    wide, narrow = draw("figure-training", title, alt, paint)
    scale = found.given(cells[0], "scale")
    caption = (
        f"Of the validation text, the mean over the runs of an architecture; {scale or 'of unknown scale'}. "
        "Hollow marks: runs are missing. Differences between architectures are judged on the test text, in "
        "pairs of runs, not here."
    )
    return Figure("figure-training", title, caption, alt, _table(curves), wide, narrow)
