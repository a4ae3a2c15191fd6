"""L1 misses against columns: drawn from the observations, whatever they hold."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reports.figures.l1 import l1
from tests.reports.figures.made import EVIL, FEW, NUMBERS, assert_sound, cell, run, texts

GEOMETRY = "L1-d of a machine: 32 KiB, 8-way"


def curve(xs: list[Any], ys: list[Any], label: str = "f32", activations: str = "f32") -> Any:
    """A cell of the check."""
    made = cell({"columns": xs, "row_major_over_tiles": ys}, label, {"activations": activations})
    return {**made, "evidence": {**made["evidence"], "geometry": GEOMETRY}}


def test_a_run_without_the_check_has_no_figure() -> None:
    assert l1(run({})) is None
    assert l1(run({"2.l1.columns": []})) is None
    assert l1(run({"2.l1.columns": [cell({"columns": [1, 2]}), cell({}, evidence=None)]})) is None
    assert l1(run({"2.l1.columns": [curve([float("nan"), 0, -1], [1, 1, 1])]})) is None


def test_curves_cache_and_paper_are_drawn_and_said() -> None:
    paper = cell({}, inputs={"matrix": "8192 x 32768"}, paper=7.29)
    cells = [
        curve([1024, 8192], [0.97, 7.67], "f32 activations, E5"),
        curve([1024, 32768], [0.99, 3.17], "8-bit activations, E5", "q8"),
        curve([1024, 8192], [0.97, 7.67], "f32 activations, here"),
    ]
    figure = l1(run({"2.l1.columns": cells, "2.l1.simulated": [paper]}))
    assert figure is not None
    assert_sound(figure)
    shown = texts(figure)
    for wanted in ("f32 activations, E5 / here", "f32 vector = 32 KiB", "8-bit vector = 32 KiB"):
        assert wanted in shown
    alt = figure.alt.replace("\u202f", "")
    assert "7.29\u00d7 at 32768 columns" in alt and "first above 2 at 8192 columns" in alt
    assert "f32 vector = 32 KiB at 8192 columns" in alt and "8-bit vector = 32 KiB at 26214 columns" in alt
    assert [row.cells[0].replace("\u202f", "") for row in figure.table.rows] == ["1024", "8192", "32768"]
    assert figure.table.rows[1].cells[1:] == ("7.67\u00d7", "")


@FEW
@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=60), st.integers(1, 60))
def test_whatever_was_observed_is_drawn_or_left_out(points: list[tuple[Any, Any]], count: int) -> None:
    cells = [curve([x for x, _ in points], [y for _, y in points], EVIL)]
    cells += [curve([1000 + index], [1.5], f"{EVIL} {index}") for index in range(count - 1)]
    figure = l1(run({"2.l1.columns": cells}))
    if figure is not None:
        assert_sound(figure)
