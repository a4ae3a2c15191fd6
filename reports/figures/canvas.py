"""The sheet that a figure is painted on: places in pixels from the top left, one look for all axes.

The axes are matplotlib's own; what this adds is the layout, which needs no measuring of text, and the key.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from reports.figures.palette import Style, colour

if TYPE_CHECKING:  # matplotlib takes a second to import, and a page without figures needs none of it
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FONT_PX: Final = 12
_GLYPH_PX: Final = 6.4
_LINE_PX: Final = 18
_SWATCH_PX: Final = 26
_GAP_PX: Final = 18
_ROW_PX: Final = 38
ROW_AT: Final = 0.66
"""Where in its row a bar or a mark lies, below the label."""


def clean(text: str) -> str:
    """One line of text that XML can hold: no control characters, and no white space but single spaces."""
    shown = (" " if one.isspace() else one for one in text)
    return " ".join("".join(one for one in shown if unicodedata.category(one) not in ("Cc", "Cs")).split())


def shortened(text: str, width_px: float) -> str:
    """The text, cut with an ellipsis where it is likely to be wider than width_px; tables hold all of it."""
    text, most = clean(text), max(int(width_px / _GLYPH_PX), 2)
    return text if len(text) <= most else text[: most - 1].rstrip() + "\u2026"


@dataclass(frozen=True)
class Entry:
    """One entry of a key. line: a matplotlib line style, empty for none. bar: a filled field, no mark."""

    label: str
    colour: str
    marker: str = ""
    line: str = ""
    hollow: bool = False
    bar: bool = False


def entry(label: str, style: Style, line: str = "-") -> Entry:
    """The entry of a series that is drawn as marks on a line."""
    return Entry(label, style.colour, style.marker, line)


def mark(style: Style | Entry, hollow: bool = False) -> dict[str, Any]:
    """Arguments of Axes.plot for marks of a style; hollow ones decide nothing."""
    ink = colour(style.colour)
    return {
        "color": ink,
        "marker": style.marker,
        "markersize": 7,
        "markerfacecolor": colour("paper") if hollow else ink,
        "markeredgecolor": ink if hollow else colour("paper"),
        "markeredgewidth": 1.5 if hollow else 1.0,
        "clip_on": False,
    }


class Canvas:
    """An empty sheet of a given width; `panels` gives it its height.

    Attributes:
        width, height: in pixels. narrow: whether it is the drawing for a narrow column.
        figure: of matplotlib, 72 dots per inch, so that a point is a pixel.
    """

    def __init__(self, width: int, narrow: bool) -> None:
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure

        self.width, self.height, self.narrow = width, 0, narrow
        self.figure: Figure = Figure(dpi=72)
        FigureCanvasSVG(self.figure)
        self._corners: dict[Axes, tuple[float, float]] = {}

    def panels(
        self,
        key: Sequence[Entry] = (),
        *,
        titles: Sequence[str] = ("",),
        columns: int = 1,
        height: int = 280,
        left: int = 48,
        right: int = 16,
        above: int = 30,
        below: int = 44,
    ) -> list[Axes]:
        """Axes below the key, one a title, in rows of `columns`; called once, it sets the sheet's height.

        Args:
            titles: above each panel, in bold; an empty one takes no room.
            height: of the plot of one panel. left, right: room beside it.
            above, below: room for the label of the upright axis, and for the labels of the other.
        """
        places, key_px = self._key_places(key)
        above += _LINE_PX if any(titles) else 0
        columns = min(columns, len(titles))
        rows = -(-len(titles) // columns)
        one_px = above + height + below
        self.height = key_px + rows * one_px
        self.figure.set_size_inches(self.width / 72, self.height / 72)
        for item, (x, y) in zip(key, places, strict=True):
            self._key_entry(item, x, y)
        made = []
        for index, title in enumerate(titles):
            row, column = divmod(index, columns)
            x = column * self.width / columns
            y = key_px + row * one_px + above
            axes = self._axes(x + left, y, self.width / columns - left - right, height)
            self._corners[axes] = (x, y)
            made.append(axes)
            if title:
                room = self.width / columns - right
                self.text(x, y - above + 10, shortened(title, room), "ink", weight="bold")
        return made

    def rows(self, key: Sequence[Entry], labels: Sequence[str], right: int) -> Axes:
        """Axes with a row for each label, which stands above it; what is drawn of row i lies at i + ROW_AT.

        right: room beside the plot, for figures.
        """
        height = len(labels) * _ROW_PX
        (axes,) = self.panels(key, height=height, left=10, right=right, above=6)
        axes.set_ylim(len(labels), 0)
        axes.yaxis.set_ticks([])
        for index, text in enumerate(labels):
            y = self.height - 44 - height + index * _ROW_PX + 10
            ground = {"facecolor": colour("paper"), "edgecolor": "none", "pad": 1}
            self.text(10, y, shortened(text, self.width - 20), "ink", bbox=ground)
        return axes

    def label(self, axes: Axes, below: str, above: str) -> None:
        """What the two axes measure: one under the plot, the other over it, where it needs no turning."""
        axes.set_xlabel(clean(below), color=colour("soft"), fontsize=FONT_PX, labelpad=6)
        x, y = self._corners[axes]
        if above:
            self.text(x, y - 16, above)

    def text(self, x: float, y: float, text: str, ink: str = "soft", **options: Any) -> None:
        """Text that begins at (x, y), pixels from the top left to its middle height."""
        places = {"ha": "left", "va": "center"} | options
        self.figure.text(x / self.width, 1 - y / self.height, clean(text), color=colour(ink), **places)

    def _axes(self, x: float, y: float, width: float, height: float) -> Axes:
        box = (x / self.width, 1 - (y + height) / self.height, width / self.width, height / self.height)
        axes = self.figure.add_axes(box)
        axes.set_axisbelow(True)
        axes.grid(True, color=colour("rule"), linewidth=1)
        axes.tick_params(length=0, pad=6, labelsize=FONT_PX, labelcolor=colour("soft"))
        for side, spine in axes.spines.items():
            spine.set_visible(side == "bottom")
            spine.set_color(colour("rule-strong"))
        return axes

    def _key_places(self, key: Sequence[Entry]) -> tuple[list[tuple[float, float]], int]:
        """Where the entries go, line after line, and the height of all."""
        x, y, places = 0.0, _LINE_PX / 2, []
        for item in key:
            need = _SWATCH_PX + _GLYPH_PX * len(shortened(item.label, self.width - _SWATCH_PX))
            if x and x + need > self.width:
                x, y = 0.0, y + _LINE_PX
            places.append((x, y))
            x += need + _GAP_PX
        return places, int(y + _LINE_PX / 2) + 6 if key else 0

    def _key_entry(self, item: Entry, x: float, y: float) -> None:
        from matplotlib.lines import Line2D
        from matplotlib.patches import Rectangle
        from matplotlib.transforms import IdentityTransform

        pixels: dict[str, Any] = {"transform": IdentityTransform()}
        up = self.height - y
        if item.bar:
            field = Rectangle((x, up - 5), 18, 10, facecolor=colour(item.colour), edgecolor="none", **pixels)
            self.figure.add_artist(field)
        if item.line:
            line = Line2D(
                [x, x + 18], [up, up], color=colour(item.colour), **pixels | {"linestyle": item.line}
            )
            self.figure.add_artist(line)
        if item.marker:
            self.figure.add_artist(Line2D([x + 9], [up], linestyle="", **mark(item, item.hollow), **pixels))
        self.text(x + _SWATCH_PX, y, shortened(item.label, self.width - _SWATCH_PX))
