"""Geometry of the charts: where each mark lies, in percent of the plot. Drawing is the templates' part.

Positions are percentages and sizes are pixels, so that a chart fills any width while its text and strokes
keep their size. All text stays text.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reports import format as fmt

_NICE = (1.0, 2.0, 5.0)
_MARGIN = 0.06
_SMALLEST = 1e-9


@dataclass(frozen=True)
class Tick:
    """A tick: its label, its position in percent, and where its label hangs (`start`, `middle`, `end`)."""

    label: str
    at: float
    anchor: str


@dataclass(frozen=True)
class Axis:
    """A scale from data to percent, linear or logarithmic, clamped to [0, 100]."""

    low: float
    high: float
    log: bool
    ticks: tuple[Tick, ...] = ()

    def at(self, value: float) -> float:
        """Position of `value` in percent; values beyond the ends lie on the end."""
        low, high, x = self.low, self.high, value
        if self.log:
            low, high, x = math.log(low), math.log(high), math.log(max(value, self.low * 1e-9))
        return round(min(max((x - low) / (high - low), 0.0), 1.0) * 100, 2)


def _anchor(at: float) -> str:
    return "start" if at < 4 else "end" if at > 96 else "middle"


def _ticks(axis: Axis, values: Iterable[float], decimals: int | None = None) -> tuple[Tick, ...]:
    def label(value: float) -> str:
        return fmt.fixed(value, decimals) if decimals is not None else fmt.plain(value)

    return tuple(Tick(label(v), axis.at(v), _anchor(axis.at(v))) for v in values)


def _step(span: float, most: int) -> float:
    """The smallest 1-2-5 step that cuts `span` into at most `most` parts."""
    power = 10.0 ** math.floor(math.log10(span / most))
    for factor in (*_NICE, 10.0):
        if factor * power * most >= span * (1 - 1e-9):
            return factor * power
    return 10.0 * power


def linear_axis(values: Iterable[float], most: int = 5) -> Axis:
    """A linear axis from zero to a round number at or above the largest value."""
    top = max((v for v in values if math.isfinite(v)), default=1.0)
    top = top if top > _SMALLEST else 1.0
    step = _step(top, most)
    count = math.ceil(top / step - 1e-9)
    axis = Axis(0.0, count * step, log=False)
    decimals = max(0, -math.floor(math.log10(step)))
    return Axis(axis.low, axis.high, False, _ticks(axis, (i * step for i in range(count + 1)), decimals))


def axis_between(low: float, high: float, most: int = 5) -> Axis:
    """A linear axis from `low` to `high` (above it), with round ticks inside."""
    step = _step(high - low, most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    axis = Axis(low, high, log=False)
    decimals = max(0, -math.floor(math.log10(step)))
    ticks = _ticks(axis, (index * step for index in range(first, last + 1)), decimals)
    return Axis(low, high, False, ticks)


def log_axis(values: Iterable[float], most: int = 6) -> Axis:
    """A logarithmic axis around 1 that holds every positive finite value, with round ticks and one at 1.

    Ratios near one get evenly spaced ticks (0.98, 1, 1.02); wide ranges get 1-2-5 or powers of ten.
    """
    usable = [v for v in values if math.isfinite(v) and v > 0]
    low, high = min([*usable, 1 / 1.02]), max([*usable, 1.02])
    pad = max(math.log(high / low) * _MARGIN, 0.002)
    low, high = low * math.exp(-pad), high * math.exp(pad)
    axis = Axis(low, high, log=True)
    if high / low < 3:
        step = _step(high - low, most)
        first, last = math.ceil((low - 1) / step), math.floor((high - 1) / step)
        decimals = max(0, -math.floor(math.log10(step)))
        return Axis(low, high, True, _ticks(axis, (1 + i * step for i in range(first, last + 1)), decimals))
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = _NICE if math.log10(high / low) <= most / 3 else (1.0,)
    marks = [f * 10.0**d for d in decades for f in factors if low <= f * 10.0**d <= high]
    stride = max(1, math.ceil(len(marks) / (2 * most)))
    one = marks.index(1.0) if 1.0 in marks else 0
    return Axis(low, high, True, _ticks(axis, marks[one % stride :: stride]))


def from_the_top(axis: Axis) -> tuple[Tick, ...]:
    """The ticks of an axis that stands upright: `at` counts from the top."""
    return tuple(Tick(tick.label, round(100 - tick.at, 2), tick.anchor) for tick in axis.ticks)


@dataclass(frozen=True)
class Mark:
    """One estimate on an axis, in percent: point, interval, target band, the paper's value; None: absent."""

    point: float
    low: float | None
    high: float | None
    band: tuple[float, float] | None
    paper: float | None
    one: float


