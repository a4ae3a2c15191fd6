"""Colours and marks of the figures: names of CSS variables, so that light, dark and print work.

Matplotlib knows no CSS variable: each name has a stand-in colour here that nothing else uses, and `svg.py`
puts `var(--name)` in its place. The values stand in `style.css.j2`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

SERIES: Final = ("s1", "s2", "s3", "s4", "s5", "s6")
"""Colours of data: hues near those of Okabe and Ito; lightness keeps them apart where cones are missing."""
NAMES: Final = (
    *SERIES,
    "ink",
    "soft",
    "faint",
    "rule",
    "rule-strong",
    "paper",
    "mark",
    "bar",
    "spread",
    "band",
)
"""All that a figure may use; those after the series are the colours of the page."""
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")
"""As many as a multiple of no colour: series differ by shape where they share a colour."""
_STAND_INS: Final = {name: f"#fe{index:02x}01" for index, name in enumerate(NAMES)}


def colour(name: str) -> str:
    """What stands for the CSS variable `name` while matplotlib draws. Raises KeyError for other names."""
    return _STAND_INS[name]


def variables() -> dict[str, str]:
    """The CSS text in whose place each stand-in colour stands."""
    return {stand_in: f"var(--{name})" for name, stand_in in _STAND_INS.items()}


@dataclass(frozen=True)
class Style:
    """Colour (a name) and mark of one series."""

    colour: str
    marker: str


def styles() -> Iterator[Style]:
    """A style for each series, without end: 42 differ, then they come again."""
    yield from map(Style, itertools.cycle(SERIES), itertools.cycle(MARKERS))
