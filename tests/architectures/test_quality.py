"""The series of runs: its order, that it goes on, and what it records."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from architectures import quality
from architectures.errors import ArchitectureError, CheckpointError, DivergedError
from architectures.quality import SEEDS, export, series
from architectures.quality_file import SUMMARY_NAME, Run, Settings

SMALL = Settings("small_test", 3, "f32")


def test_every_prefix_of_the_series_is_paired() -> None:
    runs = series()
    assert len(runs) == len(set(runs)) == 35
    assert [run.architecture for run in runs[:7]] == list(SEEDS)
    for end in range(len(runs)):
        done = runs[:end]
        combined = [run.seed for run in done if run.architecture == "arch2_4_combined"]
        sync = [run.seed for run in done if run.architecture == "arch2_4_sync"]
        assert len(combined) - len(sync) in (0, 1)


def test_a_series_records_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from architectures import trainer
    from tests.architectures.texts import small_data
    from tests.architectures.training import use_small_preset

    use_small_preset()
    data = small_data(tmp_path)
    monkeypatch.setattr(quality, "SEEDS", {"arch2_4_combined": 2, "arch4": 1, "arch1": 1})
    real, calls = trainer.train, []

    def sometimes(arguments: Any, *rest: Any) -> Any:
        calls.append(Run(arguments.architecture, arguments.seed))
        if arguments.architecture == "arch4":
            real(replace(arguments), *rest)
            raise DivergedError("loss is nan at step 2")
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(arguments, *rest)

    monkeypatch.setattr(trainer, "train", sometimes)
    with pytest.raises(KeyboardInterrupt):
        quality.measure(tmp_path / "out", data, SMALL)
    found = json.loads((tmp_path / "out" / SUMMARY_NAME).read_text())
    assert [(row["architecture"], row["seed"]) for row in found["runs"]] == [
        ("arch2_4_combined", 0),
        ("arch4", 0),
        ("arch1", 0),
    ]
    assert [row["diverged"] for row in found["runs"]] == [None, "loss is nan at step 2", None]
    assert found["runs"][1]["test_log_perplexity"] is None
    assert 5 < found["runs"][0]["test_log_perplexity"] < 6.5
    summary = quality.measure(tmp_path / "out", data, SMALL)
    assert len(summary["runs"]) == 4
    assert summary["runs"][0] == found["runs"][0]
    assert len({row["loss"][0][1] for row in summary["runs"]}) > 1
    # The same seed sees the same windows, another seed others.
    orders = {(row["architecture"], row["seed"]): row["data_order"] for row in summary["runs"]}
    assert orders["arch1", 0] == orders["arch4", 0] == orders["arch2_4_combined", 0]
    assert orders["arch2_4_combined", 1] != orders["arch2_4_combined", 0]
    assert found["runs"][0]["definition"] == {
        "combine": "delayed",
        "dd": 1,
        "de": 2,
        "route": "current",
        "blocks": 6,
    }
    _exports(tmp_path, summary)


def _exports(folder: Path, summary: dict[str, Any]) -> None:
    """What was measured is exported; what is not complete is left out, a run of another series refused."""
    out = folder / "out"
    shutil.copytree(folder / "tokens", out / "data")
    assert export(out, folder / "all.json") == summary
    assert json.loads((folder / "all.json").read_text()) == summary
    last = out / "runs" / "arch2_4_combined-1"
    (last / "result.json").rename(last / "result.json.away")
    assert export(out, folder / "fewer.json")["runs"] == summary["runs"][:-1]
    lines = (folder / "all.json").read_text().splitlines()
    # One line per run: a run more is a line more.
    assert len((folder / "fewer.json").read_text().splitlines()) == len(lines) - 1
    result = json.loads((last / "result.json.away").read_text())
    (last / "result.json").write_text(json.dumps({**result, "test_log_perplexity": math.nan}))
    diverged = export(out, folder / "nan.json")["runs"][-1]
    assert diverged["diverged"] == "test_log_perplexity is nan after step 3"
    assert diverged["test_perplexity"] is None
    (last / "result.json").write_text("{}")
    with pytest.raises(CheckpointError, match="it lacks one of test_log_perplexity"):
        export(out, folder / "none.json")
    run = last / "run.json"
    run.write_text(run.read_text().replace('"seed": 1', '"seed": 2'))
    with pytest.raises(CheckpointError, match="holds a run of another series: seed: 2, now 1"):
        export(out, folder / "none.json")
    assert not (folder / "none.json").exists()


def test_export_names_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ArchitectureError, match=r"quality\.json cannot be read"):
        export(tmp_path, tmp_path / "x.json")
    (tmp_path / SUMMARY_NAME).write_text('{"arguments": {}}')
    with pytest.raises(CheckpointError, match=r"quality\.json is not valid: KeyError"):
        export(tmp_path, tmp_path / "x.json")
    assert quality.main(["--out", str(tmp_path), "--export", str(tmp_path / "x.json")]) == 2
    assert capsys.readouterr().err.startswith("quality: ")


def test_what_a_user_can_cause_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    assert quality.main(["--out", str(tmp_path / "out"), "--data", str(tmp_path / "none.txt")]) == 2
    assert capsys.readouterr().err.startswith("quality: ")
