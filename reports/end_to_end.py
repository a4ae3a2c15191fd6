"""The end-to-end section: engines in tokens and bytes per second, and one sentence on where the lead is from.

Figures and intervals are those of the checks; nothing is measured or judged here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.results import Results
from reports import charts, rounds
from reports import format as fmt
from reports.model import Column, EndToEnd, Row, ScaledBars, Table, check_anchor

Json = Mapping[str, Any]

TOKENS, BYTES, PARTS, ACTIVE = "e2e.tokens", "e2e.bytes", "e2e.decomposition", "e2e.active"
_LEAD, _PER_BYTE, _MODEL, _ENGINE = "lead", "engines per weight byte", "model", "engine"


def _measured(results: Results, check_id: str) -> dict[str, Json]:
    """Cells of a check that have a figure, by label."""
    record = results.record(check_id)
    return {cell["label"]: cell for cell in record["cells"] if cell["value"] is not None} if record else {}


def _parts(results: Results) -> dict[str, Json]:
    """Cells of the decomposition by the word before their colon."""
    return {label.partition(":")[0]: cell for label, cell in _measured(results, PARTS).items()}


def _times(cell: Json) -> str:
    """A ratio with its interval: "1.25x (1.20 to 1.31)"."""
    shown = fmt.figure(cell["value"], "ratio", cell["low"], cell["high"])
    interval = fmt.interval(cell["value"], cell["low"], cell["high"])
    return f"{shown} ({interval})" if interval else shown


def _beside_one(cell: Json) -> str:
    """What an interval says of a ratio: "", or that it holds 1."""
    low, high = cell["low"], cell["high"]
    return "" if low is None or low > 1 or high < 1 else ", not told from none"


def sentence(parts: Mapping[str, Json], fewer_bytes: float | None) -> str:
    """Which part of the lead is the model and which the engine; why nothing is said where parts are missing.

    parts: cells of the decomposition by their first word. fewer_bytes: dense over MoE, bytes of a token.
    """
    if not all(name in parts for name in (_LEAD, _MODEL, _ENGINE)):
        return "What of the lead is the model and what the engine was not measured in this run."
    lead, model, engine = (parts[name] for name in (_LEAD, _MODEL, _ENGINE))
    because = (
        "" if fewer_bytes is None else f", whose token reads {fmt.fixed(fewer_bytes, 2)}\u00d7 fewer bytes"
    )
    whole, part = lead["paper"], parts.get(_PER_BYTE, {}).get("paper")
    said = ""
    if whole is not None and part is not None:
        shown = [fmt.plain(value) + fmt.TIMES for value in (whole, part)]
        said = f"; in the paper the lead is {shown[0]}, with the engines at {shown[1]} per weight"
    return (
        f"Of cflow\u2019s {_times(lead)} in tokens per second over llama.cpp, {_times(model)} is the model"
        f"{because}{_beside_one(model)}, and {_times(engine)} is the engine, on the same dense weights"
        f"{_beside_one(engine)}{said}."
    )


def _doubt(parts: Mapping[str, Json]) -> str:
    """Why the rounds behind the sentence decide nothing, if they do not."""
    reasons = [
        reason
        for name in (_LEAD, _MODEL, _ENGINE)
        if name in parts
        for reason in (parts[name]["summary"] or {}).get("reasons", ())
    ]
    return "; ".join(dict.fromkeys(reasons))


def _mb_per_token(cell: Json) -> str:
    timed = cell["evidence"]
    arm = timed["figure"]["subject"]["arm"]
    valid = [one["samples"][arm] for one in timed["rounds"] if not one["void"]] or [
        one["samples"][arm] for one in timed["rounds"]
    ]
    return fmt.fixed(sum(s["bytes"] for s in valid) / sum(s["work"] for s in valid) / 1e6, 1)


def _model_of(cell: Json) -> str:
    evidence = cell["evidence"]
    return str(evidence["inputs"].get(f"model of {evidence['figure']['subject']['arm']}", ""))


def _bars(title: str, check_id: str, unit: str, cells: Mapping[str, Json]) -> ScaledBars:
    drawn = [
        (label, cell["value"], fmt.figure(cell["value"], unit, cell["low"], cell["high"]), cell["paper"])
        for label, cell in cells.items()
    ]
    axis = charts.linear_axis([v for _, value, _, paper in drawn for v in (value, paper or 0.0)], most=4)
    alt = f"Axis in {unit} from 0 to {fmt.plain(axis.high)}"
    return ScaledBars(title, check_anchor(check_id), unit, axis, alt, charts.bars(axis, drawn))


def _table(labels: Sequence[str], tokens: Mapping[str, Json], sizes: Mapping[str, Json]) -> Table:
    rows = []
    for label in labels:
        one, size = tokens.get(label), sizes.get(label)
        some = one or size
        assert some is not None
        paper = "" if one is None or one["paper"] is None else fmt.plain(one["paper"])
        figures = []
        for cell, unit in ((one, "tok/s"), (size, "GB/s")):
            figures += (
                ["", ""]
                if cell is None
                else [
                    fmt.figure(cell["value"], unit, cell["low"], cell["high"]),
                    fmt.interval(cell["value"], cell["low"], cell["high"]),
                ]
            )
        found = rounds.counts(some["evidence"], some["summary"])
        rows.append(Row((label, _model_of(some), *figures, _mb_per_token(some), paper, found)))
    columns = (
        Column("Engine"),
        Column("Model"),
        Column("Tokens", numeric=True),
        Column("Interval", numeric=True),
        Column("Weights", numeric=True),
        Column("Interval", numeric=True),
        Column("MB per token", numeric=True),
        Column("Paper, tok/s", numeric=True),
        Column("Rounds"),
    )
    return Table("Different models: compare rows of one model only", columns, tuple(rows))


def end_to_end(results: Results) -> EndToEnd | None:
    """The section, None when no engine was measured."""
    tokens, sizes = _measured(results, TOKENS), _measured(results, BYTES)
    labels = list(dict.fromkeys((*tokens, *sizes)))
    if not labels:
        return None
    parts, active = _parts(results), _measured(results, ACTIVE)
    fewer = next((cell["value"] for cell in active.values()), None)
    panels = (
        _bars("Tokens per second", TOKENS, "tok/s", tokens),
        _bars("Weight bytes per second", BYTES, "GB/s", sizes),
    )
    shown = tuple(panel for panel in panels if panel.bars)
    return EndToEnd(
        sentence=sentence(parts, fewer),
        doubt=_doubt(parts),
        anchor=check_anchor(PARTS),
        panels=shown,
        has_paper=any(bar.paper is not None for panel in shown for bar in panel.bars),
        table=_table(labels, tokens, sizes),
    )
