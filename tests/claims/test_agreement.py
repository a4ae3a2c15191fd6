"""Which differences of logits are rounding, and which are another function."""

from __future__ import annotations

import numpy as np
import pytest

from claims.agreement import (
    LARGEST_SHARE,
    LEAST_SHARE,
    NOISE_FACTOR,
    TOP,
    Agreement,
    Position,
    compare_position,
    largest,
)

VOCAB = 400
ROUNDING = 0.05


def position(seed: int, noise: float, shift: float = 0.0, *, gap: float = 0.5) -> Position:
    """Our logits and those of an engine that differ by `noise` and a shift. gap: of our best two."""
    rng = np.random.default_rng(seed)
    our = rng.standard_normal(VOCAB).astype(np.float32)
    order = np.argsort(-our)
    our[order[0]] = our[order[1]] + gap
    plain = (our + ROUNDING * rng.standard_normal(VOCAB)).astype(np.float32)
    theirs = our + noise * rng.standard_normal(VOCAB) + shift
    top = largest(our)
    choice = int(np.argmax(theirs))
    return compare_position(0, our, plain, top, theirs[top], choice, float(theirs[choice]))


def agreement(noise: float, shift: float = 0.0, *, gap: float = 0.5) -> Agreement:
    return Agreement(tuple(position(seed, noise, shift, gap=gap) for seed in range(25)))


def test_rounding_is_no_fault_and_a_shift_is_nothing() -> None:
    found = agreement(ROUNDING, shift=7.0)
    assert found.fault() is None
    assert found.tokens_equal
    assert found.difference == pytest.approx(ROUNDING, rel=0.3)
    told = found.to_json()
    assert (told["positions"], told["divergences"], told["first_divergence"]) == (25, 0, None)


def test_near_ties_may_fall_the_other_way() -> None:
    found = agreement(ROUNDING, gap=0.001)
    assert found.divergences
    assert not found.tokens_equal
    assert found.fault() is None
    first = found.divergences[0]
    assert first.our_gap == pytest.approx(0.001, abs=1e-4)
    assert 0 < first.their_gap <= first.tolerance
    told = found.to_json()["first_divergence"]
    assert told["near_tie"] is True
    assert told["our_logits"][0] - told["our_logits"][1] == pytest.approx(told["our_gap"])


@pytest.mark.parametrize("noise", [2 * NOISE_FACTOR * ROUNDING, 1.0])
def test_a_difference_that_rounding_does_not_make(noise: float) -> None:
    found = agreement(noise)
    assert found.difference > found.limit
    assert "logits differ by" in str(found.fault())


def test_other_logits_altogether() -> None:
    rng = np.random.default_rng(3)
    positions = []
    for _ in range(9):
        our, theirs = rng.standard_normal((2, VOCAB)).astype(np.float32)
        top, choice = largest(our), int(np.argmax(theirs))
        # A rounding as large as the logits themselves: our own engine is no measure here.
        positions.append(compare_position(0, our, -our, top, theirs[top], choice, float(theirs[choice])))
    found = Agreement(tuple(positions))
    assert found.limit == pytest.approx(LARGEST_SHARE, rel=0.1)
    assert found.fault() is not None


def test_one_choice_far_from_a_tie_is_a_fault() -> None:
    good = [position(seed, ROUNDING) for seed in range(10)]
    our = np.random.default_rng(99).standard_normal(VOCAB).astype(np.float32)
    top = largest(our)
    theirs = our[top] + ROUNDING * np.random.default_rng(7).standard_normal(TOP)
    theirs[5] = theirs[0] + 2.0
    bad = compare_position(4, our, our, top, theirs, int(top[5]), float(theirs[5]))
    found = Agreement((*good, bad))
    assert found.difference <= found.limit
    assert "after 4 tokens" in str(found.fault())
    assert "no near tie" in str(found.fault())


def test_weights_that_need_no_rounding_leave_room_for_f16() -> None:
    our = np.random.default_rng(1).standard_normal(VOCAB).astype(np.float32)
    top = largest(our)
    exact = Agreement(
        (compare_position(0, our, our, top, our[top] + 0.001, int(top[0]), float(our[top[0]])),)
    )
    assert exact.limit == pytest.approx(LEAST_SHARE * float(our.std()))
    assert exact.fault() is None


def test_not_a_number_is_a_fault() -> None:
    our = np.random.default_rng(1).standard_normal(VOCAB).astype(np.float32)
    top = largest(our)
    broken = np.full(TOP, np.nan)
    assert (
        Agreement((compare_position(0, our, our, top, broken, int(top[0]), float("nan")),)).fault()
        is not None
    )
