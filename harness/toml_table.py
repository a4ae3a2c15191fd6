"""Reading a TOML table key by key, with errors that name the key, what was found and what is allowed."""

from __future__ import annotations

import math
from typing import Any, cast

from harness.errors import RegistryError
from harness.kinds import Target


class Table:
    """A TOML table whose keys are taken one by one, so that a key that nobody knows is an error."""

    def __init__(self, where: str, data: object) -> None:
        if not isinstance(data, dict):
            raise RegistryError(f"{where}: expected a table, found {data!r}")
        self._where = where
        self._left = dict(data)

    def fail(self, key: str, found: object, allowed: str) -> RegistryError:
        return RegistryError(f"{self._where}.{key}: found {found!r}, allowed: {allowed}")

    def _take(self, key: str, required: bool) -> Any:
        if key not in self._left:
            if required:
                raise RegistryError(f"{self._where}.{key}: missing")
            return None
        return self._left.pop(key)

    def text(self, key: str, default: str | None = None) -> str:
        value = self._take(key, default is None)
        if value is None:
            return cast(str, default)
        if not isinstance(value, str) or not value.strip():
            raise self.fail(key, value, "a non-empty string")
        return value

    def flag(self, key: str, default: bool | None = None) -> bool:
        value = self._take(key, default is None)
        if value is None:
            return bool(default)
        if not isinstance(value, bool):
            raise self.fail(key, value, "true or false")
        return value

    def number(self, key: str) -> float | None:
        value = self._take(key, False)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self.fail(key, value, "a finite number")
        return float(value)

    def whole(self, key: str, least: int) -> int | None:
        value = self._take(key, False)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise self.fail(key, value, f"a whole number, at least {least}")
        return value

    def fraction(self, key: str) -> float | None:
        value = self.number(key)
        if value is not None and not 0.0 < value < 1.0:
            raise self.fail(key, value, "a number above 0 and below 1")
        return value

    def texts(self, key: str, allowed: str, required: bool = False) -> tuple[str, ...]:
        value = self._take(key, required)
        if value is None:
            return ()
        if (
            not isinstance(value, list)
            or any(not isinstance(item, str) for item in value)
            or len(set(value)) != len(value)
        ):
            raise self.fail(key, value, allowed)
        return tuple(value)

    def target(self, key: str) -> Target | None:
        value = self._take(key, False)
        if value is None:
            return None
        allowed = "[low, high] with low <= high, an open end being -inf or inf, not both open"
        if not isinstance(value, list) or len(value) != 2:
            raise self.fail(key, value, allowed)
        if any(isinstance(end, bool) or not isinstance(end, int | float) or math.isnan(end) for end in value):
            raise self.fail(key, value, allowed)
        low, high = float(value[0]), float(value[1])
        if low > high or low == math.inf or high == -math.inf or (math.isinf(low) and math.isinf(high)):
            raise self.fail(key, value, allowed)
        return low, high

    def table(self, key: str) -> dict[str, Any]:
        value = self._take(key, True)
        if not isinstance(value, dict):
            raise self.fail(key, value, "a table")
        return value

    def optional_table(self, key: str) -> dict[str, Any] | None:
        return self.table(key) if key in self._left else None

    def tables(self, key: str) -> list[Any]:
        value = self._take(key, False)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.fail(key, value, "an array of tables")
        return value

    def done(self) -> None:
        if self._left:
            raise RegistryError(f"{self._where}.{sorted(self._left)[0]}: unknown key")
