"""What matplotlib draws, as SVG to stand inside a page: twice, for a wide and for a narrow column.

Text stays text, in the fonts of the page; colours become CSS variables; ids that something refers to are
made unique by the figure's own id, all others go; coordinates keep two decimals. The same figure gives the
same bytes.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Final
from xml.etree import ElementTree

from markupsafe import Markup

from reports.figures.canvas import FONT_PX, Canvas, clean
from reports.figures.palette import variables

Paint = Callable[[Canvas], None]

WIDTHS_PX: Final = {"wide": 880, "narrow": 360}
_NO_METADATA: Final = {"Date": None, "Creator": None, "Format": None, "Type": None}
_OPTIONS: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "cflow-claims",
    "text.parse_math": False,  # a dollar sign in a label is a dollar sign
    "font.size": FONT_PX,
}
_DECIMAL: Final = re.compile(r"-?\d+\.\d+")
_NUMERIC: Final = frozenset({"d", "x", "y", "width", "height", "transform"})
_REFERENCE: Final = re.compile(r"^(?:url\()?#([^)]+)\)?$")
_DROPPED: Final = ("font-family:", f"font-size: {FONT_PX}px")


def draw(figure_id: str, title: str, alt: str, paint: Paint) -> tuple[Markup, Markup]:
    """The drawing for a wide and for a narrow column.

    Args:
        figure_id: prefix of every id in the drawings, unique in the page.
        title, alt: name of the drawing, and all that it shows, in words.
        paint: called once for each width, with an empty canvas.
    """
    wide, narrow = (_drawing(f"{figure_id}-{kind}", kind, title, alt, paint) for kind in WIDTHS_PX)
    return wide, narrow


def _drawing(prefix: str, kind: str, title: str, alt: str, paint: Paint) -> Markup:
    import matplotlib  # here: a page without figures should not wait a second for it

    written = io.StringIO()
    with warnings.catch_warnings(), matplotlib.rc_context(_OPTIONS):
        # What matplotlib's own font lacks, the browser's fonts have.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        canvas = Canvas(WIDTHS_PX[kind], narrow=kind == "narrow")
        paint(canvas)
        canvas.figure.savefig(written, format="svg", metadata=_NO_METADATA, transparent=True)
    root = ElementTree.fromstring(written.getvalue())
    pieces = (ElementTree.tostring(one, encoding="unicode") for one in _cleaned(root, prefix))
    return Markup(
        '<svg class="plot-{kind}" role="img" viewBox="0 0 {width} {height}" '
        'aria-label="{title}" aria-describedby="{prefix}-d">'
        '<title>{title}</title><desc id="{prefix}-d">{alt}</desc>\n{drawn}</svg>'
    ).format(
        kind=kind,
        width=canvas.width,
        height=canvas.height,
        prefix=prefix,
        title=clean(title),
        alt=clean(alt),
        drawn=Markup("\n".join(pieces)),
    )


def _cleaned(root: ElementTree.Element, prefix: str) -> list[ElementTree.Element]:
    """The elements that draw, without namespaces, wrappers that say nothing, and matplotlib's style sheet."""
    referred = {found[1] for one in root.iter() for value in one.attrib.values() if (found := _target(value))}
    colours = variables()
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.text, element.tail = (element.text or "").strip() or None, None
        attributes = {name.rpartition("}")[2]: value for name, value in element.attrib.items()}
        element.attrib.clear()
        for name, value in attributes.items():
            if name == "id":
                value = f"{prefix}-{value}" if value in referred else ""
            elif found := _target(value):
                value = value.replace(found[1], f"{prefix}-{found[1]}")
            elif name == "style":
                value = _style(value, colours)
            elif name in _NUMERIC:
                value = _DECIMAL.sub(_two_decimals, " ".join(value.split()))
            if value and not value.startswith("rotate(-0"):
                element.set(name, value)
    return [one for child in root for one in _without_wrappers(child)]


def _target(value: str) -> re.Match[str] | None:
    """The id that an attribute's value refers to, as group 1."""
    return _REFERENCE.match(value)


def _two_decimals(found: re.Match[str]) -> str:
    return f"{round(float(found[0]), 2):g}" if abs(float(found[0])) < 10_000 else found[0]


def _style(value: str, colours: dict[str, str]) -> str:
    """Declarations with CSS variables for colours; fonts are the page's."""
    kept = []
    for one in value.split("; "):
        name, _, said = one.partition(": ")
        if not one.startswith(_DROPPED):
            kept.append(f"{name}:{colours.get(said, said)}")
    return ";".join(kept)


def _without_wrappers(element: ElementTree.Element) -> Iterator[ElementTree.Element]:
    children = [one for child in element for one in _without_wrappers(child)]
    if element.tag == "style" or (element.tag in ("g", "defs") and not children):
        return
    if element.tag == "g":
        _share(element, children)
    if element.tag == "g" and not element.attrib:
        yield from children
        return
    element[:] = children
    yield element


def _share(group: ElementTree.Element, children: list[ElementTree.Element]) -> None:
    """Says once what all children of a group say alike, as the marks of a series do."""
    for name in ("style", "clip-path"):
        values = {one.get(name) for one in children}
        value = next(iter(values), None)
        # Of a group, opacity means another thing than of each of its members.
        if (
            len(children) > 1
            and len(values) == 1
            and value
            and "opacity" not in value
            and name not in group.attrib
        ):
            group.set(name, value)
            for one in children:
                del one.attrib[name]
