"""The page as a file: self-contained, valid, accessible, safe, deterministic."""

from __future__ import annotations

import base64
import hashlib
import html as html_text
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import html5lib
import pytest

import reports
from harness.errors import ResultsError
from harness.registry import parse_registry
from harness.results import Results
from reports.environment import environment
from reports.render import MAX_BYTES
from reports.render import page as page_of

Data = dict[str, Any]
Render = Callable[[Data], str]
NOT_CHECKED: Data = {"claims": [], "problems": []}


def tree(page: str) -> ElementTree.Element:
    """The parsed page; any fault of the HTML is an error."""
    parser = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False)
    parsed: ElementTree.Element = parser.parse(page)
    return parsed


def local(element: ElementTree.Element) -> str:
    """Tag name without a namespace."""
    return str(element.tag).rpartition("}")[2]


def text_of(element: ElementTree.Element) -> str:
    """All text below an element, with runs of space joined."""
    return " ".join("".join(element.itertext()).split())


def by_id(root: ElementTree.Element, name: str) -> ElementTree.Element:
    """The element with that id."""
    return next(element for element in root.iter() if element.get("id") == name)


def classed(root: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    """Elements with that class."""
    return [element for element in root.iter() if name in (element.get("class") or "").split()]


def many_checks(data: Data, count: int) -> Results:
    """The sample with `count` more timed checks, declared and recorded."""
    record = next(item for item in data["checks"] if item["id"] == "6.hint")
    block = data["registry"]["text"].partition('id = "6.hint"')[2].partition("[[check]]")[0]
    names = [f"6.more_{index}" for index in range(count)]
    text = data["registry"]["text"] + "".join(f'\n[[check]]\nid = "{name}"{block}' for name in names)
    more = [record | {"id": name} for name in names]
    return Results(Path("many"), data | {"checks": [*data["checks"], *more]}, parse_registry(text))


def test_render_writes_one_file_beside_the_results(data: Data, load: Callable[[Data], Results]) -> None:
    folder = load(data).directory
    assert reports.render(folder) == folder / "report.html"
    assert sorted(path.name for path in folder.iterdir()) == ["report.html", "results.json"]


def test_a_damaged_run_leaves_the_old_report_alone(data: Data, load: Callable[[Data], Results]) -> None:
    folder = load(data).directory
    before = reports.render(folder).read_bytes()
    (folder / "results.json").write_text('{"schema_version": 1', encoding="utf-8")
    with pytest.raises(ResultsError, match="results.json"):
        reports.render(folder)
    assert (folder / "report.html").read_bytes() == before
    assert sorted(path.name for path in folder.iterdir()) == ["report.html", "results.json"]


def test_the_same_run_gives_the_same_bytes(data: Data, load: Callable[[Data], Results]) -> None:
    folder = load(data).directory
    first = reports.render(folder).read_bytes()
    assert reports.render(folder).read_bytes() == first
    assert str(folder.parent).encode() not in first


def test_nothing_is_fetched_and_only_the_own_script_runs(sample_page: str) -> None:
    root = tree(sample_page)
    assert {local(e) for e in root.iter()}.isdisjoint({"link", "img", "iframe", "object", "embed", "form"})
    for element in root.iter():
        assert not [name for name in element.attrib if str(name).lower().startswith("on")]
        assert not {"src", "srcset", "data", "action"} & set(element.attrib)
        for name, value in element.attrib.items():
            if str(name).endswith("href"):
                assert value.startswith("#")
    style = text_of(next(e for e in root.iter() if local(e) == "style"))
    assert "url(" not in style and "@import" not in style
    assert not re.search(r"(?:https?:)?//\w", sample_page.partition("</style>")[0])
    (script,) = (e for e in root.iter() if local(e) == "script")
    text = script.text or ""
    assert text == environment().get_template("script.js.j2").render()
    assert not re.search(r"fetch|XMLHttp|WebSocket|import\b|eval|innerHTML|document\.write|://", text)
    policy = next(e for e in root.iter() if e.get("http-equiv") == "Content-Security-Policy").attrib[
        "content"
    ]
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    assert policy.startswith("default-src 'none'; ") and f"script-src 'sha256-{digest}'" in policy


def test_without_the_script_no_button_is_there(sample_page: str) -> None:
    assert not [e for e in tree(sample_page).iter() if local(e) in ("button", "input", "select")]


def test_html_is_valid(sample_page: str, tmp_path: Path) -> None:
    root = tree(sample_page)
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    fragments = {e.attrib["href"][1:] for e in root.iter() if "href" in e.attrib}
    assert fragments <= set(ids)
    tidy = shutil.which("tidy")
    if tidy:
        (tmp_path / "page.html").write_text(sample_page, encoding="utf-8")
        command = [tidy, "-quiet", "-errors", "-utf8", str(tmp_path / "page.html")]
        assert subprocess.run(command, capture_output=True, text=True).stderr == ""


def test_every_drawing_has_a_text_alternative_and_every_chart_a_table(sample_page: str) -> None:
    root = tree(sample_page)
    drawings = [element for element in root.iter() if local(element) == "svg"]
    assert len(drawings) > 10
    for drawing in drawings:
        assert drawing.get("role") == "img"
        assert (drawing.get("aria-label") or "").strip()
        assert local(drawing[0]) == "title" and drawing[0].text == drawing.get("aria-label")
    charts = [e for e in root.iter() if local(e) == "figure" and e.get("aria-labelledby")]
    assert [chart.get("aria-labelledby") for chart in charts] == [
        *("bars-7", "figure-schedule-title", "figure-streams-title", "forest-title"),
        "figure-roofline-title",
    ]
    for chart in charts:
        assert [e for e in chart.iter() if local(e) == "table"]
        assert text_of(by_id(root, str(chart.get("aria-labelledby"))))


def test_wide_tables_scroll_inside_their_own_box(sample_page: str) -> None:
    root = tree(sample_page)
    boxed = {id(table) for box in classed(root, "scroll") for table in box.iter() if local(table) == "table"}
    tables = [e for e in root.iter() if local(e) == "table"]
    assert tables and all(id(table) in boxed for table in tables)
    assert all(box.get("tabindex") == "0" and box.get("aria-label") for box in classed(root, "scroll"))


def test_first_screen_has_a_row_for_every_claim_with_verdict_in_words(data: Data, sample_page: str) -> None:
    root = tree(sample_page)
    ledger = classed(root, "ledger")[0]
    rows = [text_of(row) for row in classed(ledger, "body")[0]]
    assert len(rows) == len(data["claims"]) == 11
    for row, claim in zip(rows, data["claims"], strict=True):
        assert claim["title"] in row and claim["verdict"] in row
        assert ("Not built yet" in row) is not claim["built"]
    quantity = "speed, hint over no hint timed"
    assert rows[5] == f"6Explicit PREFETCHT0 \u2715REFUTED 1.101\u00d7 1.098 to 1.104 1.00\u00d7 {quantity}"
    assert root.find(".//h1").text == (
        "On this machine the paper\u2019s claims 1, 2, 3 and 7 are supported, claim 6 is refuted, "
        "claim 8 is inconclusive and claims 4 and 5 are not built yet."
    )
    beyond = [text_of(row) for row in classed(by_id(root, "beyond"), "row")]
    path = "1.33\u00d7 2.00\u00d7 The longest dependency path by bytes shrinks as the law says. counted"
    assert beyond[1] == f"7.path \u2715REFUTED {path}"
    assert beyond[2].startswith("7.time \u2715REFUTED 1.012\u00d7 1.006 to 1.013 The same weights in RAM")
    assert len(beyond) == 3


def test_page_holds_what_a_reader_needs_to_judge_a_check(sample_page: str) -> None:
    section = text_of(by_id(tree(sample_page), "check-6.hint"))
    for wanted in (
        "With weights in RAM, PREFETCHT0 gives no benefit.",
        "at most 1.03×",
        "22 valid, 2 void",
        "0.997 to 1.002",
        "Interval outside the target",
        "One distance: 8 KiB",
        "pytest claims/ --only 6.hint --profile quick",
        "confidence 95 %",
        "allowed 0.980 to 1.020",
        "a worker waited for a core (no hint)",
        "the host took processor time",
        "seed 61",
        "79 870 917",
    ):
        assert wanted in section.replace("\u202f", " "), wanted


def test_exact_evidence_shows_observations_inputs_and_reduction(sample_page: str) -> None:
    section = text_of(by_id(tree(sample_page), "check-2.l1.simulated")).replace("\u202f", " ")
    for wanted in (
        "9 830 400",
        "sum of row major over sum of tiled",
        "L1-d 32 KiB 8-way 64 B",
        "columns32 768",
    ):
        assert wanted in section, wanted


def test_a_recorded_figure_is_not_said_to_have_passed(sample_page: str) -> None:
    section = text_of(by_id(tree(sample_page), "check-0.regime"))
    assert "RECORDED" in section and "none, recorded only" in section
    assert not re.search("SUPPORTED|passed", section)


def test_text_from_a_run_is_escaped_everywhere(
    data: Data, html: Render, record: Callable[[str], Data]
) -> None:
    evil = "<script>alert(1)</script>\"'&{{ 7 * 7 }}"
    spelled = json.dumps(evil)
    old = "PREFETCHT0 gives no benefit."
    data["registry"]["text"] = data["registry"]["text"].replace(f'"With weights in RAM, {old}"', spelled)
    data["registry"]["text"] = data["registry"]["text"].replace('"Explicit PREFETCHT0"', spelled)
    data["registry"]["text"] = data["registry"]["text"].replace('"tok/s, (1,2) over (0,0)"', spelled)
    data["machine"]["before"]["cpu"]["model"] = evil
    data["machine"]["before"][evil] = evil
    data["build"][evil] = evil
    data["run"]["command"] = evil
    data["run"]["options"]["model"] = evil
    timed = record("7.time")
    timed["limits"], timed["command"], timed["reason"] = [evil], evil, evil
    timed["cells"][0]["evidence"]["inputs"]["model"] = evil
    timed["cells"][0]["evidence"]["arms"][0]["description"] = evil
    exact = record("1.resident")["cells"][0]["evidence"]
    exact["method"], exact["inputs"][evil] = evil, evil
    page = html(data)
    root = tree(page)
    assert len([e for e in root.iter() if local(e) == "script"]) == page.count("<script") == 1
    assert page.count("&lt;script&gt;") > 15
    assert evil in html_text.unescape(page) and "49" not in text_of(by_id(root, "claim-6"))[:40]


def test_a_run_of_many_checks_keeps_its_raw_rounds(data: Data) -> None:
    before = len(data["checks"]) + 1
    made = page_of(many_checks(data, 100), NOT_CHECKED)
    assert len(made.encode()) < MAX_BYTES
    assert made.count('<article class="check"') == before + 100
    assert made.count("<summary>Raw rounds (24)</summary>") > 100


def test_five_hundred_checks_take_less_than_five_megabytes(data: Data) -> None:
    made = page_of(many_checks(data, 500), NOT_CHECKED)
    assert made.count('<article class="check"') > 500
    assert len(made.encode()) < 4_500_000


def test_a_page_too_large_says_where_the_raw_rounds_are(data: Data, load: Callable[[Data], Results]) -> None:
    results = load(data)
    full = page_of(results, NOT_CHECKED)
    fits = page_of(results, NOT_CHECKED, max_bytes=len(full.encode()) + 1)
    short = page_of(results, NOT_CHECKED, max_bytes=len(full.encode()))
    where = "The raw rounds are in results.json"
    assert fits == full and where not in full and "Raw rounds (24)" in full
    assert where in short and "Raw rounds (24)" not in short and "22 valid, 2 void" in short


def test_missing_optional_fields_do_not_matter(data: Data, html: Render) -> None:
    data["machine"] = {"before": {}, "after": None}
    data["run"] |= {
        "commit": None,
        "dirty": None,
        "finished_utc": None,
        "resumed_utc": ["2026-01-01T01:00:00Z"],
    }
    data["build"] = {}
    data["checks"] = [item for item in data["checks"] if item["id"] != "6.hint"]
    for item in data["checks"]:
        item["paper"], item["limits"] = None, []
        for cell in item["cells"]:
            cell["paper"] = None
            evidence = cell["evidence"] or {}
            if "inputs" in evidence:
                evidence["inputs"] = {}
            if evidence.get("rounds"):
                evidence["rounds"] = evidence["rounds"][:1]
                cell["summary"] |= {"a_a": None, "halves": None, "share": None}
    page = text_of(tree(html(data)))
    for wanted in ("not a checkout", "The run has not finished", "The run was resumed 1 time.", "Not run"):
        assert wanted in page, wanted


def test_a_run_without_any_record_renders(data: Data, html: Render) -> None:
    data["checks"] = []
    root = tree(html(data))
    assert not [e for e in root.iter() if local(e) == "svg"]
    assert len(classed(root, "row")) >= 11


def test_the_checkers_problems_are_shown(data: Data, html: Render, record: Callable[[str], Data]) -> None:
    record("6.hint")["verdict"] = "SUPPORTED"
    page = html(data)
    section = text_of(by_id(tree(page), "checker"))
    assert "6.hint: verdict is SUPPORTED, the raw material gives REFUTED" in section
    assert "do not trust this page" in section
    assert 'class="alarm"' in page


def test_run_machine_build_and_registry_are_on_the_page(data: Data, sample_page: str) -> None:
    root = tree(sample_page)
    assert "average 1m0.121.05" in text_of(by_id(root, "machine"))
    assert "governornot availablethe same" in text_of(by_id(root, "machine"))
    assert "compilergcc 12.2.0" in text_of(by_id(root, "run"))
    assert data["registry"]["sha256"] in text_of(by_id(root, "registry"))
    assert 'id = "7.law"' in text_of(by_id(root, "registry"))


def _luminance(colour: str) -> float:
    digits = colour.lstrip("#")
    digits = "".join(2 * d for d in digits) if len(digits) == 3 else digits
    channels = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_has_contrast_in_light_dark_and_print(sample_page: str) -> None:
    style = sample_page.partition("<style>")[2].partition("</style>")[0]
    assert "prefers-color-scheme: dark" in style and "@media print" in style
    palettes = [
        dict(re.findall(r"--([\w-]+): (#\w+);", block))
        for block in re.findall(r":root \{(.*?)\}", style, re.S)
    ]
    assert len(palettes) == 3
    for palette in palettes:
        pairs = [(name, "paper") for name in ("ink", "soft", "faint", "yes", "no")]
        for text, ground in [*pairs, ("on", "yes"), ("on", "no")]:
            light, dark = sorted((_luminance(palette[text]), _luminance(palette[ground])), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (text, ground, palette)
