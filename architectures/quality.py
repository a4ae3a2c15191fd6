"""The runs behind the comparison of the architectures' quality: `python -m architectures.quality --help`.

Every arm trains with the same seeds on the same data in the same order. Seed by seed over all arms, so that a
series that ends early is still a paired comparison. It goes on where it stopped. `quality.json` in the folder
holds what was measured so far; the trained models are in `runs/`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from architectures.arguments import Arguments, Options
from architectures.atomic import write_atomically
from architectures.errors import DivergedError
from architectures.metrics import Progress, read_metrics
from architectures.prepared import Prepared
from architectures.pytorch import require_torch
from engine.errors import CflowError

SUMMARY_NAME = "quality.json"
FORMAT = "cflow-quality"
VERSION = 1

#: Seeds per arm, 0 and up: as many as the comparison that each of them decides needs.
SEEDS: dict[str, int] = {
    "arch2_4_combined": 8,
    "arch2_4_sync": 8,
    "arch4": 5,
    "arch4_current": 5,
    "arch1": 3,
    "arch3": 3,
    "arch5": 3,
}

_CURVE_POINTS = 40


@dataclass(frozen=True)
class Run:
    """One training of the series."""

    architecture: str
    seed: int

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"{self.architecture}-{self.seed}"


def series() -> list[Run]:
    """All runs in the order in which they are made."""
    return [
        Run(architecture, seed)
        for seed in range(max(SEEDS.values()))
        for architecture, seeds in SEEDS.items()
        if seed < seeds
    ]


def measure(out: Path, data: Prepared, preset: str, steps: int, precision: str = "auto") -> dict[str, Any]:
    """Makes the runs that are missing in `out`; the content of quality.json, which is written after each.

    One thread: the sums of several would be added in another order on a machine with other cores. A run whose
    loss is not finite is recorded as diverged. Raises CheckpointError when `out` holds a series with other
    arguments.
    """
    from architectures.processes import Processes
    from architectures.trainer import train

    measured: list[dict[str, Any]] = []
    for run in series():
        arguments = Arguments.of(run.architecture, preset, steps, run.seed, precision=precision)
        folder = out / "runs" / run.name
        outcome: dict[str, Any] = {}
        diverged = None
        try:
            outcome = train(
                arguments, Options(folder, resume=True, threads=1), data, Processes(0, 1), _reporter(run)
            )
        except DivergedError as error:
            diverged = str(error)
        measured.append(_row(run, folder, outcome, diverged))
        summary = {
            "format": FORMAT,
            "version": VERSION,
            "command": f"python -m architectures.quality --preset {preset} --steps {steps}",
            "preset": preset,
            "steps": steps,
            "arguments": {**asdict(arguments), "architecture": None, "seed": None},
            "data": data.hashes,
            "runs": measured,
        }
        write_atomically(out / SUMMARY_NAME, (json.dumps(summary, indent=1) + "\n").encode())
    return summary


def _row(run: Run, folder: Path, outcome: dict[str, Any], diverged: str | None) -> dict[str, Any]:
    lines = read_metrics(folder)
    losses = [(line["step"], round(line["loss"], 4)) for line in lines if "loss" in line]
    every = max(len(losses) // _CURVE_POINTS, 1)
    keys = ("test_log_perplexity", "test_top1", "test_tokens", "elapsed_s", "torch")
    return {
        "architecture": run.architecture,
        "seed": run.seed,
        "diverged": diverged,
        **{key: outcome.get(key) for key in keys},
        "loss": losses[every - 1 :: every],
        "validation": [
            (line["step"], round(line["validation_log_perplexity"], 4))
            for line in lines
            if "validation_log_perplexity" in line
        ],
    }


def _reporter(run: Run) -> Callable[[Progress], None]:
    def report(progress: Progress) -> None:
        if progress.step % 100 == 0 or progress.step == progress.steps:
            print(
                f"{run.name}: step {progress.step}/{progress.steps}, loss {progress.loss:.3f}, "
                f"{progress.left_s / 60:.0f} min left in this run",
                file=sys.stderr,
                flush=True,
            )

    return report


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; exit code 2 for what a user can cause."""
    parser = argparse.ArgumentParser(prog="python -m architectures.quality", description=__doc__)
    parser.add_argument(
        "--out", type=Path, required=True, help="folder of the series; goes on if it has begun"
    )
    parser.add_argument(
        "--data", action="append", help="text, or a name of `cflow data get`; may be repeated"
    )
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--precision", default="auto", help="auto, bf16 or f32")
    given = parser.parse_args(arguments)
    try:
        require_torch()
        from architectures.start import locate, tokens_of

        data = tokens_of(locate(given.data or ["andersen", "novels"]), given.preset, given.out / "data")
        summary = measure(given.out, data, given.preset, given.steps, given.precision)
    except CflowError as error:
        print(f"quality: {error}", file=sys.stderr)
        return 2
    print(f"{given.out / SUMMARY_NAME}: {len(summary['runs'])} runs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
