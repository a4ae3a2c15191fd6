"""The part of the second opinion that reads results.json. Like harness/check.py it shares no code with the
modules that wrote it.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Final

import jsonschema_rs

from harness.errors import ResultsError

FILE_NAME: Final = "results.json"
_SCHEMA: Final = Path(__file__).parent / "schema" / "results-1.json"


def read_results(directory: Path) -> dict[str, Any]:
    """results.json of a run as plain data that fits the schema. Raises ResultsError naming the field."""
    path = directory / FILE_NAME
    try:
        text = path.read_text(encoding="utf-8")
        data = json.loads(text, parse_constant=_refuse, parse_float=_finite, parse_int=_integer)
        if "\\ud" in text.lower():  # an escape may be half of a surrogate pair, which is no text
            json.dumps(data, ensure_ascii=False).encode("utf-8")
    except (OSError, ValueError, RecursionError) as error:
        raise ResultsError(f"{path}: cannot be read: {error}") from error
    schema = json.loads(_SCHEMA.read_text(encoding="utf-8"))
    faults = list(jsonschema_rs.Draft202012Validator(schema).iter_errors(data))
    if faults:
        outermost = min(faults, key=lambda fault: len(fault.instance_path))
        steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in outermost.instance_path)
        raise ResultsError(f"{path}: ${''.join(steps)}: {outermost.message[:300]}")
    loaded: dict[str, Any] = data
    return loaded


def _refuse(name: str) -> float:
    raise ValueError(f"the number {name[:40]} is not finite")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse(text)


def _integer(text: str) -> int:
    _finite(text)
    return int(text)
