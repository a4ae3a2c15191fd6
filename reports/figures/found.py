"""What a run recorded, for figures: absent or foreign observations give nothing to draw, and no error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.results import Results
from reports.figures.scales import drawable

Json = Mapping[str, Any]

_MOST_SENTENCES: Final = 12


def cells(results: Results, check_id: str) -> list[Json]:
    """The cells of a check that hold evidence, none when it did not run."""
    record = results.record(check_id)
    return [cell for cell in record["cells"] if cell["evidence"] is not None] if record else []


def series(cell: Json, *names: str) -> list[tuple[float, ...]]:
    """The observations of those names side by side, item by item, without items that are no finite numbers.

    An absent name, or lists of unequal length, give an empty list.
    """
    columns = [cell["evidence"].get("observations", {}).get(name) for name in names]
    if not all(isinstance(column, list) and len(column) == len(columns[0]) for column in columns):
        return []
    return [items for items in zip(*columns, strict=True) if all(drawable(item) for item in items)]


def number(cell: Json, name: str) -> float | None:
    """An observation that is one number, else None."""
    value = cell["evidence"].get("observations", {}).get(name)
    return float(value) if drawable(value) else None


def given(cell: Json, name: str) -> str:
    """An input as text, empty when it was not recorded."""
    value = cell["evidence"].get("inputs", {}).get(name)
    return "" if value is None else str(value)


def left_out(count: int, most: int) -> str:
    """What a caption ends with: how many are drawn where a figure would grow too large with all of them."""
    return f" The first {most} of {count} are drawn, the table has all." if count > most else ""


def sentences(parts: Sequence[str]) -> str:
    """The parts as sentences; of many the first ones, since the table has all."""
    shown = list(parts[:_MOST_SENTENCES])
    more = len(parts) - len(shown)
    return ". ".join([*shown, *([f"and {more} more, in the table"] if more else [])]) + "."
