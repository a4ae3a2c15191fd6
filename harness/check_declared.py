"""The part of the second opinion that reads the declarations inside results.json. Like harness/check.py it
shares no code with the registry: it asks only that what `check.py` uses has the type that it needs.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from typing import Any

Declared = list[tuple[str, dict[str, Any]]]


def read_declared(text: str) -> tuple[dict[str, tuple[str, bool]], Declared]:
    """(title and built of each claim by id, the checks with their ids), in the order of claims.toml.

    Raises ValueError naming the key.
    """
    try:
        registry = tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    claims: dict[str, tuple[str, bool]] = {}
    for index, item in enumerate(_tables(registry, "claim", "claims.toml")):
        where = f"claim[{index}]"
        claims[_text(item, "id", where)] = (_text(item, "title", where), _flag(item, "built", where))
    declared = []
    for index, item in enumerate(_tables(registry, "check", "claims.toml")):
        where = f"check[{index}]"
        _read_check(item, where)
        declared.append((item["id"], item))
    return claims, declared


def _read_check(item: Mapping[str, Any], where: str) -> None:
    for key in ("id", "claim", "unit"):
        _text(item, key, where)
    kinds, budget = item.get("kinds"), item.get("budget_s")
    if not isinstance(kinds, list) or not kinds or not all(isinstance(kind, str) for kind in kinds):
        raise _fault(where, "kinds", kinds)
    if not isinstance(budget, dict):
        raise _fault(where, "budget_s", budget)
    for key in ("beyond", "built"):
        if key in item:
            _flag(item, key, where)
    _read_figure(item, where)
    for key in ("guard", "margin"):
        # The interval [1 / (1 + g), 1 + g] needs g above -1; what is sensible is the registry's to say.
        if key in item and not (_is_number(item[key]) and item[key] >= 0):
            raise _fault(where, key, item[key])
    if "positive_control" in item:
        _text(item, "positive_control", where)
        if "margin" not in item:
            raise _fault(where, "margin", None)
    if "cells" in item:
        for place, cell in enumerate(_tables(item, "cells", where)):
            inner = f"{where}.cells[{place}]"
            _text(cell, "label", inner)
            if "unit" in cell:
                _text(cell, "unit", inner)
            _read_figure(cell, inner)


def _read_figure(item: Mapping[str, Any], where: str) -> None:
    """paper, target, repetitions, rounds of a check or cell, where they are given."""
    if "paper" in item and not _is_number(item["paper"]):
        raise _fault(where, "paper", item["paper"])
    if "repetitions" in item and type(item["repetitions"]) is not int:
        raise _fault(where, "repetitions", item["repetitions"])
    if "rounds" in item:
        rounds = item["rounds"]
        if not isinstance(rounds, dict) or not all(type(wanted) is int for wanted in rounds.values()):
            raise _fault(where, "rounds", rounds)
    if "target" in item:
        target = item["target"]
        if not isinstance(target, list) or len(target) != 2 or not all(map(_is_end, target)):
            raise _fault(where, "target", target)


def _is_number(value: object) -> bool:
    """Whether it is a finite number that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < 1 << 1023 if isinstance(value, int) else math.isfinite(value)


def _is_end(value: object) -> bool:
    return _is_number(value) or (isinstance(value, float) and math.isinf(value))


def _tables(item: Mapping[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    found = item.get(key)
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise _fault(where, key, found)
    return found


def _text(item: Mapping[str, Any], key: str, where: str) -> str:
    found = item.get(key)
    if not isinstance(found, str):
        raise _fault(where, key, found)
    return found


def _flag(item: Mapping[str, Any], key: str, where: str) -> bool:
    found = item.get(key)
    if not isinstance(found, bool):
        raise _fault(where, key, found)
    return found


def _fault(where: str, key: str, found: object) -> ValueError:
    return ValueError(f"{where}.{key}: missing" if found is None else f"{where}.{key}: found {found!r:.200}")
