"""The end-to-end section: rows as measured, and a sentence whose figures are those of the decomposition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import html5lib
import pytest

from harness.evidence import Counted, Evidence
from harness.paired import run_pairs
from harness.reductions import Reduction
from harness.registry import parse_registry
from harness.results import Results
from harness.rounds import Figure, Side, Timed, views
from harness.verdict import judge_check, to_json
from reports.end_to_end import end_to_end
from tests.harness.fake import FakeMachine

Data = dict[str, Any]
Load = Callable[[Data], Results]

MOE, DENSE, THEIRS = "cflow, the paper's MoE", "cflow, dense", "llama.cpp, dense"
HEAD = """
claim = "3"
statement = "Made up."
kinds = ["timed", "counted"]
beyond = true
budget_s = { quick = 1 }
"""
CHECKS: dict[str, tuple[str, dict[str, float | None]]] = {
    "e2e.tokens": ("tok/s", {MOE: 5.94, THEIRS: 4.75, DENSE: None}),
    "e2e.bytes": ("GB/s", {MOE: None, THEIRS: None, DENSE: None}),
    "e2e.active": ("ratio", {"": None}),
    "e2e.decomposition": (
        "ratio",
        {
            "lead: tokens": 1.25,
            "engines per weight byte: both": 0.81,
            "model: tokens": None,
            "engine: tokens": None,
        },
    ),
}


def declared() -> str:
    """The checks as claims.toml declares them."""
    text = ""
    for name, (unit, cells) in CHECKS.items():
        text += f'\n[[check]]\nid = "{name}"\nmetric = "made up"\nunit = "{unit}"\n{HEAD}\n'
        for label, paper in cells.items():
            if label:
                text += f'[[check.cells]]\nlabel = "{label}"\n'
                text += "" if paper is None else f"paper = {paper}\n"
    return text


def raced(theirs_ns: float, incidents: Mapping[int, object]) -> Timed:
    """Three arms of 8 tokens: 160 and 240 MB, ours at 100 and 150 ms."""
    machine = FakeMachine(1, incidents)
    arms = [
        machine.arm(MOE, 100e6, 160_000_000 * 8),
        machine.arm(DENSE, 150e6, 240_000_000 * 8),
        machine.arm(THEIRS, theirs_ns, 240_000_000 * 8),
    ]
    inputs = {f"model of {MOE}": "moe", f"model of {DENSE}": "dense", f"model of {THEIRS}": "dense"}
    figure = Figure(Side(MOE, "speed"), None)
    return run_pairs(arms, figure, machine.probes(), control_of=MOE, seed=1, inputs=inputs)


def with_run(data: Data, timed: Timed) -> Data:
    """The sample with an end-to-end run in it."""

    def speed(arm: str) -> Side:
        return Side(arm, "speed")

    found: dict[str, Mapping[str, Evidence]] = {
        "e2e.tokens": views(
            timed, "e2e.tokens", {arm: Figure(speed(arm), None, 1e9) for arm in (MOE, THEIRS, DENSE)}
        ),
        "e2e.bytes": views(
            timed, "e2e.bytes", {arm: Figure(Side(arm, "bandwidth"), None) for arm in (MOE, THEIRS, DENSE)}
        ),
        "e2e.active": {
            "": Counted(
                "made up",
                {"dense_bytes": 240, "moe_bytes": 160},
                Reduction("ratio", ("dense_bytes", "moe_bytes")),
            )
        },
        "e2e.decomposition": views(
            timed,
            "e2e.decomposition",
            {
                "lead: tokens": Figure(speed(MOE), speed(THEIRS)),
                "engines per weight byte: both": Figure(Side(MOE, "bandwidth"), Side(THEIRS, "bandwidth")),
                "model: tokens": Figure(speed(MOE), speed(DENSE)),
                "engine: tokens": Figure(speed(DENSE), speed(THEIRS)),
            },
        ),
    }
    text = data["registry"]["text"] + declared()
    registry, last = parse_registry(text), data["checks"][-1]
    records = [
        {
            **{key: last[key] for key in ("started_ns", "finished_ns", "finished_utc")},
            **to_json(judge_check(registry.check(name), cells)),
            "seq": last["seq"] + index,
            "command": f"pytest claims/ --only {name}",
            "limits": [],
        }
        for index, (name, cells) in enumerate(found.items(), 1)
    ]
    return data | {"registry": data["registry"] | {"text": text}, "checks": [*data["checks"], *records]}


def plain(text: str) -> str:
    return text.replace("\u00a0", " ")


def test_the_sentence_says_the_parts_of_the_lead(data: Data, load: Load) -> None:
    found = end_to_end(load(with_run(data, raced(180e6, {}))))
    assert found is not None
    said = plain(found.sentence)
    for wanted in (
        "Of cflow\u2019s 1.8",
        "(1.79",
        "1.50",
        "is the model, whose token reads 1.50\u00d7 fewer bytes",
        "1.20",
        "is the engine, on the same dense weights",
        "in the paper the lead is 1.25\u00d7, with the engines at 0.81\u00d7 per weight",
    ):
        assert wanted in said, (wanted, said)
    assert said.count(".  ") == 0 and said.endswith(".") and "not told" not in said
    assert found.doubt == ""


def test_an_engine_that_is_no_faster_is_not_called_so(data: Data, load: Load) -> None:
    found = end_to_end(load(with_run(data, raced(150e6, {}))))
    assert found is not None
    assert "is the engine, on the same dense weights, not told from none;" in plain(found.sentence)


def test_rounds_that_decide_nothing_are_said_to(data: Data, load: Load) -> None:
    spoilt = raced(180e6, dict.fromkeys(range(0, 40, 2), "steal"))
    found = end_to_end(load(with_run(data, spoilt)))
    assert found is not None
    assert "more than a third" in found.doubt
    assert found.doubt.count("more than a third") == 1


def test_rows_hold_tokens_bytes_and_what_a_token_reads(data: Data, load: Load) -> None:
    found = end_to_end(load(with_run(data, raced(180e6, {}))))
    assert found is not None
    rows = [tuple(plain(cell) for cell in row.cells) for row in found.table.rows]
    assert [(row[0], row[1]) for row in rows] == [(MOE, "moe"), (THEIRS, "dense"), (DENSE, "dense")]
    assert [row[6] for row in rows] == ["160.0", "240.0", "240.0"]
    assert [row[7] for row in rows] == ["5.94", "4.75", ""]
    assert rows[0][2].startswith(("79.", "80.")) and rows[1][2].startswith("44.")
    assert rows[0][4].startswith(("12.7", "12.8")) and rows[1][4].startswith("10.")
    assert all(len(row) == len(found.table.columns) for row in rows)
    tokens, sizes = found.panels
    assert (tokens.unit, sizes.unit, found.has_paper) == ("tok/s", "GB/s", True)
    # In tokens the MoE is far ahead; on the same engine the bytes per second are the same.
    assert tokens.bars[0].length == pytest.approx(1.5 * tokens.bars[2].length, rel=0.02)
    assert sizes.bars[0].length == pytest.approx(sizes.bars[2].length, rel=0.02)


def test_parts_that_were_not_measured_are_not_made_up(data: Data, load: Load) -> None:
    run = with_run(data, raced(180e6, {}))
    run["checks"] = [one for one in run["checks"] if one["id"] != "e2e.decomposition"]
    found = end_to_end(load(run))
    assert found is not None and "was not measured in this run" in found.sentence


def test_the_page_marks_different_models(data: Data, html: Callable[[Data], str]) -> None:
    page = html(with_run(data, raced(180e6, {})))
    root = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(page)
    section = next(e for e in root.iter() if e.get("id") == "end-to-end")
    text = " ".join("".join(section.itertext()).split())
    assert "Different models" in text and "is the engine, on the same dense weights" in plain(text)
    drawings = [e for e in section.iter() if str(e.tag).endswith("svg")]
    assert len(drawings) == 8
    assert all(e.get("role") == "img" and e[0].text == e.get("aria-label") for e in drawings)
    ids = [e.get("id") for e in root.iter() if e.get("id")]
    assert len(ids) == len(set(ids))
    assert {e.attrib["href"][1:] for e in root.iter() if "href" in e.attrib} <= set(ids)


def test_without_a_run_there_is_no_section(data: Data, load: Load, html: Callable[[Data], str]) -> None:
    assert end_to_end(load(data)) is None
    assert 'id="end-to-end"' not in html(data)
