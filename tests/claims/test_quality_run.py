"""`pytest claims/ --only quality` as a user runs it: what it records follows from the raw losses."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from architectures.pytorch import torch_installed
from architectures.quality_file import SUMMARY_NAME
from claims import quality_live
from claims.quality_series import read_series
from harness.check import check
from tests.claims.made_series import series_file
from tests.claims.running import ROOT, run_claims

pytestmark = pytest.mark.no_sanitizer


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("quality") / "run"
    done = run_claims("--profile", "quick", "--only", "quality", "--record-only", "--out", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def rows(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    claim = next(item for item in found["claims"] if item["id"] == "quality")
    return {row["id"]: row for row in claim["checks"]}


def test_every_verdict_follows_from_the_stored_losses(recorded: Path) -> None:
    found = check(recorded)
    assert found["problems"] == []
    assert rows(found)["quality.perplexity"]["value"] > 1
    page = (recorded / "report.html").read_text()
    assert "quality.expert_delay" in page and "ones in diverged so far" in page


def test_two_runs_of_one_series_show_no_movement(recorded: Path, tmp_path: Path) -> None:
    data = json.loads((recorded / "results.json").read_text())
    data["run"]["created_utc"] = "2030-01-01T00:00:00Z"
    later = tmp_path / "later"
    later.mkdir()
    (later / "results.json").write_text(json.dumps(data))
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", "compare", "--base", str(recorded), str(later), "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr


WHOLE = [f"{arm}-{seed}" for arm in ("arch2_4_combined", "arch2_4_sync") for seed in range(8)]


def spoil(evidence: dict[str, Any]) -> None:
    evidence["observations"]["log_perplexity"][0] += 0.1


@pytest.mark.parametrize(
    ("check_id", "edit", "problem"),
    [
        ("quality.perplexity", spoil, "value is .*, the raw material gives"),
        (
            "quality.converged",
            lambda evidence: evidence["observations"].update(diverged=[1]),
            "the raw material gives REFUTED",
        ),
        (
            "quality.converged",
            lambda evidence: evidence["observations"].update(
                planned=len(evidence["observations"]["seed"]) - 1
            ),
            "count_so_far fails",
        ),
        (
            "quality.expert_delay",
            lambda evidence: evidence["observations"].update(
                arch2_4_combined=[4.0] * 8, arch2_4_sync=[4.0] * 8, runs=WHOLE, diverged=[]
            ),
            "the raw material gives SUPPORTED",
        ),
        (
            "quality.expert_delay",
            lambda evidence: evidence["observations"].update(
                arch2_4_combined=[4.0] * 7, arch2_4_sync=[4.0] * 7, runs=WHOLE, diverged=[]
            ),
            "exp_mean_difference fails: ValueError.*7 values of the runs",
        ),
    ],
)
def test_the_checker_catches_edited_losses(
    recorded: Path, tmp_path: Path, check_id: str, edit: Callable[[dict[str, Any]], None], problem: str
) -> None:
    data = json.loads((recorded / "results.json").read_text())
    record = next(item for item in data["checks"] if item["id"] == check_id)
    edit(record["cells"][0]["evidence"])
    (tmp_path / "results.json").write_text(json.dumps(data))
    said = "\n".join(item["problem"] for item in check(tmp_path)["problems"] if item["check"] == check_id)
    assert re.search(problem, said), said


@pytest.mark.parametrize("verdict", ["SUPPORTED", "REFUTED"])
def test_the_checker_catches_a_verdict_before_all_runs_are_there(
    recorded: Path, tmp_path: Path, verdict: str
) -> None:
    data = json.loads((recorded / "results.json").read_text())
    record = next(item for item in data["checks"] if item["id"] == "quality.expert_delay")
    cell = record["cells"][0]
    # Two pairs with the same difference: an interval of no width.
    shift = 0.0 if verdict == "SUPPORTED" else 0.5
    runs = [f"{arm}-{seed}" for arm in ("arch2_4_combined", "arch2_4_sync") for seed in range(2)]
    cell["evidence"]["observations"].update(
        arch2_4_combined=[4.0 + shift, 4.1 + shift],
        arch2_4_sync=[4.0, 4.1],
        seed=[0, 1],
        runs=runs,
        diverged=[],
    )
    for part in (cell, record):
        part.update(verdict=verdict, value=math.exp(shift), low=math.exp(shift), high=math.exp(shift))
    (tmp_path / "results.json").write_text(json.dumps(data))
    found = check(tmp_path)
    said = [item["problem"] for item in found["problems"] if item["check"] == "quality.expert_delay"]
    assert f"verdict is {verdict}, the raw material gives INCONCLUSIVE" in said
    assert any(text.startswith("low is ") and text.endswith("gives None") for text in said)
    assert rows(found)["quality.expert_delay"]["verdict"] == "INCONCLUSIVE"


def test_smoke_trains_a_few_steps_or_says_why_not(tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = run_claims("--only", "quality.trains", "--record-only", "--out", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    found = check(out)
    row = rows(found)["quality.trains"]
    wanted = ("SUPPORTED", 4) if torch_installed() else ("NOT MEASURABLE HERE", None)
    assert (row["verdict"], row["value"]) == wanted
    # It says nothing about quality.
    assert next(item for item in found["claims"] if item["id"] == "quality")["verdict"] != "SUPPORTED"


def test_train_judges_the_series_of_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []

    def train(*given: Any) -> None:
        calls.append(given)
        series_file(given[0] / SUMMARY_NAME)

    monkeypatch.setattr(quality_live, "train_series", train)
    assert len(read_series(quality_live.train_into(tmp_path)).runs) == 35
    assert calls == [(tmp_path, ("andersen", "novels"), quality_live.SERIES)]


@pytest.mark.skipif(torch_installed(), reason="PyTorch is installed")
def test_train_without_pytorch_is_a_usage_error(tmp_path: Path) -> None:
    done = run_claims(
        *("--profile", "quick", "--only", "quality.expert_delay"),
        *("--train", str(tmp_path / "series"), "--out", str(tmp_path / "run")),
    )
    assert done.returncode == 2
    assert "PyTorch is not installed" in done.stdout + done.stderr


def test_a_step_that_diverges_ends_the_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from architectures import trainer
    from architectures.errors import DivergedError

    real, calls = trainer.Trainer.one_step, []

    def step(self: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise DivergedError("loss is nan at step 3")
        return real(self)

    monkeypatch.setattr(trainer.Trainer, "one_step", step)
    assert len(quality_live.few_steps("arch4")) == 2
