"""`cflow report`."""

import json
import shutil
from pathlib import Path

import pandas
import pytest

from tests.cli.conftest import Cflow

SAMPLE = Path(__file__).parent.parent / "data" / "results_sample"
TABLES = {"cells", "checks", "columns", "observations", "rounds"}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A copy of the sample run."""
    shutil.copytree(SAMPLE, tmp_path / "run")
    return tmp_path / "run"


def test_the_page_for_a_program(cflow: Cflow, run: Path) -> None:
    outcome = cflow("report", run, "--json")
    assert outcome.code == 0
    assert json.loads(outcome.out) == {"report": str(run / "report.html")}


def test_tables_lie_in_the_run_unless_told_otherwise(cflow: Cflow, run: Path, tmp_path: Path) -> None:
    outcome = cflow("report", run, "--export", "csv")
    assert outcome.code == 0
    assert {Path(line) for line in outcome.out.split()} == {run / "export" / f"{name}.csv" for name in TABLES}
    assert not (run / "report.html").exists()
    outcome = cflow("report", run, "--export", "csv", "--to", tmp_path / "here", "--json")
    found = {table["name"]: table for table in json.loads(outcome.out)["tables"]}
    assert set(found) == TABLES
    checks = pandas.read_csv(found["checks"]["path"])
    assert len(checks) == found["checks"]["rows"] and list(checks.columns) == found["checks"]["columns"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--export", "xlsx"], "parquet"),
        (["--to", "somewhere"], "--export"),
        (["--export", "csv", "--to", "run/results.json"], "results.json"),
    ],
)
def test_usage_errors(
    cflow: Cflow, run: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(run.parent)
    before = (run / "results.json").read_bytes()
    outcome = cflow("report", run, *arguments)
    assert outcome.code == 2 and said in outcome.err
    assert (run / "results.json").read_bytes() == before


def test_parquet_without_pyarrow(cflow: Cflow, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    outcome = cflow("report", run, "--export", "parquet")
    assert outcome.code == 2 and "pip install pyarrow" in outcome.err
    assert not (run / "export").exists()


def test_help_shows_an_example(cflow: Cflow) -> None:
    outcome = cflow("report", "--help")
    assert outcome.code == 0
    for wanted in ("Example: cflow report", "--export", "--to", "--json"):
        assert wanted in outcome.out
