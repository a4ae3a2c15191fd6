"""SIGKILL at seeded moments; `python -m tools.kills` does the same a hundred times."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from harness.results import FILE_NAME
from tools.kills import Counts, Kills, KillsError, Watch
from tools.kills_subjects import ROOT, SUBJECTS

pytestmark = pytest.mark.no_sanitizer
TORCH = importlib.util.find_spec("torch") is not None


def killed(name: str, folder: Path) -> Counts:
    kills = Kills(SUBJECTS[name], folder / "runs", seed=3)
    try:
        return kills.run(2)
    finally:
        kills.close()


@pytest.mark.parametrize("name", ["synth", "convert", "folder", "claims"])
def test_a_killed_command_leaves_nothing_half_and_goes_on(tmp_path: Path, name: str) -> None:
    counts = killed(name, tmp_path)
    assert counts.kills == 2
    assert counts.completed >= 1
    assert counts.reads > 0 or name != "claims"


@pytest.mark.skipif(not TORCH, reason="needs PyTorch")
def test_killed_training_goes_on_bit_for_bit(tmp_path: Path) -> None:
    assert killed("train", tmp_path).completed >= 1


def test_a_file_that_is_cut_is_seen(tmp_path: Path) -> None:
    """The tool's own eyes."""
    results, page = tmp_path / FILE_NAME, tmp_path / "report.html"
    sample = Path(__file__).parents[1] / "data/results_sample" / FILE_NAME
    results.write_text(sample.read_text())
    SUBJECTS["claims"].whole(results)
    results.write_text(sample.read_text()[:-100])
    page.write_text("<html><body>")
    checkpoint = tmp_path / "checkpoint.bin"
    checkpoint.write_bytes(json.dumps({"xxh64": "0" * 16}).encode() + b"\nbody")
    for name, path in (("claims", results), ("claims", page), ("train", checkpoint)):
        with pytest.raises(ValueError, match=path.name):
            SUBJECTS[name].whole(path)


def test_a_watched_file_that_is_cut_is_seen(tmp_path: Path) -> None:
    watch = Watch(tmp_path / FILE_NAME)
    watch.path.write_text('{"schema_version": 1')
    with watch.watching():
        while not watch.faults:
            pass
    assert "not JSON" in watch.faults[0]


def test_a_run_that_fails_is_told(tmp_path: Path) -> None:
    with pytest.raises(KillsError, match="the preparation ended with 2"):
        Kills(replace(SUBJECTS["convert"], prepare=("cli.main", "synth")), tmp_path / "runs", 1).run(1)


def test_what_a_failed_run_kept_stays(tmp_path: Path) -> None:
    kept = tmp_path / "synth-5" / "output"
    kept.parent.mkdir()
    kept.write_text("why")
    command = [sys.executable, "-m", "tools.kills", "synth", "--seed", "5", "--folder", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and f"{kept.parent} is there" in done.stderr
    assert kept.read_text() == "why"
