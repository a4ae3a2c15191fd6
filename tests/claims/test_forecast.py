"""Time left of a run, on a clock that the test moves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claims.forecast import Forecast, words


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_before_anything_is_measured_the_budgets_say_it() -> None:
    forecast = Forecast({"a": 10.0, "b": 30.0}, Clock())
    assert forecast.count == 2
    assert forecast.left_s() == 40.0


def test_a_machine_that_is_slower_than_the_budgets_takes_longer() -> None:
    clock = Clock()
    forecast = Forecast({"a": 10.0, "b": 30.0}, clock)
    forecast.begin("a")
    clock.now_s += 20.0
    forecast.end(measured=True)
    assert forecast.left_s() == pytest.approx(30.0 * (20 + 4) / (10 + 4))
    forecast.begin("b")
    assert forecast.number == 2
    before = forecast.left_s()
    clock.now_s += 5.0
    assert forecast.left_s() == pytest.approx(before - 5.0)


def test_what_could_not_be_measured_makes_nothing_faster() -> None:
    forecast = Forecast({"a": 10.0, "b": 30.0}, Clock())
    forecast.begin("a")
    forecast.end(measured=False)
    assert forecast.left_s() == 30.0


def test_the_rounds_of_a_check_say_when_it_takes_longer_than_its_budget() -> None:
    clock = Clock()
    forecast = Forecast({"a": 10.0}, clock)
    forecast.begin("a")
    clock.now_s += 60.0
    assert forecast.left_s() == 0.0
    assert forecast.left_s(own_s=25.0) == 25.0


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.floats(0.1, 1e4), min_size=1),
    st.lists(st.floats(0, 1e5), min_size=6, max_size=6),
    st.booleans(),
)
def test_time_left_is_never_negative_and_ends_at_nothing(
    budgets: dict[str, float], took_s: list[float], measured: bool
) -> None:
    clock = Clock()
    forecast = Forecast(budgets, clock)
    for name, seconds in zip(budgets, took_s, strict=False):
        forecast.begin(name)
        clock.now_s += seconds
        assert forecast.left_s() >= 0
        forecast.end(measured)
    assert forecast.left_s() == 0


def test_a_check_that_nobody_planned_takes_nothing_from_the_others() -> None:
    forecast = Forecast({}, Clock())
    forecast.begin("a")
    forecast.end(measured=True)
    assert forecast.left_s() == 0


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 s"), (59, "59 s"), (59.6, "1 min"), (540, "9 min"), (3599, "1 h 0 min"), (4800, "1 h 20 min")],
)
def test_words(seconds: float, said: str) -> None:
    assert words(seconds) == said
