"""The map of hints where RAM is the limit, and the sentence that it comes to."""

from __future__ import annotations

from typing import Any

import pytest

from claims.hint_map import FEW, MANY, OFF, Gain, arm_name, gains, map_cell, sentence
from claims.hints import HINTS
from claims.kernel_cases import best_q8_kernel
from engine.enums import Isa, Prefetch
from engine.kernels import isa_default
from harness.statistics import MIN_ROUNDS
from harness.verdict import NotMeasurable


def test_points_of_the_maps() -> None:
    assert (Prefetch.T0, 4096) in FEW and set(FEW) <= set(MANY)
    assert {hint for hint, _ in MANY} == set(HINTS)
    assert {distance for _, distance in MANY} == {64 << step for step in range(9)}
    assert [arm_name(*point) for point in FEW[:2]] == ["T0 256 B", "T0 1 KiB"]


def test_a_matrix_in_the_cache_is_no_measure_of_ram() -> None:
    found = map_cell(best_q8_kernel(Isa.SCALAR), 1 << 30, FEW, MIN_ROUNDS, threads=1)
    assert found == NotMeasurable(
        "the matrix of 150994944 bytes is less than twice the last-level cache of 1073741824"
    )
    assert best_q8_kernel(isa_default()).q8


def recorded(**speeds: float) -> dict[str, Any]:
    """A map of one cell with arms of these speeds over no hint, as it stands in results."""

    def one(index: int) -> dict[str, Any]:
        off = 1000.0 * (1 + 0.001 * (index % 3))
        samples = {OFF: {"ns": off}, f"{OFF} (A/A)": {"ns": off}}
        return {"void": [], "samples": samples | {name: {"ns": off / by} for name, by in speeds.items()}}

    names = [*((name, None) for name in (OFF, *speeds)), (f"{OFF} (A/A)", OFF)]
    arms = [{"name": name, "control_of": of} for name, of in names]
    evidence = {"arms": arms, "rounds": [one(index) for index in range(MIN_ROUNDS)]}
    return {"cells": [{"label": "1 thread", "evidence": evidence}]}


def test_gains_are_of_every_hint_and_of_valid_rounds() -> None:
    record = recorded(near=0.8, far=1.1)
    (cell,) = gains(record).values()
    assert [(gain.arm, round(gain.median, 9)) for gain in cell] == [("near", 0.8), ("far", 1.1)]
    assert all(gain.low <= gain.median <= gain.high for gain in cell)
    record["cells"][0]["evidence"]["rounds"][0]["void"] = [{"rule": "steal", "arm": None}]
    assert gains(record) == {}
    assert gains({"cells": [{"label": "1 thread", "evidence": None}]}) == {}


@pytest.mark.parametrize(
    ("speeds", "said"),
    [
        (
            {"near": 0.8, "far": 1.1},
            "a hint helps: far 1.10x [1.10, 1.10], and the wrong one harms: near 0.80x",
        ),
        ({"near": 0.99, "far": 1.01}, "no hint gains 2%, the best is far 1.01x [1.01, 1.01]."),
        (
            {"near": 0.9, "far": 0.95},
            "no hint gains 2%, the best is far 0.95x [0.95, 0.95], and the wrong one",
        ),
    ],
)
def test_the_sentence_follows_the_figures(speeds: dict[str, float], said: str) -> None:
    assert f"1 thread: {said}" in sentence(gains(recorded(**speeds)))


def test_a_gain_that_is_not_certain_is_called_so() -> None:
    wide = Gain("all threads", "T0 4 KiB", 1.03, 0.97, 1.09)
    assert sentence({"all threads": [wide]}) == (
        "all threads: no gain of 2% is certain, the best is T0 4 KiB 1.03x [0.97, 1.09]."
    )
