"""The series of runs: its order, that it goes on, and what it records."""

from __future__ import annotations

import fcntl
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from architectures import quality, quality_jobs
from architectures.errors import ArchitectureError, CheckpointError
from architectures.prepared import open_prepared
from architectures.quality import export, series
from architectures.quality_file import SUMMARY_NAME, Settings
from architectures.run_folder import in_use

SMALL = Settings("small_test", 3, "f32")


def test_a_series_that_ends_early_has_pairs_and_whole_comparisons() -> None:
    runs = series()
    assert len(runs) == len(set(runs)) == 35
    pairs = ("arch2_4_combined", "arch2_4_sync"), ("arch4", "arch4_current")
    for left, right in pairs:
        counts = [[run.architecture for run in runs[:end]].count for end in range(len(runs))]
        assert all(count(left) - count(right) in (0, 1) for count in counts)
    parts = runs[:16], runs[16:26], runs[26:]
    assert [{run.architecture for run in part} for part in parts] == [
        *map(set, pairs),
        {"arch1", "arch3", "arch5"},
    ]


def made(folder: Path, arms: dict[str, int], monkeypatch: pytest.MonkeyPatch, **how: Any) -> dict[str, Any]:
    """A small series in `folder`/out, made or gone on with."""
    pytest.importorskip("torch")
    from tests.architectures.small_series import small_run
    from tests.architectures.texts import small_data
    from tests.architectures.training import use_small_preset

    use_small_preset()
    data = open_prepared(folder / "tokens") if (folder / "tokens").exists() else small_data(folder)
    monkeypatch.setattr(quality, "SEEDS", arms)
    return quality.measure(folder / "out", data, SMALL, **{"work": small_run, **how})


def without_time(summary: dict[str, Any]) -> dict[str, Any]:
    return {**summary, "runs": [{**row, "elapsed_s": None} for row in summary["runs"]]}


def test_a_series_records_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from tests.architectures.small_series import arch1_crashes_arch4_diverges

    arms = {"arch2_4_combined": 2, "arch4": 1, "arch1": 1}
    with pytest.raises(ArchitectureError, match="arch1-0: its process ended with exit code 3"):
        made(tmp_path, arms, monkeypatch, work=arch1_crashes_arch4_diverges)
    found = json.loads((tmp_path / "out" / SUMMARY_NAME).read_text())
    assert [(row["architecture"], row["seed"]) for row in found["runs"]] == [
        ("arch2_4_combined", 0),
        ("arch2_4_combined", 1),
        ("arch4", 0),
    ]
    assert [row["diverged"] for row in found["runs"]] == [
        None,
        None,
        "loss is nan at step 2; there was no checkpoint yet",
    ]
    assert found["runs"][2]["test_log_perplexity"] is None
    assert 5 < found["runs"][0]["test_log_perplexity"] < 6.5
    # Now nothing would diverge: what has is not tried again.
    summary = made(tmp_path, arms, monkeypatch, jobs=2)
    assert [row["architecture"] for row in summary["runs"]] == [run.architecture for run in series()]
    assert summary["runs"][:3] == found["runs"]
    # A model that diverged writes no text.
    assert [row["architecture"] for row in summary["samples"]] == ["arch2_4_combined", "arch1"]
    assert found["samples"] == []
    assert len({row["loss"][-1][1] for row in summary["runs"] if row["loss"]}) > 1
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


def test_how_many_at_once_changes_no_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arms = {"arch2_4_combined": 1, "arch5": 1, "arch3": 1}
    folders = [tmp_path / name for name in ("one", "three")]
    for folder in folders:
        folder.mkdir()
    one, three = (
        made(folder, arms, monkeypatch, jobs=jobs) for folder, jobs in zip(folders, (1, 3), strict=True)
    )
    assert without_time(one) == without_time(three)
    for run in series():
        for name in (
            "model.safetensors",
            "config.json",
            "tokenizer.json",
            "metrics.jsonl",
            "loss.svg",
            "run.json",
        ):
            first, other = (folder / "out" / "runs" / run.name / name for folder in folders)
            assert first.read_bytes() == other.read_bytes(), other


