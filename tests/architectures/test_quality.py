"""The series of runs: its order, that it goes on, and what it records."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from architectures import quality
from architectures.errors import DivergedError
from architectures.quality import SEEDS, SUMMARY_NAME, Run, series


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
        quality.measure(tmp_path / "out", data, "small_test", 3, "f32")
    found = json.loads((tmp_path / "out" / SUMMARY_NAME).read_text())
    assert [(row["architecture"], row["seed"]) for row in found["runs"]] == [
        ("arch2_4_combined", 0),
        ("arch4", 0),
        ("arch1", 0),
    ]
    assert [row["diverged"] for row in found["runs"]] == [None, "loss is nan at step 2", None]
    assert found["runs"][1]["test_log_perplexity"] is None
    assert 5 < found["runs"][0]["test_log_perplexity"] < 6.5
    summary = quality.measure(tmp_path / "out", data, "small_test", 3, "f32")
    assert len(summary["runs"]) == 4
    assert summary["runs"][0] == json.loads(json.dumps(found["runs"][0]), object_hook=_tuples)
    assert len({row["loss"][0][1] for row in summary["runs"]}) > 1


def _tuples(row: dict[str, Any]) -> dict[str, Any]:
    return {k: [tuple(pair) for pair in v] if k in ("loss", "validation") else v for k, v in row.items()}


def test_what_a_user_can_cause_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    assert quality.main(["--out", str(tmp_path / "out"), "--data", str(tmp_path / "none.txt")]) == 2
    assert capsys.readouterr().err.startswith("quality: ")
