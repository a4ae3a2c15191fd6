"""Scales with round ticks, as labels that matplotlib need not format."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, Literal

from reports import charts
from reports import format as fmt

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

Which = Literal["x", "y"]

_MARGIN: Final = 0.05
_LEAST, _MOST = 1e-12, 1e15


def drawable(value: object) -> bool:
    """Whether a value is a number that has a place on a linear axis."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MOST


def on_log(value: object) -> bool:
    """Whether a value is a number that has a place on a logarithmic axis."""
    return drawable(value) and isinstance(value, int | float) and value >= _LEAST


def _set(axis: Axis, ticks: Sequence[float], labels: Sequence[str]) -> None:
    axis.set_ticks(list(ticks), labels=list(labels))
    axis.set_ticks([], minor=True)


def linear(axes: Axes, which: Which, values: Iterable[float], most: int = 5) -> None:
    """A scale from zero to a round number at or above the largest value."""
    scale = charts.linear_axis(values, most)
    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xlim if which == "x" else axes.set_ylim)(scale.low, scale.high)
    _set(axis, [scale.low + tick.at / 100 * (scale.high - scale.low) for tick in scale.ticks], _labels(scale))


def between(axes: Axes, which: Which, low: float, high: float, most: int = 5) -> None:
    """A linear scale from low to high, above it, with round ticks inside."""
    scale = charts.axis_between(low, high, most)
    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xlim if which == "x" else axes.set_ylim)(low, high)
    _set(axis, [low + tick.at / 100 * (high - low) for tick in scale.ticks], _labels(scale))


def _labels(scale: charts.Axis) -> list[str]:
    return [tick.label for tick in scale.ticks]


def logarithmic(axes: Axes, which: Which, values: Iterable[float], most: int = 7) -> None:
    """A logarithmic scale that holds every value, all of them `on_log`, with at most about `most` ticks."""
    usable = list(values) or [1.0]
    low, high = min(usable), max(usable)
    pad = max((high / low) ** _MARGIN, 1.25 if high / low < 1.5 else 1.05)
    low, high = low / pad, high * pad
    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    (axes.set_xlim if which == "x" else axes.set_ylim)(low, high)
    ticks = log_ticks(low, high, most)
    _set(axis, ticks, [fmt.plain(tick) for tick in ticks])


def ticks_at(axes: Axes, values: Sequence[float], label: Callable[[float], str], most: int = 6) -> None:
    """Ticks of the lower axis at the values themselves, in ascending order, at most so many."""
    shown = sorted(set(values))
    shown = shown[:: max(-(-len(shown) // most), 1)]
    _set(axes.xaxis, shown, [label(one) for one in shown])


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers in [low, high]: 1-2-5 where they are few enough, else powers of ten, thinned evenly."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found: list[float] = []
    for factors in ((1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0), (1.0, 2.0, 5.0), (1.0, 3.0), (1.0,)):
        found = [f * 10.0**d for d in decades for f in factors if low <= f * 10.0**d <= high]
        if len(found) <= most:
            return found
    return found[:: math.ceil(len(found) / most)]
