"""Numbers as text."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports import format as fmt

RATIOS = st.floats(min_value=0.01, max_value=100.0)


def _number(text: str) -> float:
    return float(text.rstrip(fmt.TIMES).replace(fmt.THIN, "").replace(fmt.MINUS, "-"))


@pytest.mark.parametrize(
    ("value", "low", "high", "shown", "interval"),
    [
        (1.1072, 1.0831, 1.1309, "1.11×", "1.08 to 1.13"),
        (1.10727, 1.10431, 1.11009, "1.107×", "1.104 to 1.110"),
        (7.68, 6.9, 8.4, "7.7×", "6.9 to 8.4"),
        (123.4, 98.0, 151.0, "123×", "98 to 151"),
    ],
)
def test_digits_follow_the_interval(value: float, low: float, high: float, shown: str, interval: str) -> None:
    assert fmt.figure(value, "ratio", low, high) == shown
    assert fmt.interval(value, low, high).replace(fmt.NBSP, " ") == interval


@given(RATIOS, st.floats(min_value=0.001, max_value=0.4))
def test_no_digit_is_finer_than_a_tenth_of_the_half_width(value: float, spread: float) -> None:
    low, high = value * (1 - spread), value * (1 + spread)
    decimals = len(fmt.figure(value, "ratio", low, high).rstrip(fmt.TIMES).partition(".")[2])
    assert 10.0**-decimals > (high - low) / 2 / 10 or decimals == 0


@given(RATIOS, st.floats(min_value=0.0005, max_value=0.3), st.floats(min_value=-0.5, max_value=0.5))
def test_rounding_never_carries_an_end_over_the_target(value: float, spread: float, offset: float) -> None:
    low, high = value * (1 - spread), value * (1 + spread)
    edge = round(value * (1 + offset * spread * 2), 3)
    first, _, second = fmt.interval(value, low, high, (edge,)).replace(fmt.NBSP, " ").partition(" to ")
    for shown, true in ((_number(first), low), (_number(second), high)):
        assert (shown <= edge) or (true > edge)
        assert (shown >= edge) or (true < edge)


def test_an_end_just_outside_keeps_the_digits_that_show_it() -> None:
    assert fmt.interval(1.066, 1.0262, 1.187, (1.03,)) == f"1.026{fmt.NBSP}to{fmt.NBSP}1.187"


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (2.0, "ratio", "2.00×"),
        (14.0625, "MiB", "14.06 MiB"),
        (0.0, "results", "0 results"),
        (17301504.0, "bytes", "17 301 504 bytes"),
        (0.6, "share", "0.600"),
        (1.24e-7, "relative error", "1.2 × 10⁻⁷ relative error"),
        (None, "ratio", "–"),
    ],
)
def test_exact_values(value: float | None, unit: str, shown: str) -> None:
    assert fmt.figure(value, unit).replace(fmt.NBSP, " ").replace(fmt.THIN, " ") == shown


def test_an_exact_value_outside_its_target_is_seen_outside() -> None:
    assert fmt.figure(9.0139, "MiB", edges=(8.99, 9.01)) == f"9.014{fmt.NBSP}MiB"


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        (None, "none, recorded only"),
        ((None, None), "none, recorded only"),
        ((1.1, None), "at least 1.1×"),
        ((-math.inf, 1.03), "at most 1.03×"),
        ((0.97, 1.03), "0.97 to 1.03×"),
        ((1.0, 1.0), "exactly 1×"),
        ((-math.inf, 0.0), "at most 0×"),
    ],
)
def test_targets_in_words(ends: tuple[float | None, float | None] | None, words: str) -> None:
    assert fmt.target(ends, "ratio") == words


def test_a_target_of_a_tiny_error_is_readable() -> None:
    assert fmt.target((None, 1e-5), "share").replace(fmt.THIN, " ") == "at most 1 × 10⁻⁵"


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_a_declared_number_keeps_its_value(value: float) -> None:
    text = fmt.plain(value).replace(fmt.THIN, "").replace(fmt.MINUS, "-")
    match = re.fullmatch(r"(-?[\d.]+)(?:×10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+))?", text)
    assert match, text
    exponent = (match[2] or "0").translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789"))
    assert float(match[1]) * 10.0 ** int(exponent) == pytest.approx(value, rel=1e-5, abs=1e-40)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("weights in RAM", "Weights in RAM"),
        ("critical-path bytes", "Critical-path bytes"),
        ("f32 activations", "f32 activations"),
        ("tok/s, more", "tok/s, more"),
        ("dtlb_read_misses: none", "dtlb_read_misses: none"),
        ("", ""),
    ],
)
def test_capital_leaves_names_alone(text: str, shown: str) -> None:
    assert fmt.capital(text) == shown


def test_series() -> None:
    assert [fmt.series(list("abc")[:n]) for n in range(4)] == ["", "a", "a and b", "a, b and c"]


def test_sizes_and_durations() -> None:
    assert fmt.bytes_text(1023) == f"1023{fmt.NBSP}bytes"
    assert fmt.bytes_text(5 * 2**20) == f"5.00{fmt.NBSP}MiB"
    assert fmt.duration(999) == f"999{fmt.NBSP}ns"
    assert fmt.duration(72_823_450) == f"72.82{fmt.NBSP}ms"