def test_a_run_that_another_process_trains_is_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(quality_jobs, "LOOK_S", 0.05)
    folder = tmp_path / "out" / "runs" / "arch2_4_combined-0"
    folder.mkdir(parents=True)
    held = (folder / ".lock").open("w")
    fcntl.flock(held, fcntl.LOCK_EX)
    order: list[str] = []
    real = quality.write_summary

    def summary_written(path: Path, found: dict[str, Any]) -> None:
        real(path, found)
        order.extend(row["architecture"] for row in found["runs"])
        held.close()  # the other process ends once arch4 is made here

    monkeypatch.setattr(quality, "write_summary", summary_written)
    made(tmp_path, {"arch2_4_combined": 1, "arch4": 1}, monkeypatch, jobs=2)
    assert order[:3] == ["arch4", "arch2_4_combined", "arch4"]
    said = capsys.readouterr().err
    assert said.count("arch2_4_combined-0: another process trains it; waiting\n") == 1


def test_what_another_records_meanwhile_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process writes that arch4 has diverged just before ours writes what it knew when it began."""
    pytest.importorskip("torch")
    from tests.architectures.small_series import arch4_diverges

    arms = {"arch1": 1, "arch4": 1}
    made(tmp_path, arms, monkeypatch, work=arch4_diverges)
    summary = tmp_path / "out" / SUMMARY_NAME
    theirs = summary.rename(tmp_path / "theirs.json")
    only_writer, write_summary = quality.only_writer, quality.write_summary
    comes, written = threading.Event(), []

    @contextmanager
    def come(out: Path) -> Iterator[None]:
        comes.set()
        with only_writer(out):
            yield

    def write(path: Path, found: dict[str, Any]) -> None:
        write_summary(path, found)
        written.append([row["diverged"] for row in found["runs"]])

    monkeypatch.setattr(quality, "only_writer", come)
    monkeypatch.setattr(quality, "write_summary", write)
    with ThreadPoolExecutor(1) as pool:
        with only_writer(tmp_path / "out"):
            ours = pool.submit(made, tmp_path, arms, monkeypatch, work=arch4_diverges)
            assert comes.wait(60)
            theirs.rename(summary)
        ours.result()
    assert written[0] == [None, "loss is nan at step 2; there was no checkpoint yet"]


def test_ctrl_c_leaves_a_series_that_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from tests.architectures.texts import small_data

    small_data(tmp_path)
    out = tmp_path / "out"
    script = [sys.executable, "-m", "tests.architectures.small_series", "--out", str(out)]
    options = [
        "--data",
        str(tmp_path / "tokens"),
        "--preset",
        "small_test",
        "--precision",
        "f32",
        "--jobs",
        "2",
    ]
    begun = [out / "runs" / f"{run.name}" / "metrics.jsonl" for run in series()[:2]]
    with subprocess.Popen(
        [*script, *options, "--steps", "100000"], stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        while not all(path.exists() for path in begun) and process.poll() is None:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        assert process.stderr is not None
        said = process.stderr.read()
    assert (process.returncode, said) == (130, "quality: interrupted; the same command goes on\n")
    for path in begun:
        assert not in_use(path.parent)


def test_jobs_are_at_least_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArchitectureError, match="jobs is 0, must be at least 1"):
        made(tmp_path, {"arch4": 1}, monkeypatch, jobs=0)


def _exports(folder: Path, summary: dict[str, Any]) -> None:
    """What was measured is exported; what is not complete is left out, a run of another series refused."""
    out = folder / "out"
    shutil.copytree(folder / "tokens", out / "data")
    assert export(out, folder / "all.json") == summary == json.loads((out / SUMMARY_NAME).read_text())
    assert json.loads((folder / "all.json").read_text()) == summary
    second = out / "runs" / "arch2_4_combined-1"
    (second / "result.json").rename(second / "result.json.away")
    assert export(out, folder / "fewer.json")["runs"] == [summary["runs"][0], *summary["runs"][2:]]
    lines = (folder / "all.json").read_text().splitlines()
    # One line per run: a run more is a line more.
    assert len((folder / "fewer.json").read_text().splitlines()) == len(lines) - 1
    result = json.loads((second / "result.json.away").read_text())
    (second / "result.json").write_text(json.dumps({**result, "test_log_perplexity": math.nan}))
    diverged = export(out, folder / "nan.json")["runs"][1]
    assert diverged["diverged"] == "test_log_perplexity is nan after step 3"
    assert diverged["test_perplexity"] is None
    (second / "result.json").write_text("{}")
    with pytest.raises(CheckpointError, match="it lacks one of test_log_perplexity"):
        export(out, folder / "none.json")
    run = second / "run.json"
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


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(ArchitectureError, match=r"arch4-0: .*out/runs/arch4-0: Not a directory"):
        made(tmp_path, {"arch4": 1}, monkeypatch)
