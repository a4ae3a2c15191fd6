"""Which windows a step sees, and the hash of their order. No PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from architectures.batches import Batches
from architectures.errors import DataError


def batches(seed: int, tokens: int = 200, sequence: int = 8, batch: int = 3) -> Batches:
    return Batches(np.arange(tokens, dtype=np.uint16), sequence, batch, seed)


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 30))
def test_the_order_is_equal_when_the_windows_are(one: int, other: int, steps: int) -> None:
    a, b = batches(one), batches(other)
    same = all((a.at(step) == b.at(step)).all() for step in range(steps))
    assert (a.order_hash(steps) == b.order_hash(steps)) is same


@given(st.integers(0, 50), st.integers(1, 30))
def test_more_steps_are_another_order(seed: int, steps: int) -> None:
    assert batches(seed).order_hash(steps) != batches(seed).order_hash(steps + 1)
    # Another length of text is another permutation of its windows.
    assert batches(seed).order_hash(30) != batches(seed, tokens=300).order_hash(30)


@given(st.integers(0, 20))
def test_an_epoch_sees_every_window_once(seed: int) -> None:
    made = batches(seed, batch=4)
    seen = np.concatenate([made.at(step)[:, 0] for step in range(made.windows // 4)])
    assert sorted(seen.tolist()) == [8 * place for place in range(made.windows // 4 * 4)]


def test_a_text_that_is_too_short() -> None:
    with pytest.raises(DataError, match="24 tokens are 2 windows of 8, a step needs 3"):
        batches(0, tokens=24)