def mark(
    axis: Axis,
    value: float,
    low: float | None,
    high: float | None,
    target: tuple[float | None, float | None],
    paper: float | None,
) -> Mark:
    """Place an estimate. An open end of the target reaches to the edge of the plot."""
    start, end = target
    band = None
    if start is not None or end is not None:
        band = (0.0 if start is None else axis.at(start), 100.0 if end is None else axis.at(end))
    return Mark(
        point=axis.at(value),
        low=None if low is None else axis.at(low),
        high=None if high is None else axis.at(high),
        band=band,
        paper=None if paper is None else axis.at(paper),
        one=axis.at(1.0),
    )


@dataclass(frozen=True)
class Dot:
    """One round: place in time and height from the top, in percent; kind is `valid`, `void` or `control`."""

    at: float
    top: float
    kind: str


@dataclass(frozen=True)
class RoundsChart:
    """The ratio of every round, in the order in which they ran, the interval as a band and a line at 1."""

    dots: tuple[Dot, ...]
    ticks: tuple[Tick, ...]
    band: tuple[float, float] | None
    one: float
    middle: float
    first: str
    last: str

    @property
    def has_void(self) -> bool:
        """Whether a void round is drawn."""
        return any(dot.kind == "void" for dot in self.dots)

    @property
    def has_control(self) -> bool:
        """Whether the A/A control is drawn."""
        return any(dot.kind == "control" for dot in self.dots)


def rounds_chart(
    points: Sequence[tuple[int, float, str]], value: float, low: float | None, high: float | None
) -> RoundsChart | None:
    """Chart of (sequence number, ratio, kind) points; None when fewer than two can be drawn."""
    usable = [(s, r, k) for s, r, k in points if math.isfinite(r) and r > 0]
    if len(usable) < 2 or not value > 0:
        return None
    ends = [v for v in (low, high) if v is not None]
    axis = log_axis([*(r for _, r, _ in usable), value, *ends], most=3)
    first, last = min(s for s, _, _ in usable), max(s for s, _, _ in usable)
    span = max(last - first, 1)
    dots = tuple(
        Dot(round(3 + 94 * (seq - first) / span, 1), round(100 - axis.at(ratio), 1), kind)
        for seq, ratio, kind in usable
    )
    return RoundsChart(
        dots=dots,
        ticks=from_the_top(axis),
        band=None if len(ends) < 2 else (round(100 - axis.at(ends[1]), 2), round(100 - axis.at(ends[0]), 2)),
        one=round(100 - axis.at(1.0), 2),
        middle=round(100 - axis.at(value), 2),
        first=str(first),
        last=str(last),
    )


@dataclass(frozen=True)
class Bar:
    """One bar: label, length in percent, the figure as text, and the paper's value in percent, if any."""

    label: str
    length: float
    text: str
    paper: float | None
    paper_text: str


def bars(axis: Axis, rows: Sequence[tuple[str, float, str, float | None]]) -> tuple[Bar, ...]:
    """Bars of (label, value, text, paper's value) on a linear axis."""
    return tuple(
        Bar(
            label,
            axis.at(value),
            text,
            None if paper is None else axis.at(paper),
            "" if paper is None else f"; the paper: {fmt.plain(paper)}",
        )
        for label, value, text, paper in rows
    )
