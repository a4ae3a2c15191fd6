"""The page of a comparison: self-contained, valid, safe, deterministic."""

from __future__ import annotations

import re
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from harness.errors import ComparisonError
from reports.compare import Comparison, compare, to_html, write_page
from tests.reports.made_runs import Made, machine
from tests.reports.test_page import by_id, classed, local, text_of, tree

NOW = datetime(2026, 6, 1, tzinfo=UTC)
EVIL = "<script>alert(1)</script>\"'&{{ 7 * 7 }}"


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """Three machines with names that HTML must escape."""
    folder = tmp_path_factory.mktemp("machines")
    server = machine(cpu__model=EVIL, cpu__physical=16, memory__transparent_huge_pages="always")
    made = (
        Made(),
        Made(seed=2, machine=server, hint=1.06, hardware=7.0, dirty=True),
        Made(seed=3, machine=machine(cpu__model="Laptop", cpu__caches=[]), build={"engine": EVIL}),
    )
    return compare([one.write(folder / f"run-{index}") for index, one in enumerate(made)], now=NOW)


@pytest.fixture(scope="module")
def based(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """A run against its base, with a loss, a movement, and changed verdicts."""
    folder = tmp_path_factory.mktemp("based")
    new = Made(seed=2, created="2026-01-02T00:00:00Z", speedup=8.1, hint=1.06, roof=0.7)
    return compare([Made().write(folder / "base"), new.write(folder / "new")], based=True, now=NOW)


@pytest.fixture(scope="module", params=["machines", "based"])
def page(request: pytest.FixtureRequest) -> str:
    """Either page."""
    return to_html(request.getfixturevalue(request.param))


def test_html_is_valid_and_links_lead_somewhere(page: str, tmp_path: Path) -> None:
    root = tree(page)
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    assert {e.attrib["href"][1:] for e in root.iter() if "href" in e.attrib} <= set(ids)
    tidy = shutil.which("tidy")
    if tidy:
        (tmp_path / "page.html").write_text(page, encoding="utf-8")
        command = [tidy, "-quiet", "-errors", "-utf8", str(tmp_path / "page.html")]
        assert subprocess.run(command, capture_output=True, text=True).stderr == ""


def test_nothing_is_fetched_and_nothing_runs(page: str) -> None:
    root = tree(page)
    assert {local(e) for e in root.iter()}.isdisjoint({"script", "link", "img", "iframe", "object", "embed"})
    for element in root.iter():
        assert not [name for name in element.attrib if str(name).lower().startswith("on")]
    assert not re.search(r"(?:https?:)?//\w", page.partition("</style>")[0])


def test_tables_scroll_in_their_own_box_and_drawings_have_words(page: str) -> None:
    root = tree(page)
    boxed = {id(table) for box in classed(root, "scroll") for table in box.iter() if local(table) == "table"}
    tables = [element for element in root.iter() if local(element) == "table"]
    assert tables and all(id(table) in boxed for table in tables)
    for drawing in (element for element in root.iter() if local(element) == "svg"):
        assert drawing.get("role") == "img" and (drawing.get("aria-label") or "").strip()


def test_names_from_a_run_are_escaped(machines: Comparison) -> None:
    root = tree(to_html(machines))
    assert "script" not in {local(element) for element in root.iter()}
    assert EVIL in text_of(by_id(root, "machines")) and EVIL in text_of(by_id(root, "runs"))


def test_the_page_of_machines(machines: Comparison) -> None:
    root = tree(to_html(machines))
    heading = text_of(next(e for e in root.iter() if local(e) == "h1"))
    assert heading == "3 runs: claim 6 has different verdicts; the other 10 have not."
    claims = text_of(by_id(root, "claims"))
    assert "6Explicit PREFETCHT0\u2713SUPPORTED\u2715REFUTED\u2713SUPPORTED" in claims
    differences = text_of(by_id(root, "differences"))
    assert "6.hinttimedopposite verdicts" in differences and "not a cause" in differences
    assert "huge pages: A madvise, B always, C madvise" in differences
    assert "Built from uncommitted changes" in text_of(by_id(root, "runs"))
    assert "moves" not in {element.get("id") for element in root.iter()}


def test_the_page_of_a_base(based: Comparison) -> None:
    root = tree(to_html(based))
    heading = text_of(next(e for e in root.iter() if local(e) == "h1"))
    assert heading == "Against the base, 2 of 9 figures are confirmed losses: 3.speedup and 6.hint."
    moves = text_of(by_id(root, "moves"))
    assert "3.speedupconfirmed loss0.90" in moves and "lower is worse" in moves
    assert "6.hintSUPPORTEDREFUTED" in moves
    drawings = [
        e for e in root.iter() if local(e) == "svg" and "new over base" in (e.get("aria-label") or "")
    ]
    assert len(drawings) == 6


def test_the_same_runs_give_the_same_bytes_and_no_path(based: Comparison, tmp_path: Path) -> None:
    target = tmp_path / "compared.html"
    write_page(based, target)
    first = target.read_bytes()
    write_page(based, target)
    assert target.read_bytes() == first
    assert str(based.runs[0].results.directory.parent).encode() not in first
    assert [path.name for path in tmp_path.iterdir()] == ["compared.html"]


@pytest.mark.parametrize("name", ["results.json", "page", "page.HTML.bak"])
def test_a_page_does_not_replace_what_is_none(based: Comparison, tmp_path: Path, name: str) -> None:
    with pytest.raises(
        ComparisonError, match=r"--out: found .*, allowed: a name that ends in \.html or \.htm"
    ):
        write_page(based, tmp_path / name)
    assert not list(tmp_path.iterdir())
