"""End to end: the weight bytes of a token by stream, of every model and engine that decoded in the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from harness.results import Results
from reports import format as fmt
from reports.figures import arms, found, scales
from reports.figures.canvas import ROW_AT, Canvas, Entry
from reports.figures.palette import colour
from reports.figures.svg import draw
from reports.model import Column, Figure, Row, Table

_CHECKS: Final = ("e2e.ranking", "e2e.same_moe", "1.time", "4.time", "7.time")
_SHADES: Final = dict(zip(arms.STREAMS, ("s1", "s5", "s2", "s4", "s3"), strict=True))
_WHOLE: Final = "not counted by stream"
_MOST_BARS: Final = 12


@dataclass(frozen=True)
class _Token:
    """MB of a token by stream, in the order of the engine; one part when the engine does not split them."""

    label: str
    parts: dict[str, float]

    @property
    def total(self) -> float:
        return sum(self.parts.values())


def _tokens(results: Results) -> list[_Token]:
    made: dict[tuple[str, float], _Token] = {}
    for check in _CHECKS:
        for cell in found.cells(results, check):
            for name in arms.names(cell):
                parts = arms.stream_bytes(cell, name)
                whole = arms.work_bytes(cell, name)
                if not parts and whole:
                    parts = {_WHOLE: whole}
                parts = {stream: size / 1e6 for stream, size in parts.items() if scales.on_log(size)}
                if parts:
                    where = "" if check.startswith("e2e") else f"claim {check[0]}, {cell['label']}: "
                    one = _Token(where + name, parts)
                    made.setdefault((name, round(one.total, 6)), one)
    return list(made.values())


def _mb(value: float) -> str:
    return f"{fmt.fixed(value, 1)}{fmt.NBSP}MB"


def _alt(tokens: list[_Token]) -> str:
    said = []
    for one in tokens:
        parts = fmt.series([f"{stream} {_mb(size)}" for stream, size in one.parts.items()])
        said.append(f"{one.label}: {_mb(one.total)} a token, {parts}")
    return found.sentences(said)


def _table(tokens: list[_Token]) -> Table:
    streams = [name for name in (*arms.STREAMS, _WHOLE) if any(name in one.parts for one in tokens)]
    rows = tuple(
        Row(
            (one.label, *(fmt.fixed(one.parts[s], 3) if s in one.parts else "" for s in streams))
            + (fmt.fixed(one.total, 3),)
        )
        for one in tokens
    )
    numbers = (Column(fmt.capital(name), numeric=True) for name in (*streams, "all"))
    return Table("MB of weights per token", (Column("Of"), *numbers), rows)


def streams(results: Results) -> Figure | None:
    """Stacked bars, the first twelve; None when no decode was timed."""
    tokens = _tokens(results)
    if not tokens:
        return None
    drawn = tokens[:_MOST_BARS]

    def paint(canvas: Canvas) -> None:
        shades = _SHADES | {_WHOLE: "bar"}
        key = [Entry(name, shade, bar=True) for name, shade in shades.items()]
        key = [one for one in key if any(one.label in token.parts for token in drawn)]
        axes = canvas.rows(key, [one.label for one in drawn], right=84)
        scales.linear(axes, "x", [one.total for one in drawn], most=4 if canvas.narrow else 8)
        starts = [0.0] * len(drawn)
        for name, shade in shades.items():
            sizes = [one.parts.get(name, 0.0) for one in drawn]
            rows = [index for index, size in enumerate(sizes) if size]
            axes.barh(
                [row + ROW_AT for row in rows],
                [sizes[row] for row in rows],
                height=0.36,
                left=[starts[row] for row in rows],
                color=colour(shade),
                edgecolor=colour("paper"),
                linewidth=1,
            )
            starts = [start + size for start, size in zip(starts, sizes, strict=True)]
        for index, one in enumerate(drawn):
            axes.annotate(
                _mb(one.total),
                (one.total, index + ROW_AT),
                xytext=(8, 0),
                textcoords="offset pixels",
                va="center",
                color=colour("soft"),
            )
        canvas.label(axes, "MB of weights per token", "")

    title = "Weight bytes of a token by stream"
    alt = _alt(tokens)
    wide, narrow = draw("figure-streams", title, alt, paint)
    caption = (
        "Counted by the workers where they load. Other engines count no streams: "
        "theirs are the file\u2019s bytes."
    )
    caption += found.left_out(len(tokens), _MOST_BARS)
    return Figure("figure-streams", title, caption, alt, _table(tokens), wide, narrow)
