"""Drawings inside a page: what matplotlib writes, cleaned, and the palette behind it."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

import reports
from reports.figures.canvas import Canvas, Entry, clean, shortened
from reports.figures.palette import MARKERS, NAMES, SERIES, colour, styles
from reports.figures.svg import WIDTHS_PX, draw
from tests.reports.figures.made import EVIL

STYLE = Path(reports.__file__).parent / "templates" / "style.css.j2"


def paint(canvas: Canvas) -> None:
    """Every piece that a figure may use."""
    key = [Entry(EVIL, "s1", "o", "-"), Entry("b", "s2", bar=True), Entry("c", "mark", "D", hollow=True)]
    first, second = canvas.panels(key, titles=("one", EVIL), columns=2)
    first.plot([1, 2, 3], [3, 1, 2], color=colour("s1"), marker="o")
    first.fill_between([1, 3], [0, 0], [1, 2], color=colour("spread"))
    second.barh([0, 1], [1, 2], color=colour("s2"))
    second.text(1, 1, 'id="a" #fe0001 url(#b)', color=colour("ink"))
    canvas.label(first, EVIL, "$y$")


def test_drawings_are_the_same_every_time_and_share_no_id() -> None:
    first = draw("figure-a", "a", "b", paint)
    assert draw("figure-a", "a", "b", paint) == first
    drawings = (*first, *draw("figure-b", "a", "b", paint))
    parsed = [ElementTree.fromstring(drawing) for drawing in drawings]
    ids = [one.attrib["id"] for root in parsed for one in root.iter() if "id" in one.attrib]
    assert len(ids) > 8 and len(ids) == len(set(ids))


def test_text_stays_text_and_is_never_markup() -> None:
    wide, narrow = draw("figure-a", EVIL, EVIL, paint)
    for drawing, kind in ((wide, "wide"), (narrow, "narrow")):
        root = ElementTree.fromstring(drawing)
        assert root.attrib["viewBox"].startswith(f"0 0 {WIDTHS_PX[kind]} ")
        assert "script" not in {one.tag for one in root.iter()} and "style" not in {
            one.tag for one in root.iter()
        }
        assert root[0].text == root[1].text == clean(EVIL)
        shown = ["".join(one.itertext()) for one in root.iter("text")]
        assert 'id="a" #fe0001 url(#b)' in shown and "$y$" in shown
        assert sum("$x_1$" in one for one in shown) >= (1 if kind == "narrow" else 2)
        assert all(len(one) <= len(clean(EVIL)) for one in shown)
        assert "font-family" not in drawing and "http" not in drawing


def test_marks_of_a_series_say_their_colours_once() -> None:
    def marks(canvas: Canvas) -> None:
        (axes,) = canvas.panels()
        axes.plot(range(50), range(50), color=colour("s1"), marker="o", linestyle="")
        axes.vlines(range(50), 0, 10, colors=colour("s2"))

    wide, _ = draw("figure-a", "a", "b", marks)
    root = ElementTree.fromstring(wide)
    assert len(list(root.iter("use"))) >= 50
    assert wide.count("var(--s1)") < 5 and wide.count("var(--s2)") == 1
    group = next(one for one in root.iter("g") if "--s2" in one.get("style", ""))
    assert len(group) == 50 and not any("style" in one.attrib for one in group)


def test_every_colour_is_a_variable_of_the_page() -> None:
    wide, _ = draw("figure-a", "a", "b", paint)
    attributes = [v for one in ElementTree.fromstring(wide).iter() for v in one.attrib.values()]
    assert not [value for value in attributes if re.search("#[0-9a-f]{6}", value)]
    used = {name for value in attributes for name in re.findall(r"var\(--([\w-]+)\)", value)}
    assert {"s1", "s2", "mark", "soft", "spread"} <= used <= set(NAMES)
    with pytest.raises(KeyError):
        colour("s99")


def palettes() -> list[dict[str, tuple[float, float, float]]]:
    """Linear RGB of every palette of the style sheet: light, dark, print."""

    def linear(digits: str) -> tuple[float, float, float]:
        digits = "".join(2 * one for one in digits) if len(digits) == 3 else digits
        parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
        red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return red, green, blue

    blocks = re.findall(r":root \{(.*?)\}", STYLE.read_text(encoding="utf-8"), re.S)
    return [{k: linear(v) for k, v in re.findall(r"--([\w-]+): #(\w+);", block)} for block in blocks]


def test_series_stand_out_from_the_page() -> None:
    for palette in palettes():
        assert set(NAMES) <= set(palette)
        for name in SERIES:
            bright = [0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in (palette[name], palette["paper"])]
            assert (max(bright) + 0.05) / (min(bright) + 0.05) >= 3, name


# Machado, Oliveira, Fernandes 2009, severity 1: what eyes without long or medium cones see of linear RGB.
PROTAN = ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998))
DEUTAN = ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881))
ALL = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


def seen_by(eyes: tuple[tuple[float, ...], ...], rgb: tuple[float, ...]) -> tuple[float, ...]:
    """Linear RGB as those eyes see it."""
    mixed = (sum(m * c for m, c in zip(row, rgb, strict=True)) for row in eyes)
    return tuple(min(max(value, 0), 1) for value in mixed)


def lab(rgb: tuple[float, ...]) -> tuple[float, float, float]:
    """CIE Lab of linear RGB, D65."""
    matrix = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    xyz = [sum(a * b for a, b in zip(row, rgb, strict=True)) for row in matrix]
    x, y, z = (
        (v / w) ** (1 / 3) if v / w > 0.008856 else 7.787 * max(v / w, 0) + 16 / 116
        for v, w in zip(xyz, (0.9505, 1.0, 1.089), strict=True)
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("eyes", [ALL, PROTAN, DEUTAN], ids=["all cones", "protanopia", "deuteranopia"])
def test_series_can_be_told_apart(eyes: tuple[tuple[float, ...], ...]) -> None:
    for palette in palettes():
        seen = [lab(seen_by(eyes, palette[name])) for name in SERIES]
        for (one, a), (other, b) in itertools.combinations(zip(SERIES, seen, strict=True), 2):
            distance = sum((p - q) ** 2 for p, q in zip(a, b, strict=True)) ** 0.5
            assert distance > 20, (one, other, distance)


def test_no_two_series_look_alike() -> None:
    first = list(itertools.islice(styles(), len(SERIES) * len(MARKERS)))
    assert len(set(first)) == len(first)


def test_labels_are_cut_and_cleaned() -> None:
    assert clean(" a\n\tb\x00\x1bc\ud800 ") == "a bc"
    assert shortened("short", 200) == "short"
    assert len(shortened("x" * 500, 100)) < 20 and shortened("x" * 500, 100).endswith("\u2026")
    assert shortened("ab", 0) == "ab"
