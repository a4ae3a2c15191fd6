"""All figures: from nothing they draw nothing, and names and numbers of any kind do no harm."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.figures import FIGURES, of
from reports.figures.arms import STREAMS
from tests.reports.figures.made import EVIL, FEW, NUMBERS, Json, arm, assert_sound, cell, run, sample, timed

KERNEL = "q4_0q8_gemv_t16_avx2, 8192 x 32768"
ROOF = {"threads": 2, "bytes_per_ns": 20.0, "patterns": []}


def token(ns: Any, size: Any) -> Json:
    """A decode whose bytes are counted by stream."""
    return sample(ns, size, 1, **{f"{name}_bytes": size for name in STREAMS})


def checks(name: str, numbers: list[Any], count: int) -> dict[str, list[Json]]:
    """Every check that some figure reads, `count` cells called `name` with these numbers in all places."""
    labels = [f"{name} {index}" for index in range(count)]
    growth = {"tokens": [1, *numbers], "resident_bytes": [4, *numbers], "routed_bytes": [4, *numbers]}
    whole = {f"{key} by token": values for key, values in growth.items()} | {"bank_bytes": 10}
    first = numbers[0] if numbers else 1
    hints = {"no hint": sample(2, first), f"T0 {4} KiB": sample(first, 2), f"{name} 2 KiB": sample(3, 3)}
    gemv = [arm("a", KERNEL), arm(name, KERNEL.replace("t16_avx2", "r1_scalar")), arm("b", name, "a")]
    projected = ("roof_gb_per_s", "tok_per_s", "tok_per_s_at_the_roof")
    return {
        "0.projection": [cell({k: numbers for k in projected}, one, paper=first) for one in labels],
        "0.regime": [timed({"flops": sample(first, 0, 10)})],
        "1.resident": [cell(growth, one, {"experts": 8, "experts per token": 2}) for one in labels],
        "1.llamacpp": [cell(whole, "after", {"experts": name}), cell({}, "after start-up", value=first)],
        "1.time": [timed({name: token(first, 5), "all": token(2, first)}, one, roof=ROOF) for one in labels],
        "2.time": [
            timed({"a": sample(first), name: sample(3, first), "b": sample(1)}, one, arms=gemv, void=void)
            for one, void in zip(labels, [False, True] * count, strict=False)
        ],
        "6.map": [timed(hints, one) for one in labels],
        "7.law": [cell({}, unit="ratio", value=first, paper=2.0) | {"label": name}],
        "7.time": [timed(hints, one, value=first, low=first, high=1.0, paper=first) for one in labels],
        "e2e.ranking": [timed({name: sample(first, 5)}, one, verdict="INCONCLUSIVE") for one in labels],
    }


COVERED = ["roofline", "projection", "1", "6", "7", "end_to_end"]
"""Sections whose figures draw what `checks` holds; the others have tests of their own."""


def test_figures_stand_in_sections_that_the_page_has() -> None:
    assert {draw.__name__ for draws in FIGURES.values() for draw in draws} >= {
        *("l1", "prefetch", "projection", "resident", "roofline", "schedule", "streams"),
    }
    assert of(run({}), "no such section") == ()


@pytest.mark.parametrize("section", FIGURES)
def test_a_run_without_checks_has_no_figures(section: str) -> None:
    assert of(run({}), section) == ()
    absent = {name: [cell({}, evidence=None)] for name in checks("x", [1], 1)}
    assert of(run(absent), section) == ()


@pytest.mark.parametrize("section", COVERED)
@FEW
@given(st.lists(NUMBERS, max_size=6), st.sampled_from([1, 3, 60]))
def test_whatever_a_run_holds_is_drawn_or_left_out(section: str, numbers: list[Any], count: int) -> None:
    for figure in of(run(checks(EVIL, numbers, count)), section):
        assert_sound(figure)


@pytest.mark.parametrize("section", COVERED)
def test_sound_numbers_are_drawn_the_same_every_time(section: str) -> None:
    results = run(checks("name", [1.5, 2.0], 2))
    figures = of(results, section)
    assert figures and figures == of(results, section)
    for figure in figures:
        assert_sound(figure)
