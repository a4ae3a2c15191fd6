"""Ways to spoil a valid file: JSON field by field, TOML line by line, anything byte by byte.

Every choice comes from the `Random` that is passed in; with hypothesis behind it, findings get small.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any, Final

_TOKEN: Final = "@raw{}@"

#: JSON texts that a field may be replaced by: types, ranges and forms that no writer of ours makes.
JSON_TEXTS: Final = (
    "null",
    "true",
    "false",
    "0",
    "-1",
    "1",
    "2",
    "0.5",
    "1e-320",
    "1e308",
    "-1e308",
    "1e999",
    "NaN",
    "-Infinity",
    "2147483648",
    "9223372036854775808",
    "1" + 400 * "0",
    5000 * "9",
    '""',
    '" "',
    r'"\ud800"',
    r'"a\u0000b"',
    r'"\u001b[31mred\nline\u202e"',
    '"<script>alert(1)</script>"',
    '"{{ 7 * 7 }}"',
    '"../../../../etc/passwd"',
    '"/dev/zero"',
    '"' + 20_000 * "x" + '"',
    "[]",
    "{}",
    "[[]]",
    "[null]",
    '{"a": 1, "a": 2}',
    500 * "[" + 500 * "]",
    100_000 * "[",
    100_000 * '{"a":',
)
#: The same for a value in TOML.
TOML_TEXTS: Final = (
    "true",
    "0",
    "-1",
    "0.5",
    "nan",
    "inf",
    "-inf",
    "1e400",
    5000 * "9",
    "1" + 400 * "0",
    '""',
    r'"\u0000"',
    '"<script>alert(1)</script>"',
    r'"\u001b[31m"',
    "[]",
    "[[]]",
    "[1, 2, 3]",
    '["a", 1]',
    "[nan, nan]",
    "{}",
    "{a = 1}",
    "1979-05-27",
    "07:32:00",
    "1979-13-99",
    2000 * "[" + 2000 * "]",
    "",
)


def spoilt_bytes(random: Random, data: bytes) -> bytes:
    """One to three changes of bytes: flipped, set, cut, put in, taken out, doubled."""
    changed = bytearray(data)
    for _ in range(random.randint(1, 3)):
        at, length = random.randint(0, max(len(changed) - 1, 0)), random.randint(1, 64)
        kind = random.randrange(6)
        if kind == 0 and changed:
            changed[at] ^= 1 << random.randrange(8)
        elif kind == 1 and changed:
            changed[at] = random.choice((0, 0x22, 0x7F, 0x80, 0xFF, 0xC3))
        elif kind == 2:
            del changed[at:]
        elif kind == 3:
            changed[at:at] = random.choice((b"\xff\xfe", b"\xef\xbb\xbf", b"\x00", b"}", b"]", 64 * b"\xff"))
        elif kind == 4:
            del changed[at : at + length]
        else:
            changed[at:at] = changed[at : at + length]
    return bytes(changed)


def spoilt_json(random: Random, text: str) -> str:
    """JSON with one to three fields changed: replaced, removed, doubled, exchanged, nudged, renamed."""
    root = [json.loads(text)]  # in a list, so that the whole can be replaced like any part
    raw: list[str] = []
    for _ in range(random.randint(1, 3)):
        holder, key = _place(random, root)
        _CHANGES[random.randrange(len(_CHANGES))](random, holder, key, raw)
    written = json.dumps(root[0]) if root else ""
    for index, replacement in enumerate(raw):
        written = written.replace(json.dumps(_TOKEN.format(index)), replacement)
    return written


def spoilt_toml(random: Random, text: str) -> str:
    """TOML with one to three lines changed: another value, removed, doubled, moved."""
    lines = text.splitlines()
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(lines))
        key, equals, _ = lines[at].partition(" = ")
        kind = random.randrange(4)
        if kind == 0 and equals:
            lines[at] = f"{key} = {random.choice(TOML_TEXTS)}"
        elif kind == 1:
            del lines[at]
        elif kind == 2:
            lines.insert(at, lines[at])
        else:
            lines.insert(random.randrange(len(lines)), lines.pop(at))
        lines = lines or [""]
    return "\n".join(lines)


def _place(random: Random, root: list[Any]) -> tuple[Any, Any]:
    """A container and a key of it; the deeper a part, the more often."""
    holder, key = root, 0
    while True:
        inner = holder[key]
        if not isinstance(inner, dict | list) or not inner or random.randrange(6) == 0:
            return holder, key
        holder, key = inner, _key(random, inner)


def _key(random: Random, holder: Any) -> Any:
    return random.choice(list(holder)) if isinstance(holder, dict) else random.randrange(len(holder))


def _replace(random: Random, holder: Any, key: Any, raw: list[str]) -> None:
    holder[key] = _TOKEN.format(len(raw))
    raw.append(random.choice(JSON_TEXTS))


def _remove(random: Random, holder: Any, key: Any, raw: list[str]) -> None:
    if len(holder) > 1 or isinstance(holder, dict):
        del holder[key]
    else:
        _replace(random, holder, key, raw)


def _double(random: Random, holder: Any, key: Any, raw: list[str]) -> None:
    if isinstance(holder, list):
        holder.insert(key, holder[key])
    else:
        holder[f"{key}x"] = holder[key]


def _exchange(random: Random, holder: Any, key: Any, raw: list[str]) -> None:
    other = _key(random, holder)
    holder[key], holder[other] = holder[other], holder[key]


def _nudge(random: Random, holder: Any, key: Any, raw: list[str]) -> None:
    value = holder[key]
    if isinstance(value, bool) or not isinstance(value, int | float):
        _replace(random, holder, key, raw)
        return
    by = random.choice((-1, 1, 2, 1000, -1000, 0.5, 1e300))
    holder[key] = value + by if random.randrange(2) else value * by


def _rename(random: Random, holder: Any, key: Any, raw: list[str]) -> None:
    if isinstance(holder, list):
        _replace(random, holder, key, raw)
        return
    holder[random.choice(("", "../x", "\x1b[31m\n", "x" * 5000, "é", "__class__"))] = holder.pop(key)


_CHANGES: Final[tuple[Callable[[Random, Any, Any, list[str]], None], ...]] = (
    _replace,
    _replace,
    _remove,
    _double,
    _exchange,
    _nudge,
    _rename,
)
