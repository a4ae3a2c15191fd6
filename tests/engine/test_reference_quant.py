"""Activations in 8 bits, against the definition and against the C function."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.native import check, lib, pointer
from engine.reference.quant import quantise_q8, through_q8

vectors = st.builds(
    lambda seed, blocks, exponent: (
        np.random.default_rng(seed).standard_normal(32 * blocks) * 10.0**exponent
    ).astype(np.float32),
    st.integers(0, 2**32),
    st.integers(1, 9),
    st.integers(-20, 20),
)


@settings(max_examples=50, deadline=None)
@given(x=vectors)
def test_error_is_at_most_half_a_step(x: np.ndarray) -> None:
    codes, scales, sums = quantise_q8(x)
    assert codes.min() >= -127
    steps = np.repeat(scales.astype(np.float64), 32)
    assert (np.abs(through_q8(x.astype(np.float64)) - x) <= 0.5001 * steps).all()
    np.testing.assert_array_equal(sums, codes.reshape(-1, 32).astype(int).sum(axis=1))
    np.testing.assert_array_equal(np.abs(codes.reshape(-1, 32)).max(axis=1), 127)


def test_known_answer() -> None:
    """The largest value is 127 steps; halves go to the even code."""
    x = np.zeros(64, np.float32)
    x[:6] = [254, 1, 3, -1, -254, 5]
    codes, scales, sums = quantise_q8(x)
    assert list(codes[:6]) == [127, 0, 2, 0, -127, 2]
    assert list(scales) == [2.0, 0.0]
    assert list(sums) == [4, 0]
    assert not codes[32:].any()


@settings(max_examples=50, deadline=None)
@given(x=vectors)
def test_equals_the_c_function(x: np.ndarray) -> None:
    codes, scales, sums = (
        np.empty(len(x), np.int8),
        np.empty(len(x) // 32, np.float32),
        np.empty(len(x) // 32, np.int32),
    )
    status = lib().cflow_quantize_q8(
        pointer("x", x, np.float32, len(x)),
        len(x),
        pointer("codes", codes, np.int8, len(x)),
        pointer("scales", scales, np.float32, len(x) // 32),
        pointer("sums", sums, np.int32, len(x) // 32),
    )
    check(status)
    for found, wanted in zip((codes, scales, sums), quantise_q8(x), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_is_kept(dtype: type[np.floating]) -> None:
    assert through_q8(np.ones(32, dtype)).dtype == dtype
