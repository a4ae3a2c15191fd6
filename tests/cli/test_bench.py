"""`cflow bench`."""

import json
from pathlib import Path

import pytest

from engine.kernels import threads_default
from tests.cli.conftest import Cflow


@pytest.fixture(autouse=True)
def small_roof(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole command with a made-up roof: the real one reads gigabytes."""
    import engine.bench

    roof = engine.bench.Roof(1e15, "made up", {"made up": 1e15})
    monkeypatch.setattr(engine.bench, "measure_roof", lambda threads: roof)


def test_json_has_the_fixed_shape(cflow: Cflow, moe: Path) -> None:
    outcome = cflow("bench", "-m", moe, "-n", 4, "--rounds", 2, "--threads", "1", "--isa", "scalar", "--json")
    assert outcome.code == 0
    found = json.loads(outcome.out)
    assert found["ratios"] == []
    (row,) = found["rows"]
    assert row["engine"] == "cflow"
    assert row["threads"] == 1
    assert row["isa"] == "scalar"
    fixed = {"tok_per_s", "weight_bytes_per_token", "bytes_per_s", "roof_bytes_per_s", "share_of_roof"}
    assert fixed <= row.keys()


def test_table(cflow: Cflow, moe: Path) -> None:
    outcome = cflow("bench", "-m", moe, "-n", 4, "--rounds", 1)
    assert outcome.code == 0
    header, row = outcome.out.splitlines()
    assert "tok/s" in header
    assert row.split()[0] == str(threads_default())


def test_thread_counts_above_the_cores_merge(cflow: Cflow, moe: Path) -> None:
    allowed = threads_default()
    counts = f"{allowed},{allowed + 1}"
    outcome = cflow("bench", "-m", moe, "-n", 2, "--rounds", 1, "--threads", counts, "--json")
    assert outcome.code == 0
    assert [row["threads"] for row in json.loads(outcome.out)["rows"]] == [allowed]
    assert "warning" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["--threads", "one"], "--threads is 'one'"),
        (["--threads", "0"], "--threads is 0"),
        (["-n", "100000"], "context of the model has"),
        (["-n", "4", "--isa", "mmx"], "'mmx' found"),
    ],
)
def test_wrong_arguments(cflow: Cflow, moe: Path, arguments: list[str], fault: str) -> None:
    outcome = cflow("bench", "-m", moe, *arguments)
    assert outcome.code == 2
    assert fault in outcome.err
    assert outcome.out == ""


def test_a_void_roof_is_said(cflow: Cflow, moe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import engine.bench

    roof = engine.bench.Roof(1.0, "made up", {"made up": 1.0})
    monkeypatch.setattr(engine.bench, "measure_roof", lambda threads: roof)
    outcome = cflow("bench", "-m", moe, "-n", 2, "--rounds", 1)
    assert "void" in outcome.out
    assert "no share" in outcome.err
