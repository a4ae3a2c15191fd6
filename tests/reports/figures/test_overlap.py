"""Speed-up of staging against C / IO: cells, models and the paper's figure, whatever was stored of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.figures.overlap import overlap
from tests.reports.figures.made import EVIL, FEW, NUMBERS, Json, assert_sound, cell, run, texts

ONE, TWO, FAR = "500 MB/s emulated, near 1", "native, near 4", "50 MB/s emulated, near 0.02"
MODEL = [[1.0, 0.0625], [0.0625, 1.0]]
FORMULA = [[1.0, 0.0], [0.0, 1.0]]


def timed(label: str, value: Any, low: Any = None, high: Any = None, **changes: Any) -> Json:
    """A cell with a figure and its interval; doubts: reasons of its summary."""
    doubts = changes.pop("doubts", [])
    return cell({}, label, value=value, low=low, high=high, summary={"reasons": doubts}, **changes)


def modelled(terms: Any, *names: str) -> Json:
    """A cell whose figure holds terms under those names."""
    inner: Any = {"terms": terms}
    for name in reversed(names):
        inner = {name: inner}
    made = cell({})
    return {**made, "evidence": {**made["evidence"], "figure": inner}}


def checks(**more: list[Json]) -> dict[str, list[Json]]:
    """Three cells: one with a verdict, one recorded in doubt, one that has no ratio."""
    return {
        "7.overlap_ratio": [timed(ONE, 1.0, 0.9, 1.1), timed(TWO, 4.0, 3.9, 4.1)],
        "7.overlap_gain": [timed(ONE, 1.7, 1.6, 1.8, verdict="SUPPORTED", paper=1.68)],
        "7.overlap_speedup": [
            timed(ONE, 9.0, paper=1.68),
            timed(TWO, 1.2, 1.1, 5.0, doubts=["A/A"]),
            timed(FAR, 1.0),
        ],
        "7.overlap_staged": [modelled(MODEL, "reference")],
        "7.overlap_quotient": [modelled(FORMULA, "expected", "below")],
    } | more


def test_a_run_without_both_has_no_figure() -> None:
    assert overlap(run({})) is None
    assert overlap(run({"7.overlap_ratio": [timed(ONE, 1.0)]})) is None
    assert overlap(run({"7.overlap_speedup": [timed(ONE, 1.0)]})) is None
    assert overlap(run(checks(**{"7.overlap_ratio": [timed(ONE, -1.0), timed(TWO, None)]}))) is None


def test_cells_models_and_paper_are_drawn_and_said() -> None:
    figure = overlap(run(checks()))
    assert figure is not None
    assert_sound(figure)
    shown = texts(figure)
    for name in ("500 MB/s emulated", "native", "model with fill", "paper\u2019s formula"):
        assert name in shown
    assert "2,000 MB/s emulated" not in shown and "other tiers" not in shown
    assert "nothing may be concluded" in shown
    assert "highest, 1.88\u00d7" in figure.alt and "highest, 2.00\u00d7" in figure.alt
    assert "up to 1.68\u00d7 on an NVMe server" in figure.alt
    rows = [row.cells for row in figure.table.rows]
    assert [(row[0], row[3], row[7]) for row in rows] == [
        (ONE, "1.7\u00d7", "SUPPORTED"),  # a verdict comes before what is recorded
        (TWO, "1\u00d7", "recorded, doubtful"),
    ]
    assert [row[5:7] for row in rows] == [("1.88\u00d7", "2.00\u00d7"), ("1.23\u00d7", "1.25\u00d7")]


@pytest.mark.parametrize("verdict", ["SUPPORTED", "REFUTED", "INCONCLUSIVE", None])
def test_hollow_is_what_nothing_may_be_concluded_from(verdict: str | None) -> None:
    gains = [timed(ONE, 1.7, 1.6, 1.8, verdict=verdict)]
    ratios = [timed(ONE, 1.0, doubts=["halves differ"])]
    figure = overlap(run({"7.overlap_ratio": ratios, "7.overlap_gain": gains}))
    assert figure is not None
    is_hollow = verdict in ("INCONCLUSIVE", None)
    assert ("nothing may be concluded" in texts(figure)) is is_hollow


def test_without_models_and_paper_there_are_only_cells() -> None:
    figure = overlap(run({"7.overlap_ratio": [timed(ONE, 1.0)], "7.overlap_wash": [timed(ONE, 1.0)]}))
    assert figure is not None
    assert_sound(figure)
    assert not {"model with fill", "paper\u2019s formula"} & set(texts(figure))
    assert figure.table.rows[0].cells[5:7] == ("", "")


@FEW
@given(
    st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=30),
    st.one_of(NUMBERS, st.lists(st.one_of(NUMBERS, st.lists(NUMBERS, max_size=3)), max_size=3)),
)
def test_whatever_was_stored_is_drawn_or_left_out(rows: list[tuple[Any, ...]], terms: Any) -> None:
    ratios = [timed(f"{EVIL} {i}", x, low, high) for i, (x, _, low, high) in enumerate(rows)]
    gains = [timed(f"{EVIL} {i}", y, high, low, paper=low) for i, (_, y, low, high) in enumerate(rows)]
    figure = overlap(
        run(
            checks(
                **{
                    "7.overlap_ratio": ratios,
                    "7.overlap_gain": gains,
                    "7.overlap_staged": [modelled(terms, "reference")],
                    "7.overlap_quotient": [modelled(terms, "expected", "below")],
                }
            )
        )
    )
    if figure is not None:
        assert_sound(figure)
