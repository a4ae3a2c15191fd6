"""`cflow explain`: claims and checks in words, at the width of the terminal."""

import json
from pathlib import Path

import pytest

from cli.claim_pages import SECTIONS, page_folders, sections
from harness.kinds import CLAIM_IDS
from harness.registry import load_registry
from tests.cli.conftest import Cflow

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "tests/data/results_sample"


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The claims of the sample in place of those of the package."""
    path = SAMPLE / "claims.toml"
    monkeypatch.setattr("cli.registry.claims_path", lambda: path)
    return path


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder of pages."""
    monkeypatch.setattr("cli.claim_pages.page_folders", lambda: (tmp_path / "none", tmp_path))
    return tmp_path


def flat(text: str) -> str:
    """Without the line breaks."""
    return " ".join(text.split())


def test_explain_every_claim_and_check(cflow: Cflow, registry: Path, pages: Path) -> None:
    known = load_registry(registry)
    for claim in known.claims:
        outcome = cflow("explain", claim.id)
        assert outcome.code == 0
        assert flat(claim.statement) in flat(outcome.out)
        assert ("not built yet" in outcome.out) is not claim.built
        assert (f"pytest claims/ --only {claim.id}\n" in outcome.out) is claim.built
    for check in known.checks:
        outcome = cflow("explain", check.id)
        assert flat(check.statement) in flat(outcome.out)
        assert f"--only {check.id}" in outcome.out
        found = json.loads(cflow("explain", check.id, "--json").out)
        assert found["id"] == check.claim
        assert [item["id"] for item in found["checks"]] == [check.id]


def test_alone_it_lists_the_claims(cflow: Cflow, registry: Path) -> None:
    outcome = cflow("explain")
    assert outcome.code == 0
    firsts = [line.split()[0] for line in outcome.out.splitlines() if line and not line.startswith(" ")]
    assert tuple(firsts[: len(CLAIM_IDS)]) == CLAIM_IDS
    as_json = json.loads(cflow("explain", "--json").out)
    assert tuple(claim["id"] for claim in as_json["claims"]) == CLAIM_IDS


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("99", "no claim or check '99'; claims are 1, 2"),
        ("7.lw", "did you mean 7.law"),
        ("7.LAW", "did you mean 7.law"),
        ("end-to-end", "did you mean end_to_end?"),
    ],
)
def test_an_unknown_name_gets_the_nearest(cflow: Cflow, registry: Path, name: str, words: str) -> None:
    outcome = cflow("explain", name)
    assert outcome.code == 2
    assert words in outcome.err


@pytest.mark.parametrize("columns", [50, 80, 110])
def test_lines_fit_the_terminal(
    cflow: Cflow, registry: Path, pages: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    (pages / "7.md").write_text(f"## Background\n\n{'word ' * 60}\n\n- {'other ' * 40}\n")
    for words in (["explain"], ["explain", "7"], ["explain", "7.law"]):
        lines = cflow(*words).out.splitlines()
        assert all(len(line) <= columns for line in lines), words


def test_the_page_of_a_claim_is_part_of_it(cflow: Cflow, registry: Path, pages: Path) -> None:
    (pages / "7.md").write_text(
        "# Claim 7\n\n```{include} x\n```\n\n## Background\n\nWhat *they* do.\n\n## What we do\n\nWe count.\n"
        "## How it could fool us\n\n- *Badly.* With `7.law` alone.\n\n## Its checks\n\nNot shown.\n"
    )
    out = cflow("explain", "7").out
    places = [out.index(name) for name in SECTIONS]
    assert places == sorted(places)
    assert "What they do." in out and "Badly. With 7.law alone." in out
    assert "Not shown" not in out and "include" not in out and "\x1b" not in out
    assert "What they do." not in cflow("explain", "7.law").out
    text = json.loads(cflow("explain", "7", "--json").out)["text"]
    assert text["What we do"] == "We count."


def test_the_first_folder_that_has_a_page_gives_it(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.md").write_text(f"## Background\n\n{name}\n")
    assert sections("1", (tmp_path / "none", tmp_path / "b", tmp_path / "a")) == {"Background": "b"}
    assert sections("2", (tmp_path / "a",)) == {}


@pytest.mark.parametrize("claim_id", CLAIM_IDS)
def test_every_claim_has_a_page_with_the_sections_that_are_shown(claim_id: str) -> None:
    assert tuple(sections(claim_id)) == SECTIONS
    assert page_folders()[0] == ROOT / "docs/claims"
