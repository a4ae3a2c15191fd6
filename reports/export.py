"""A run as tidy tables for other tools, as CSV or Parquet: one observation a row, one thing a column.

checks: a row per declared check. cells: a row per row of a check. rounds: a row per arm of every round, void
rounds too. observations: a row per observed value behind an exact figure. columns: what each column of the
other tables means, with its unit. COLUMNS is that table.
"""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import pandas

from harness.errors import ResultsError
from harness.results import Results, write_atomically

Json = Mapping[str, Any]
Format = Literal["csv", "parquet"]

_CELL: Final = {
    "check": "id of the check, as in claims.toml",
    "cell": "label of the row within its check; empty where a check has one row",
    "kind": "kind of evidence: counted, kernel, simulated, hardware, timed, derived; empty: not measured",
    "verdict": "SUPPORTED, REFUTED, INCONCLUSIVE, NOT MEASURABLE HERE; empty: recorded, no target",
    "reason": "why the verdict is what it is",
    "value": "the figure, in `unit`; of timed evidence the median over the valid rounds",
    "low": "lower end of the interval, in `unit`; empty: exact, or none could be given",
    "high": "upper end of the interval, in `unit`; empty: exact, or none could be given",
    "unit": "unit of value, low, high, paper and the target",
    "paper": "the paper's figure, in `unit`; empty: none",
    "target_low": "lower end of the declared target, included; empty: open",
    "target_high": "upper end of the declared target, included; empty: open",
    "valid_rounds": "rounds that count, of timed evidence",
    "void_rounds": "rounds that do not count, of timed evidence",
    "a_a_low": "lower end of the interval of the A/A control, a ratio",
    "a_a_high": "upper end of the interval of the A/A control, a ratio",
}

COLUMNS: Final[Mapping[str, Mapping[str, str]]] = {
    "checks": {
        "id": _CELL["check"],
        "claim": "id of the claim that the check belongs to",
        "statement": "what is judged",
        **{name: _CELL[name] for name in ("kind", "verdict", "reason")},
        "metric": "what the figure is",
        **{
            name: _CELL[name]
            for name in ("value", "low", "high", "unit", "paper", "target_low", "target_high")
        },
        "beyond": "true: goes further than the paper and does not decide its claim",
        **{name: _CELL[name] for name in ("valid_rounds", "void_rounds", "a_a_low", "a_a_high")},
    },
    "cells": _CELL,
    "rounds": {
        "check": _CELL["check"],
        "cell": _CELL["cell"],
        "seq": "number of the round, in the order in which they ran",
        "arm": "name of the arm",
        "position": "place of the arm within its round, from 0",
        "void": "rules that made the round void, by name; empty: the round counts",
        "ns": "time of the arm as measured inside the workers, in ns",
        "bytes": "bytes of weights that the arm read",
        "work": "units of work done, such as tokens or products",
        "run_delay_ns": "time that workers waited for a core, in ns; empty: the kernel keeps none",
        "wall_ns": "time of the arm by the wall clock, in ns",
    },
    "observations": {
        "check": _CELL["check"],
        "cell": _CELL["cell"],
        "name": "name of the observation",
        "item": "place in its list, from 0; empty: a single value",
        "number": "the value where it is a number",
        "text": "the value where it is text",
    },
}


@dataclass(frozen=True)
class Written:
    """A table that was written."""

    name: str
    path: Path
    rows: int
    columns: tuple[str, ...]


def _cell_rows(record: Json) -> Iterator[tuple[Any, ...]]:
    for cell in record["cells"]:
        summary = cell["summary"] or {}
        kind = None if cell["evidence"] is None else cell["evidence"]["kind"]
        figures = (cell[key] for key in ("value", "low", "high", "unit", "paper"))
        rounds = (summary.get("valid"), summary.get("void"))
        ends = (*(cell["target"] or (None, None)), *rounds, *(summary.get("a_a") or (None, None)))
        yield record["id"], cell["label"], kind, cell["verdict"], cell["reason"], *figures, *ends


def _observation_rows(record: Json) -> Iterator[tuple[Any, ...]]:
    for cell in record["cells"]:
        for name, value in (cell["evidence"] or {}).get("observations", {}).items():
            listed = enumerate(value) if isinstance(value, list) else ((None, value),)
            for item, one in listed:
                number, text = (None, one) if isinstance(one, str) else (float(one), None)
                yield record["id"], cell["label"], name, item, number, text


def tables(results: Results) -> dict[str, pandas.DataFrame]:
    """The tables of a run by name, with the columns of COLUMNS, in that order."""
    cells = [row for record in results.checks for row in _cell_rows(record)]
    observed = [row for record in results.checks for row in _observation_rows(record)]
    found = {
        "checks": results.to_frame(),
        "cells": pandas.DataFrame(cells, columns=list(COLUMNS["cells"])),
        "rounds": results.rounds_frame(),
        "observations": pandas.DataFrame(observed, columns=list(COLUMNS["observations"])),
    }
    whole = ("valid_rounds", "void_rounds", "item")
    for frame in found.values():
        for name in (name for name in whole if name in frame):
            frame[name] = frame[name].astype("Int64")  # missing values would make these floats
    meanings = [(table, name, text) for table, named in COLUMNS.items() for name, text in named.items()]
    return found | {"columns": pandas.DataFrame(meanings, columns=["table", "column", "meaning"])}


def missing_package(wanted: Format) -> str:
    """What a format needs and this environment lacks, a sentence; empty: nothing."""
    if wanted == "parquet" and importlib.util.find_spec("pyarrow") is None:
        return "parquet needs pyarrow, which is not installed: pip install pyarrow, or take csv"
    return ""


def export(results: Results, wanted: Format, folder: Path) -> tuple[Written, ...]:
    """Writes the tables of a run into a folder, which is made; each file atomically, over an older one.

    Raises:
        ResultsError: the format needs a package that is not installed.
        OSError: a file cannot be written.
    """
    missing = missing_package(wanted)
    if missing:
        raise ResultsError(missing)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, frame in tables(results).items():
        path = folder / f"{name}.{wanted}"
        if wanted == "csv":
            write_atomically(path, frame.to_csv(index=False))
        else:
            data = io.BytesIO()
            frame.to_parquet(data, index=False, engine="pyarrow")
            write_atomically(path, data.getvalue())
        written.append(Written(name, path, len(frame), tuple(frame.columns)))
    return tuple(written)
