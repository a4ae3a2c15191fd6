"""Timed evidence as tables, facts and charts."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from reports import rounds

Data = dict[str, Any]
Record = Callable[[str], Data]


def timed_cells(data: Data) -> Iterator[Data]:
    """Every timed cell of a run."""
    for record in data["checks"]:
        for cell in record["cells"]:
            if cell["evidence"] and cell["evidence"]["kind"] == "timed":
                yield cell


def test_the_rounds_shown_give_the_figure_shown(data: Data) -> None:
    cells = list(timed_cells(data))
    assert len(cells) == 7
    for cell in cells:
        timed = cell["evidence"]
        found = [rounds.figure_of(one, timed) for one in timed["rounds"] if not one["void"]]
        values = [value for value in found if value is not None]
        assert statistics.median(values) == pytest.approx(cell["value"], rel=1e-3)
        assert sum(cell["low"] <= value <= cell["high"] for value in values) >= 2


def test_measures() -> None:
    sample = {"ns": 50, "work": 2.0, "bytes": 100}
    assert [rounds.side(sample, m) for m in ("time", "speed", "bandwidth")] == [25.0, 0.04, 2.0]


def test_a_round_without_an_arm_or_roof_has_no_figure(record: Record) -> None:
    timed = record("3.roof")["cells"][0]["evidence"]
    one = timed["rounds"][0]
    assert rounds.figure_of(one, timed | {"roof": None}) is None
    assert rounds.figure_of(one | {"samples": {}}, timed) is None
    paired = record("6.hint")["cells"][0]["evidence"]
    samples = {"hint": paired["rounds"][0]["samples"]["hint"]}
    assert rounds.figure_of(paired["rounds"][0] | {"samples": samples}, paired) is None


def test_chart_shows_valid_void_and_control_rounds(record: Record) -> None:
    cell = record("6.hint")["cells"][0]
    chart, caption = rounds.chart(cell["evidence"], cell)
    assert chart is not None and "ratio" in caption
    kinds = [dot.kind for dot in chart.dots]
    assert (kinds.count("valid"), kinds.count("void"), kinds.count("control")) == (22, 2, 22)
    assert chart.middle < chart.one
    alt = rounds.chart_alt(cell["evidence"], cell)
    assert alt.startswith("22 valid rounds between 1.09") and alt.endswith("2 void rounds.")


def test_large_ratios_are_drawn_over_their_median(record: Record) -> None:
    cell = record("3.speedup")["cells"][0]
    chart, caption = rounds.chart(cell["evidence"], cell)
    assert chart is not None and chart.middle == chart.one and "over the median" in caption


def test_no_chart_without_a_figure(record: Record) -> None:
    cell = record("6.hint")["cells"][0]
    assert rounds.chart(cell["evidence"], cell | {"value": None}) == (None, "")


def test_facts_name_rules_and_causes(record: Record) -> None:
    cell = record("6.hint")["cells"][0]
    facts = {fact.label: fact.text for fact in rounds.facts(cell["evidence"], cell["summary"], 0.02)}
    assert facts["A/A control"] == "0.997\u00a0to\u00a01.002, allowed 0.980 to 1.020"
    assert facts["Void because"] == "a worker waited for a core: 2; the host took processor time: 1"
    assert facts["Run"] == "20 rounds wanted, seed 61"
    interrupted = rounds.facts(cell["evidence"] | {"interrupted": True}, None, 0.02)
    assert [(fact.label, fact.text) for fact in interrupted][-1] == (
        "Run",
        "20 rounds wanted, seed 61, interrupted",
    )


def test_roof_is_shown_with_its_patterns(record: Record) -> None:
    cell = record("3.roof")["cells"][0]
    facts = {fact.label: fact.text for fact in rounds.facts(cell["evidence"], cell["summary"], 0.03)}
    assert facts["Roof"] == "42.1\u00a0GB/s with 2 threads, share 0.785"
    table = rounds.roof_table(cell["evidence"])
    assert (
        table is not None
        and table.rows[1].cells[0] == "4 streams"
        and table.rows[1].cells[2].startswith("42.1")
    )
    assert rounds.roof_table(record("6.hint")["cells"][0]["evidence"]) is None


def test_raw_table_keeps_void_rounds_and_says_why(record: Record) -> None:
    table = rounds.raw_table(record("6.hint")["cells"][0]["evidence"])
    void = [row for row in table.rows if row.muted]
    assert len(table.rows) == 24 and len(void) == 2
    assert [row.cells[0] for row in table.rows] == [str(index) for index in range(24)]
    assert (
        void[0].cells[-1]
        == "a worker waited for a core (no hint); a worker waited for a core (no hint (A/A))"
    )
    assert all(len(row.cells) == len(table.columns) for row in table.rows)
    assert table.rows[0].cells[1] == "3 → 1 → 2"


def test_arms_table_gives_medians_over_valid_rounds(record: Record) -> None:
    timed = record("6.hint")["cells"][0]["evidence"]
    rows = {row.cells[0]: row.cells for row in rounds.arms_table(timed).rows}
    assert rows["hint"][2].endswith("ms") and rows["hint"][3] == "286.10\u00a0MiB"
    for one in timed["rounds"]:
        one["void"] = [{"rule": "steal", "arm": None}]
    assert rounds.arms_table(timed).rows[0].cells[2:] == ("–", "–", "–")
