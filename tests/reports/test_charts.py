"""Geometry of the charts."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports import charts

POSITIVE = st.floats(min_value=1e-6, max_value=1e6)


@given(st.lists(POSITIVE, min_size=1, max_size=12))
def test_log_axis_holds_every_value_in_order(values: list[float]) -> None:
    axis = charts.log_axis(values)
    places = [axis.at(value) for value in sorted([*values, 1.0])]
    assert places == sorted(places)
    assert all(0 < place < 100 for place in places)


@given(st.lists(POSITIVE, min_size=1, max_size=12))
def test_log_axis_has_a_few_ticks_in_order_and_one_at_one(values: list[float]) -> None:
    axis = charts.log_axis(values)
    places = [tick.at for tick in axis.ticks]
    assert places == sorted(set(places))
    assert 1 <= len(places) <= 14
    assert axis.at(1.0) in places
    assert len({tick.label for tick in axis.ticks}) == len(places)


def test_log_axis_is_symmetric_about_one() -> None:
    axis = charts.log_axis([0.5, 2.0])
    assert axis.at(1.0) == pytest.approx(50.0, abs=0.01)
    assert axis.at(2.0) - 50 == pytest.approx(50 - axis.at(0.5), abs=0.02)


@given(st.lists(st.floats(min_value=0, max_value=1e9), min_size=1, max_size=8))
def test_linear_axis_starts_at_zero_and_ends_on_a_tick(values: list[float]) -> None:
    axis = charts.linear_axis(values)
    assert axis.at(0.0) == 0 and axis.ticks[0].at == 0 and axis.ticks[-1].at == 100
    assert axis.high >= max(values) * (1 - 1e-9)
    gaps = [after.at - before.at for before, after in itertools.pairwise(axis.ticks)]
    assert max(gaps) - min(gaps) < 0.03


@given(st.floats(min_value=0, max_value=1e6), st.floats(min_value=1, max_value=1e6))
def test_an_axis_between_two_values_has_round_ticks_inside(low: float, span: float) -> None:
    axis = charts.axis_between(low, low + span)
    assert (axis.at(low), axis.at(low + span)) == (0, 100)
    places = [tick.at for tick in axis.ticks]
    assert places == sorted(places) and 2 <= len(places) <= 6
    assert all(0 <= place <= 100 for place in places)


def test_an_upright_axis_counts_from_the_top() -> None:
    axis = charts.linear_axis([10.0])
    assert [(t.label, t.at) for t in charts.from_the_top(axis)][:2] == [("0", 100), ("2", 80)]


def test_bars_are_proportional() -> None:
    axis = charts.linear_axis([12.0, 9.0, 4.5])
    rows = [("a", 12.0, "12", None), ("b", 9.0, "9", 9.0), ("c", 4.5, "4.5", None)]
    twelve, nine, half = charts.bars(axis, rows)
    assert nine.length / twelve.length == pytest.approx(0.75, abs=1e-3)
    assert half.length / nine.length == pytest.approx(0.5, abs=1e-3)
    assert nine.paper == nine.length and "9" in nine.paper_text and twelve.paper is None


def test_open_ends_of_a_target_reach_the_edges() -> None:
    axis = charts.log_axis([0.8, 1.3])
    assert charts.mark(axis, 1.1, 1.0, 1.2, (1.05, None), None).band == (axis.at(1.05), 100.0)
    assert charts.mark(axis, 1.1, 1.0, 1.2, (None, 1.05), None).band == (0.0, axis.at(1.05))
    assert charts.mark(axis, 1.1, None, None, (None, None), 1.2).band is None


def test_values_off_the_axis_lie_on_its_end() -> None:
    axis = charts.log_axis([0.9, 1.1])
    assert (axis.at(1e-9), axis.at(0.0), axis.at(50.0)) == (0.0, 0.0, 100.0)


def test_rounds_run_left_to_right_and_larger_is_higher() -> None:
    chart = charts.rounds_chart([(0, 1.0, "valid"), (1, 1.1, "void"), (2, 1.2, "control")], 1.1, 1.0, 1.2)
    assert chart is not None
    assert [dot.at for dot in chart.dots] == sorted(dot.at for dot in chart.dots)
    assert chart.dots[0].top > chart.dots[1].top > chart.dots[2].top
    assert chart.has_void and chart.has_control
    assert chart.band is not None and chart.band[0] < chart.middle < chart.band[1] <= chart.one


def test_no_chart_of_a_single_round() -> None:
    assert charts.rounds_chart([(0, 1.0, "valid")], 1.0, None, None) is None
    assert charts.rounds_chart([(0, 1.0, "valid"), (1, float("nan"), "valid")], 1.0, None, None) is None
