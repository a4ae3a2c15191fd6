"""Curves of training: drawn from the observations, whatever they hold."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from reports.figures.training import training
from tests.reports.figures.made import EVIL, NUMBERS, assert_sound, cell, run, texts

CHECK = "quality.perplexity"
SCALE = "preset tiny (d 128, 2.6 to 5.0 M weights), 2,000 steps"


def curve(steps: list[Any], logs: list[Any], label: str = "arch1", seeds: int = 3) -> Any:
    seen = {"step": steps, "validation_log_perplexity": logs, "seed": list(range(seeds))}
    return cell(seen, label, {"seeds planned": 3, "scale": SCALE})


def test_a_run_without_curves_has_no_figure() -> None:
    assert training(run({})) is None
    assert training(run({CHECK: [cell({}, evidence=None), cell({"step": [1, 2]}), curve([], [])]})) is None
    assert training(run({CHECK: [curve([float("nan")], [1.0]), curve([1], [float("inf")])]})) is None


def test_an_arm_that_lacks_runs_is_hollow_and_says_so() -> None:
    cells = [curve([500, 2000], [5.0625, 4.5]), curve([2000, 1000, 500], [4.4, 4.6, 5.1], "arch4", 1)]
    figure = training(run({CHECK: cells}))
    assert figure is not None
    assert_sound(figure)
    assert {"arch1", "arch4 (1 of 3 runs)", "step of training"} <= set(texts(figure))
    assert SCALE in figure.caption
    alt = figure.alt.replace("\u202f", "")
    assert alt.startswith(
        "arch1: 5.062 at step 500, 4.500 at step 2000. arch4 (1 of 3 runs): 5.100 at step 500"
    )
    rows = [tuple(text.replace("\u202f", "") for text in row.cells) for row in figure.table.rows]
    assert rows == [("500", "5.062", "5.100"), ("1000", "", "4.600"), ("2000", "4.500", "4.400")]
    hollow = "fill:var(--paper)"
    assert hollow in figure.wide
    whole = training(run({CHECK: cells[:1]}))
    assert whole is not None and hollow not in whole.wide


def test_the_same_run_gives_the_same_bytes() -> None:
    one, other = (training(run({CHECK: [curve([500, 2000], [5.0, 4.5])]})) for _ in range(2))
    assert one == other


@settings(max_examples=8)
@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=60), st.integers(1, 9))
def test_whatever_was_observed_is_drawn_or_left_out(points: list[tuple[Any, Any]], count: int) -> None:
    cells = [curve([x for x, _ in points], [y for _, y in points], EVIL)]
    cells += [curve([1000 + index], [1.5], f"{EVIL} {index}") for index in range(count - 1)]
    figure = training(run({CHECK: cells}))
    if figure is not None:
        assert_sound(figure)
