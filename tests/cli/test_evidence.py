"""`cflow check` and `cflow report`."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cflow

SAMPLE = Path(__file__).parent.parent / "data" / "results_sample"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A copy of the sample run, to be spoilt."""
    shutil.copytree(SAMPLE, tmp_path / "run")
    return tmp_path / "run"


def test_check_of_a_good_run(cflow: Cflow, results: Path) -> None:
    outcome = cflow("check", results)
    assert outcome.code == 0
    assert outcome.err == ""
    assert "every verdict follows from the raw data" in outcome.out
    found = json.loads(cflow("check", results, "--json").out)
    assert [claim["id"] for claim in found["claims"]][:2] == ["1", "2"]
    assert found["problems"] == []


def test_text_of_a_run_cannot_command_the_terminal(cflow: Cflow, results: Path) -> None:
    path = results / "results.json"
    data: dict[str, Any] = json.loads(path.read_text())
    text = data["registry"]["text"]
    for key, value in (("id", "8"), ("id", "7.path"), ("unit", "ratio")):
        assert f'{key} = "{value}"' in text
        text = text.replace(f'{key} = "{value}"', f'{key} = "{value}\\u001b[2J\\n"')
    data["registry"]["text"] = text
    path.write_text(json.dumps(data))
    outcome = cflow("check", results)
    assert outcome.code == 1
    for value in ("8", "7.path", "ratio"):
        assert f"{value}\\x1b[2J\\n" in outcome.out
    assert "\x1b" not in outcome.out + outcome.err


def test_check_of_a_run_with_a_flipped_verdict(cflow: Cflow, results: Path) -> None:
    path = results / "results.json"
    data: dict[str, Any] = json.loads(path.read_text())
    record = next(record for record in data["checks"] if record["verdict"] == "SUPPORTED")
    record["verdict"] = "REFUTED"
    path.write_text(json.dumps(data))
    outcome = cflow("check", results)
    assert outcome.code == 1
    assert f"problem: {record['id']}: " in outcome.err
    as_json = cflow("check", results, "--json")
    assert as_json.code == 1
    assert json.loads(as_json.out)["problems"]


@pytest.mark.parametrize("command", ["check", "report"])
def test_missing_or_damaged_results(cflow: Cflow, results: Path, command: str) -> None:
    (results / "results.json").write_text("{")
    outcome = cflow(command, results)
    assert outcome.code == 2
    assert "results.json" in outcome.err
    (results / "results.json").unlink()
    assert cflow(command, results).code == 2
    assert not (results / "report.html").exists()


def test_report_writes_the_page(cflow: Cflow, results: Path) -> None:
    outcome = cflow("report", results)
    assert outcome.code == 0
    page = Path(outcome.out.strip())
    assert page == results / "report.html"
    assert page.read_text().lower().startswith("<!doctype html>")
