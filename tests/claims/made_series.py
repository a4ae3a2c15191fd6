"""Series of training runs as quality.json holds them, made up; log perplexities by arm and seed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from architectures.quality import SEEDS
from architectures.quality_file import definition, write_summary
from architectures.table import geometry, preset
from claims.quality_series import STORED

STEPS = 2000
#: Arm -> what is added to the log perplexity of the seed.
SHIFTS = {
    "arch2_4_combined": 0.0,
    "arch2_4_sync": 0.002,
    "arch4": -0.01,
    "arch4_current": 0.02,
    "arch1": 0.1,
    "arch3": 0.1,
    "arch5": 0.05,
}


def row(architecture: str, seed: int, shift: float, noise: float = 0.0005) -> dict[str, Any]:
    """A run whose seed moves all arms alike, and whose noise depends on arm and seed."""
    log = 4.4 + 0.03 * seed + shift + noise * math.sin(7 * seed + len(architecture))
    return {
        "architecture": architecture,
        "seed": seed,
        "definition": definition(geometry(architecture, preset("tiny"))),
        "data_order": f"order {seed}",
        "diverged": None,
        "test_log_perplexity": log,
        "test_perplexity": math.exp(log),
        "test_top1": 0.2,
        "test_tokens": 83755,
        "elapsed_s": 1000.0,
        "torch": "2.13.0",
        "cpu": "a CPU",
        "loss": [[50, 7.5], [STEPS, 4.2]],
        "validation": [[STEPS, 4.5]],
    }


def diverge(run: dict[str, Any]) -> None:
    """Turns a run into one that diverged half-way."""
    for key in ("test_log_perplexity", "test_perplexity", "test_top1", "test_tokens", "definition"):
        run[key] = None
    run["diverged"] = "loss is nan at step 1000"
    run["loss"], run["validation"] = [[50, 7.5]], []


def remove(found: dict[str, Any], *runs: tuple[str, int]) -> None:
    """Takes runs out as if they had not been made yet, and the text with a run of seed 0."""
    for run in runs:
        found["runs"].remove(run_of(found, *run))
    found["samples"] = [row for row in found["samples"] if (row["architecture"], 0) not in runs]


def series_file(
    path: Path,
    shifts: Mapping[str, float] = SHIFTS,
    edit: Callable[[dict[str, Any]], None] = lambda found: None,
    noise: float = 0.0005,
) -> Path:
    """A whole series, edited."""
    found = json.loads(STORED.read_text(encoding="utf-8"))
    runs = [row(arm, seed, shifts[arm], noise) for arm, seeds in SEEDS.items() for seed in range(seeds)]
    found["runs"] = runs
    found["samples"] = [
        {"architecture": arm, "text": f"A king of {arm} .", "words": 4, "known": 3} for arm in SEEDS
    ]
    edit(found)
    write_summary(path, found)
    return path


def run_of(found: Mapping[str, Any], architecture: str, seed: int) -> dict[str, Any]:
    """One run of the content of a quality.json."""
    rows: list[dict[str, Any]] = found["runs"]
    return next(one for one in rows if (one["architecture"], one["seed"]) == (architecture, seed))
