"""Numbers as a reader should see them: no digit that the interval does not support, a unit on every figure.

Nothing here decides anything. The one rule with teeth is that rounding may not contradict a verdict: a figure
that lies outside a target keeps as many digits as it takes to be seen outside.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

NBSP = "\u00a0"
THIN = "\u202f"
TIMES = "\u00d7"
MINUS = "\u2212"

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_UNIT_WORDS = {"": "", "count": "", "ratio": TIMES, "share": "", "boolean": "", "bool": ""}
_TWO_DECIMALS = frozenset({"ratio", "MiB", "GiB", "MB", "GB"})
_MAX_DECIMALS = 9


def interval_decimals(low: float, high: float) -> int:
    """Decimals that the interval [low, high] supports: one significant digit of its half width, or 0."""
    half = abs(high - low) / 2
    if not math.isfinite(half) or half == 0:
        return 2
    return min(max(-math.floor(math.log10(half)), 0), _MAX_DECIMALS)


def _side(value: float, edge: float) -> int:
    return (value > edge) - (value < edge)


def _keeps_sides(values: Iterable[float], edges: Sequence[float], decimals: int) -> bool:
    return all(_side(round(v, decimals), e) == _side(v, e) for v in values for e in edges)


def _widen(values: Sequence[float], edges: Sequence[float], decimals: int) -> int:
    """The least number of decimals >= `decimals` at which rounding moves no value onto or across an edge."""
    for candidate in range(decimals, decimals + 4):
        if _keeps_sides(values, edges, candidate):
            return candidate
    return decimals


def fixed(value: float, decimals: int) -> str:
    """`value` with a fixed number of decimals, a true minus sign, and thin spaces from five digits on."""
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else (MINUS if value < 0 else "") + "\u221e"
    text = f"{abs(value):.{decimals}f}"
    whole, _, fraction = text.partition(".")
    if len(whole) > 4:
        whole = f"{int(whole):,}".replace(",", THIN)
    sign = MINUS if value < 0 and float(text) != 0 else ""
    return sign + whole + (f".{fraction}" if fraction else "")


def scientific(value: float, digits: int = 2) -> str:
    """`value` as mantissa times a power of ten, for example 1.2 x 10^-7 in proper signs."""
    mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
    return f"{mantissa.replace('-', MINUS)}{THIN}{TIMES}{THIN}10{str(int(exponent)).translate(_SUPERSCRIPT)}"


def _tiny_or_huge(value: float) -> bool:
    return value != 0 and math.isfinite(value) and (abs(value) < 1e-3 or abs(value) >= 1e15)


def _exact_decimals(value: float, unit: str) -> int:
    if unit not in _TWO_DECIMALS and value == round(value):
        return 0
    if value == 0 or abs(value) >= 1:
        return 2
    return min(2 - math.floor(math.log10(abs(value))), 5)


def bare(value: float, unit: str, edges: Sequence[float] = ()) -> str:
    """An exact value without its unit: whole for counts, else two decimals or three significant digits."""
    if _tiny_or_huge(value):
        return scientific(value)
    return fixed(value, _widen([value], edges, _exact_decimals(value, unit)))


def digits(value: float) -> str:
    """A raw positive figure with five significant digits, trailing zeros kept."""
    return fixed(value, max(0, 4 - math.floor(math.log10(value)))) if value >= 1e-3 else scientific(value, 5)


def plain(value: float) -> str:
    """A declared number (a target's end, the paper's figure) with the digits it was declared with."""
    if _tiny_or_huge(value):
        mantissa = f"{abs(value):e}".partition("e")[0].rstrip("0").replace(".", "")
        return scientific(value, max(1, len(mantissa)))
    text = f"{value:.6g}"
    return fixed(value, len(text.partition(".")[2]) if "e" not in text else 0)


def declared(value: float, unit: str) -> str:
    """A declared figure beside measured ones: two decimals for ratios and sizes declared with fewer."""
    text = plain(value)
    short = unit in _TWO_DECIMALS and not _tiny_or_huge(value) and len(text.partition(".")[2]) < 2
    return fixed(value, 2) if short else text


def with_unit(number: str, unit: str) -> str:
    """`number` and its unit: a times sign for ratios, nothing for counts, else a space and the unit."""
    word = _UNIT_WORDS.get(unit, unit)
    if not word:
        return number
    return number + (word if word == TIMES else NBSP + word)


def figure(
    value: float | None,
    unit: str,
    low: float | None = None,
    high: float | None = None,
    edges: Sequence[float] = (),
) -> str:
    """The figure with its unit. With an interval, its digits are those that the interval supports."""
    if value is None:
        return "\u2013"
    if low is None or high is None or low == high:
        return with_unit(bare(value, unit, edges), unit)
    if _tiny_or_huge(value):
        return with_unit(scientific(value), unit)
    return with_unit(fixed(value, _interval_digits(value, low, high, edges)), unit)


def _interval_digits(value: float, low: float, high: float, edges: Sequence[float]) -> int:
    return _widen([value, low, high], edges, interval_decimals(low, high))


def interval(value: float | None, low: float | None, high: float | None, edges: Sequence[float] = ()) -> str:
    """The interval as `low to high` with the digits of `figure`, or an empty string when there is none."""
    if value is None or low is None or high is None:
        return ""
    if _tiny_or_huge(value):
        return f"{scientific(low)} to {scientific(high)}"
    decimals = _interval_digits(value, low, high, edges)
    return f"{fixed(low, decimals)}{NBSP}to{NBSP}{fixed(high, decimals)}"


def target(ends: tuple[float | None, float | None] | list[float | None] | None, unit: str) -> str:
    """A target in words: `at least 1.1x`, `1 to 1.05x`, `exactly 9 MiB`, or that there is none.

    Args:
        ends: (low, high), an open end being None or infinite; None without a target.
    """
    if ends is None:
        return "none, recorded only"
    low, high = (None if end is None or math.isinf(end) else end for end in ends)
    if low is None:
        return "none, recorded only" if high is None else f"at most {with_unit(plain(high), unit)}"
    if high is None:
        return f"at least {with_unit(plain(low), unit)}"
    if low == high:
        return f"exactly {with_unit(plain(low), unit)}"
    return f"{plain(low)} to {with_unit(plain(high), unit)}"


def bytes_text(count: float) -> str:
    """A byte count in binary units with the exact count left to tables: 4.00 MiB."""
    size, unit = float(count), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1024:
            break
        size, unit = size / 1024, larger
    return f"{fixed(size, 0 if unit == 'bytes' else 2)}{NBSP}{unit}"


def duration(nanoseconds: float) -> str:
    """Nanoseconds in the largest unit that keeps the number at 1 or more."""
    value = float(nanoseconds)
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("\u00b5s", 1e3)):
        if abs(value) >= scale:
            return f"{fixed(value / scale, 2)}{NBSP}{unit}"
    return f"{fixed(value, 0)}{NBSP}ns"


def capital(text: str) -> str:
    """The text with its first letter in upper case, unless it begins with a name such as `f32` or `tok/s`."""
    first = text.split(maxsplit=1)[0].rstrip(",.:;") if text.strip() else ""
    plain_word = first.replace("-", "").isalpha() and first.islower()
    return text[:1].upper() + text[1:] if plain_word else text


def series(items: Sequence[str]) -> str:
    """Items as English prose: `a`, `a and b`, `a, b and c`."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"
