"""`cflow compare`: what it prints, writes and returns."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Cflow
from tests.reports.made_runs import Made, machine

NEXT = "2026-01-02T00:00:00Z"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A run."""
    return Made().write(tmp_path / "base")


@pytest.fixture
def slower(tmp_path: Path) -> Path:
    """A later run on the same machine, slower in one figure."""
    return Made(seed=2, created=NEXT, speedup=8.1).write(tmp_path / "slower")


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """A run on another machine, with another verdict."""
    return Made(seed=3, machine=machine(cpu__model="Server"), hint=1.06).write(tmp_path / "server")


def test_machines_side_by_side(
    cflow: Cflow, base: Path, server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    outcome = cflow("compare", base, server)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("2 runs: claim 6 has different verdicts")
    assert "opposite verdicts" in outcome.out and "Server" in outcome.out and "not a cause" in outcome.out


def test_text_of_a_run_cannot_command_the_terminal(cflow: Cflow, base: Path, tmp_path: Path) -> None:
    other = Made(seed=3, machine=machine(cpu__model="Ser\x1b[2J\x9bver")).write(tmp_path / "other")
    outcome = cflow("compare", base, other)
    assert outcome.code == 0 and "Ser\\x1b[2J\\x9b" in outcome.out
    assert "\x1b" not in outcome.out and "\x9b" not in outcome.out


def test_a_loss_is_exit_code_1(cflow: Cflow, base: Path, slower: Path) -> None:
    outcome = cflow("compare", base, slower, "--base")
    assert outcome.code == 1
    assert "1 of 9 figures is a confirmed loss: 3.speedup." in outcome.out
    assert cflow("compare", base, slower).code == 0
    assert cflow("compare", slower, base, "--base").code == 0


def test_json(cflow: Cflow, base: Path, slower: Path) -> None:
    outcome = cflow("compare", base, slower, "--base", "--json")
    assert outcome.code == 1
    assert json.loads(outcome.out)["confirmed_losses"] == ["3.speedup"]


def test_a_page_is_written(cflow: Cflow, base: Path, server: Path, tmp_path: Path) -> None:
    outcome = cflow("compare", base, server, "--json", "--out", tmp_path / "compared.html")
    assert outcome.code == 0 and f"wrote {tmp_path / 'compared.html'}" in outcome.err
    assert json.loads(outcome.out)["base"] is None
    assert (tmp_path / "compared.html").read_text().startswith("<!DOCTYPE html>")


def test_what_cannot_be_compared_is_exit_code_2(
    cflow: Cflow, base: Path, server: Path, tmp_path: Path
) -> None:
    refused = {
        "found 1 run(s), allowed: 2 to 26": (base,),
        "--base: found 3 run(s)": (base, server, base, "--base"),
        "are the same folder": (base, base),
        "of different machines: processor: Example 2-core CPU against Server": (base, server, "--base"),
        "no results.json in this folder": (base, tmp_path),
        "a name that ends in .html or .htm": (base, server, "--out", server / "results.json"),
        "none is no folder": (base, server, "--out", tmp_path / "none" / "missing.html"),
    }
    for text, arguments in refused.items():
        outcome = cflow("compare", *arguments)
        assert outcome.code == 2
        assert text in outcome.err
    (server / "results.json").write_text("{")
    outcome = cflow("compare", base, server)
    assert outcome.code == 2 and "results.json: not JSON" in outcome.err


def test_help_has_an_example(cflow: Cflow) -> None:
    outcome = cflow("compare", "--help")
    assert outcome.code == 0 and "Example: cflow compare " in outcome.out
