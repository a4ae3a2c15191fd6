"""The projection: drawn from the evidence alone, and said to be one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import html5lib
import pytest

from harness.evidence import Derived
from harness.reductions import Reduction
from harness.registry import parse_registry
from harness.results import Results
from harness.verdict import judge_check, to_json
from reports.model import Figure
from reports.projection import projection
from tests.reports.figures.made import assert_sound, texts

Data = dict[str, Any]
Load = Callable[[Data], Results]

ROOFS = [70, 100, 160]
DECLARED = """
[[check]]
id = "0.projection"
claim = "3"
statement = "A projection."
metric = "projected tokens per second"
unit = "tok/s"
kinds = ["derived"]
beyond = true
budget_s = { quick = 1 }
[[check.cells]]
label = "large"
paper = 5.94
[[check.cells]]
label = "<small>"
"""


def evidence(weight_bytes: int, share: float) -> Derived:
    """Of one model."""
    return Derived(
        method="roof x share / bytes",
        inputs={
            "machine": "some server",
            "assumed roofs": "70 to 160 GB/s",
            "share of the roof": share,
            "the share is": "assumed",
        },
        observations={
            "lowest_bytes_per_s": 70e9 * share,
            "weight_bytes_per_token": weight_bytes,
            "roof_gb_per_s": ROOFS,
            "tok_per_s": [1e9 * roof * share / weight_bytes for roof in ROOFS],
            "tok_per_s_at_the_roof": [1e9 * roof / weight_bytes for roof in ROOFS],
        },
        reduction=Reduction("ratio", ("lowest_bytes_per_s", "weight_bytes_per_token")),
    )


@pytest.fixture
def projected(data: Data) -> Data:
    """The sample with a projection of two models at half of the roof."""
    text = data["registry"]["text"] + DECLARED
    check = parse_registry(text).check("0.projection")
    cells = {"large": evidence(10_000_000_000, 0.5), "<small>": evidence(100_000_000, 0.5)}
    last = data["checks"][-1]
    record = {
        **{key: last[key] for key in ("started_ns", "finished_ns", "finished_utc")},
        **to_json(judge_check(check, cells)),
        "seq": last["seq"] + 1,
        "command": "pytest claims/ --only 0.projection",
        "limits": [],
    }
    registry = data["registry"] | {"text": text}
    return data | {"registry": registry, "checks": [*data["checks"], record]}


def test_curves_follow_the_evidence(projected: Data, load: Load) -> None:
    found = projection(load(projected))
    assert found is not None
    (figure,) = found.figures
    assert_sound(figure)
    said = figure.alt.replace("\u00a0", " ")
    assert "large, projected: 3.50 to 7.00 tok/s at 70 GB/s, 8.00 to 16.0 tok/s at 160 GB/s" in said
    assert "; the paper: 5.94 tok/s. <small>, projected: 350 to 700 tok/s at 70 GB/s" in said
    assert {"large", "<small>", "the paper\u2019s figure, its roof not stated"} <= set(texts(figure))
    assert "s roof not stated" not in " ".join(texts(without_paper(projected, load)))


def without_paper(projected: Data, load: Load) -> Figure:
    """The figure of the same without the paper's speed."""
    for cell in projected["checks"][-1]["cells"]:
        cell["paper"] = None
    found = projection(load(projected))
    assert found is not None
    return found.figures[0]


def test_the_assumptions_are_printed_and_the_table_holds_every_roof(projected: Data, load: Load) -> None:
    found = projection(load(projected))
    assert found is not None
    assert [(fact.label, fact.text) for fact in found.assumptions] == [
        ("Assumed roof", "70 to 160 GB/s"),
        ("Share of it", "0.5, assumed"),
        ("Formula", "roof x share / bytes"),
    ]
    assert [row.cells for row in found.figures[0].table.rows] == [
        ("70", "3.50", "7.00", "350", "700"),
        ("100", "5.00", "10.0", "500", "1000"),
        ("160", "8.00", "16.0", "800", "1600"),
    ]
    assert all(len(row.cells) == len(found.figures[0].table.columns) for row in found.figures[0].table.rows)


def test_the_page_calls_it_a_projection(projected: Data, html: Callable[[Data], str]) -> None:
    page = html(projected)
    root = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(page)
    section = next(e for e in root.iter() if e.get("id") == "projection")
    text = " ".join("".join(section.itertext()).split())
    for wanted in ("Projection: some server", "not a measurement", "0.5, assumed", "<small>"):
        assert wanted in text, wanted
    drawings = [e for e in section.iter() if str(e.tag).endswith("svg")]
    assert [e.get("class") for e in drawings] == ["plot-wide", "plot-narrow"]
    ids = [e.get("id") for e in root.iter() if e.get("id")]
    assert len(ids) == len(set(ids))
    assert {e.attrib["href"][1:] for e in root.iter() if "href" in e.attrib} <= set(ids)


def test_without_a_projection_there_is_no_section(
    data: Data, load: Load, html: Callable[[Data], str]
) -> None:
    assert projection(load(data)) is None
    assert 'id="projection"' not in html(data)
