"""Time per token, derived from what a run holds."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import pytest

from harness.results import Results
from reports import meaning

Data = dict[str, Any]
Load = Callable[[Data], Results]
Record = Callable[[str], Data]

TOKENS = '"speed, hint over no hint"'


@pytest.fixture
def hints_per_token(data: Data) -> Data:
    """The sample, with the arms of 6.hint decoding tokens."""
    text = data["registry"]["text"]
    block = text.partition('id = "6.hint"')[2].partition("[[check]]")[0]
    metric = next(line for line in block.splitlines() if line.startswith("metric"))
    data["registry"]["text"] = text.replace(
        block, block.replace(metric, 'metric = "tokens per second, hint over none"')
    )
    return data


def rows(results: Results, claim_id: str) -> list[tuple[str, ...]]:
    """The cells of the table, none without one."""
    table = meaning.per_token(results, claim_id)
    return [row.cells for row in table.rows] if table else []


def milliseconds(text: str) -> float:
    """The time in a cell such as `hint: 9.09 ms (9.07 to 9.12)`."""
    return float(text.partition(": ")[2].partition("\u00a0ms")[0])


def test_a_ratio_of_two_arms_gives_the_time_of_a_token_of_each(
    hints_per_token: Data, load: Load, record: Record
) -> None:
    cell = record("6.hint")["cells"][0]
    plain = [one["samples"]["no hint"] for one in cell["evidence"]["rounds"] if not one["void"]]
    reference = statistics.median(sample["ns"] / sample["work"] for sample in plain) / 1e6
    ((name, before, after, how),) = rows(load(hints_per_token), "6")
    assert name == "6.hint"
    assert before == f"no hint: {reference:.2f}\u00a0ms"
    low, high = reference / cell["high"], reference / cell["low"]
    middle = reference / cell["value"]
    assert after == f"hint: {middle:.2f}\u00a0ms ({low:.2f}\u00a0to\u00a0{high:.2f})"
    assert how == "no hint: median of 22 valid rounds; hint: by the ratio"


def test_an_inconclusive_ratio_is_called_so(hints_per_token: Data, load: Load, record: Record) -> None:
    record("6.hint")["cells"][0]["verdict"] = "INCONCLUSIVE"
    table = meaning.per_token(load(hints_per_token), "6")
    assert table is not None
    assert table.rows[0].muted and table.rows[0].cells[-1].endswith(
        "hint: by the ratio, which is inconclusive"
    )


def test_half_the_speed_is_twice_the_time(hints_per_token: Data, load: Load, record: Record) -> None:
    (cell,) = record("6.hint")["cells"]
    cell["value"], cell["low"], cell["high"] = 0.5, 0.5, 0.5
    ((_, before, after, _),) = rows(load(hints_per_token), "6")
    assert milliseconds(after) == pytest.approx(2 * milliseconds(before), abs=0.02)


def test_a_ratio_of_times_multiplies(hints_per_token: Data, load: Load, record: Record) -> None:
    (cell,) = record("6.hint")["cells"]
    for side in ("subject", "reference"):
        cell["evidence"]["figure"][side]["measure"] = "time"
    cell["value"], cell["low"], cell["high"] = 2.0, 2.0, 2.0
    ((_, before, after, _),) = rows(load(hints_per_token), "6")
    assert milliseconds(after) == pytest.approx(2 * milliseconds(before), abs=0.02)


@pytest.mark.parametrize("change", ["metric", "valid", "value", "measure", "unit", "model", "bytes"])
def test_nothing_is_derived_where_the_run_does_not_hold_what_it_takes(
    data: Data, hints_per_token: Data, load: Load, record: Record, change: str
) -> None:
    (cell,) = record("6.hint")["cells"]
    evidence = cell["evidence"]
    figure = evidence["figure"]
    if change == "metric":
        data["registry"]["text"] = data["registry"]["text"].replace("tokens per second, hint", "speed, hint")
    elif change == "valid":
        for one in evidence["rounds"]:
            one["void"] = [{"rule": "steal", "arm": None}]
    elif change == "value":
        cell["value"] = cell["low"] = cell["high"] = None
    elif change == "measure":
        figure["subject"]["measure"] = "computing"
    elif change == "unit":
        cell["unit"] = "share"
    elif change == "model":
        sides = {"arm": "no hint", "measure": "time"}
        figure["reference"] = {"compute": sides, "read": sides, "terms": [[1.0, 1.0]]}
    else:
        figure["subject"]["measure"] = figure["reference"]["measure"] = "bandwidth"
        evidence["rounds"][0]["samples"]["hint"]["bytes"] += 1
    assert rows(load(data), "6") == []


def test_bytes_are_divided_by_the_best_roof_of_the_run(data: Data, load: Load, record: Record) -> None:
    for cell in record("7.law")["cells"][1:]:
        cell["unit"] = "MiB/token"
    roof = meaning.best_roof(load(data))
    assert roof is not None and roof.threads == 2
    assert roof.bytes_per_ns == pytest.approx(4e9 / 95e6)
    found = rows(load(data), "7")
    law = next(cells for cells in found if cells[0] == "7.law, arch1")
    assert law[2].startswith("at least ") and "9.00\u00a0MiB over 42.1\u00a0GB/s" in law[3]
    expected = 9 * 2**20 / roof.bytes_per_ns / 1e3
    assert law[2] == f"at least {expected:.2f}\u00a0\u00b5s"
    assert sum(1 for cells in found if cells[0].startswith("7.law")) <= 3


def test_no_roof_no_time_from_bytes(data: Data, load: Load, record: Record) -> None:
    record("7.law")["cells"][1]["unit"] = "MiB/token"
    data["checks"] = [item for item in data["checks"] if item["kind"] != "timed"]
    assert meaning.best_roof(load(data)) is None
    assert rows(load(data), "7") == []
