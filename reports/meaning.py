"""What a claim's figures mean in time per token, derived from what the run holds; nothing where it does not.

Two derivations, both stated in the table. Timed: the figure is a ratio of two arms, so the time of a token of
one arm is the median of the other's over the valid rounds, times or over the ratio with its interval.
Bytes: what a token (or a layer of it) must read, over the best read-only bandwidth of the run.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from harness.kinds import INCONCLUSIVE
from harness.registry import Check
from harness.results import Results
from reports import format as fmt
from reports.model import Column, Row, Table

Json = Mapping[str, Any]

_PER_TOKEN: Final = re.compile(r"\btokens? per second\b|\btime per token\b|\bone token\b")
_BYTES: Final = {"MB": 1e6, "MiB": 2.0**20, "GB": 1e9, "GiB": 2.0**30}
_ROWS_PER_CHECK: Final = 3
_SCALES: Final = (("s", 1e9), ("ms", 1e6), ("\u00b5s", 1e3), ("ns", 1.0))


@dataclass(frozen=True)
class BestRoof:
    """The best read-only bandwidth that a run measured, with its threads and the check that it is from."""

    bytes_per_ns: float
    threads: int
    check: str


def best_roof(results: Results) -> BestRoof | None:
    """The highest roof that the most threads reached in the run's timed evidence, None when it has none."""
    found = [
        BestRoof(cell["evidence"]["roof"]["bytes_per_ns"], cell["evidence"]["roof"]["threads"], record["id"])
        for record in results.checks
        for cell in record["cells"]
        if cell["evidence"] is not None and cell["evidence"].get("roof")
    ]
    return max(found, key=lambda roof: (roof.threads, roof.bytes_per_ns), default=None)


def _time(ns: float, low: float | None = None, high: float | None = None) -> str:
    """A time with its interval, in the largest unit in which it is at least 1."""
    unit, scale = next(((u, s) for u, s in _SCALES if ns >= s), _SCALES[-1])
    if low is None or high is None:
        return fmt.with_unit(fmt.bare(ns / scale, unit), unit)
    shown = fmt.figure(ns / scale, unit, low / scale, high / scale)
    return f"{shown} ({fmt.interval(ns / scale, low / scale, high / scale)})"


def _samples(timed: Json, arm: str) -> list[Json]:
    return [one["samples"][arm] for one in timed["rounds"] if not one["void"] and arm in one["samples"]]


def _arms(check: Check, cell: Json) -> tuple[str, str] | None:
    """Subject and reference of a ratio of two arms that both decode tokens, None for any other figure."""
    timed = cell["evidence"]
    if timed is None or timed["kind"] != "timed" or cell["unit"] != "ratio" or cell["value"] is None:
        return None
    figure = timed["figure"]
    subject, reference = figure["subject"], figure["reference"]
    plain = isinstance(reference, Mapping) and "arm" in reference and not figure.get("expected")
    if not plain or not _PER_TOKEN.search(check.metric) or figure["scale"] != 1:
        return None
    measures = {subject["measure"], reference["measure"]}
    if len(measures) > 1 or not measures <= {"time", "speed", "bandwidth"}:
        return None
    return str(subject["arm"]), str(reference["arm"])


def _timed_row(check: Check, cell: Json) -> Row | None:
    arms = _arms(check, cell)
    if arms is None:
        return None
    timed = cell["evidence"]
    mine, others = (_samples(timed, arm) for arm in arms)
    if not mine or not others:
        return None
    measure = timed["figure"]["subject"]["measure"]
    sizes = {sample["bytes"] / sample["work"] for sample in (*mine, *others)}
    if measure == "bandwidth" and len(sizes) > 1:
        return None  # bytes per second of different bytes say nothing of time
    reference = statistics.median(sample["ns"] / sample["work"] for sample in others)
    value, low, high = cell["value"], cell["low"], cell["high"]
    if measure != "time":
        value = 1 / value
        low, high = (None, None) if low is None or high is None else (1 / high, 1 / low)
    ends = (None, None) if low is None or high is None else (reference * low, reference * high)
    undecided = cell["verdict"] == INCONCLUSIVE
    how = f"{arms[1]}: median of {len(others)} valid rounds; {arms[0]}: by the ratio"
    return Row(
        (
            _named(check, cell),
            f"{arms[1]}: {_time(reference)}",
            f"{arms[0]}: {_time(reference * value, *ends)}",
            f"{how}, which is inconclusive" if undecided else how,
        ),
        muted=undecided,
    )


def _byte_row(check: Check, cell: Json, roof: BestRoof | None) -> Row | None:
    unit, _, per = cell["unit"].partition("/")
    if roof is None or per not in ("token", "layer") or unit not in _BYTES or cell["value"] is None:
        return None
    size = cell["value"] * _BYTES[unit]
    shown = fmt.figure(cell["value"], unit)
    of = "" if per == "token" else " for a layer"
    where = f"{fmt.fixed(roof.bytes_per_ns, 1)}{fmt.NBSP}GB/s, the best read-only bandwidth of the run"
    return Row(
        (
            _named(check, cell),
            "",
            f"at least {_time(size / roof.bytes_per_ns)}{of}",
            f"{shown} over {where} ({roof.threads} threads, {roof.check})",
        )
    )


def _named(check: Check, cell: Json) -> str:
    return f"{check.id}, {cell['label']}" if cell["label"] else check.id


def per_token(results: Results, claim_id: str) -> Table | None:
    """Time per token behind the checks that decide a claim or stand on the first screen, None without any."""
    roof = best_roof(results)
    rows: list[Row] = []
    for check in results.registry.checks_of(claim_id):
        record = results.record(check.id)
        if record is None or (check.beyond and not check.first_screen):
            continue
        found = (_timed_row(check, cell) or _byte_row(check, cell, roof) for cell in record["cells"])
        rows += [row for row in found if row is not None][:_ROWS_PER_CHECK]
    columns = (
        Column("Figure"),
        Column("Compared with"),
        Column("Time per token"),
        Column("Derived from", wide=True),
    )
    return Table("In time per token; derived, not judged", columns, tuple(rows)) if rows else None
