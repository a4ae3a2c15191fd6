"""quality.json: what a series of runs has measured so far, taken from the folders of its runs.

format, version, command     the form, and what makes the same series
preset, steps, arguments     what all runs share; data: hash of each file of tokens by its name
runs                         one line per run:
    architecture, seed, definition     combine, dd, de, route, blocks as config.json of the trained model says
    data_order                         hash of which windows of the text the run saw, in order
    diverged                           None, or the sentence that says where; then there are no test figures
    test_log_perplexity, test_perplexity, test_top1, test_tokens     over the whole test part, nats per token
    loss, validation                   [step, nats per token], thinned
    elapsed_s, torch, cpu              of the last session that trained; cpu None where it was not recorded
sampling, samples            how texts are drawn (see `samples.py`); one per architecture whose run of seed 0
                             is complete: architecture, text, words, known; none before the series is
"""

from __future__ import annotations

import fcntl
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from architectures.arguments import Arguments
from architectures.atomic import write_atomically
from architectures.batches import Batches
from architectures.config import read_config
from architectures.errors import CheckpointError
from architectures.metrics import read_metrics
from architectures.prepared import Prepared
from architectures.run_folder import RESULT_NAME, RUN_NAME, read_json
from architectures.samples import Sampling, words_of, write_sample
from architectures.stories import Part
from architectures.table import ARCHITECTURES
from engine.geometry import Geometry
from engine.tokenizer import Tokenizer

SUMMARY_NAME = "quality.json"
FORMAT = "cflow-quality"
VERSION = 3

_LOCK_NAME = ".lock"
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


@dataclass(frozen=True)
class Settings:
    """What all runs of a series share. precision: auto, bf16 or f32."""

    preset: str = "tiny"
    steps: int = 2000
    precision: str = "auto"

    def arguments(self, run: Run) -> Arguments:
        """Of one run. Raises ArchitectureError."""
        return Arguments.of(run.architecture, self.preset, self.steps, run.seed, precision=self.precision)


@dataclass(frozen=True)
class Known:
    """Runs made elsewhere: rows of quality.json by run, and its samples by architecture."""

    rows: Mapping[Run, dict[str, Any]] = field(default_factory=dict)
    samples: Mapping[str, dict[str, Any]] = field(default_factory=dict)


def run_folder(out: Path, run: Run) -> Path:
    """Where a run of the series in `out` lies."""
    return out / "runs" / run.name


def is_complete(out: Path, run: Run) -> bool:
    """Whether a run of the series in `out` was trained to its end."""
    return (run_folder(out, run) / RESULT_NAME).is_file()


def definition(shape: Geometry) -> dict[str, Any]:
    """What tells the architectures apart, by name."""
    return {
        "combine": shape.architecture.name.lower(),
        "dd": shape.dd,
        "de": shape.de,
        "route": shape.route.name.lower(),
        "blocks": shape.blocks,
    }


def shared_by_runs(data: Prepared, settings: Settings) -> dict[str, Any]:
    """What quality.json says of all runs: equal in files of the same series. Raises ArchitectureError."""
    shared = asdict(settings.arguments(Run(next(iter(ARCHITECTURES)), 0)))
    return {
        "format": FORMAT,
        "version": VERSION,
        "command": f"python -m architectures.quality --preset {settings.preset} --steps {settings.steps} "
        f"--precision {shared['precision']}",
        "preset": settings.preset,
        "steps": settings.steps,
        "arguments": {**shared, "architecture": None, "seed": None},
        "data": data.hashes,
        "sampling": asdict(Sampling()),
    }


def collect(
    out: Path,
    data: Prepared,
    settings: Settings,
    series: Sequence[Run],
    diverged: Mapping[Run, str],
    known: Known,
) -> dict[str, Any]:
    """The content of quality.json for the runs of `series` that are known, complete or in `diverged`.

    Raises CheckpointError when there are none, for a folder that is damaged or that holds another run.
    """
    runs = [run for run in series if run in known.rows or run in diverged or is_complete(out, run)]
    if not runs:
        raise CheckpointError(f"{out}: none of the {len(series)} runs of the series is complete")
    rows = [
        known.rows.get(run) or _row(run_folder(out, run), run, data, settings, diverged.get(run))
        for run in runs
    ]
    return {**shared_by_runs(data, settings), "samples": [], "runs": rows}


def with_samples(out: Path, data: Prepared, found: Mapping[str, Any], known: Known) -> dict[str, Any]:
    """A summary with a text of each architecture whose run of seed 0 is complete, known ones as they are.

    Raises CheckpointError or FormatError naming the model that cannot be read.
    """
    sampling = Sampling(**found["sampling"])
    stories = Tokenizer.from_json(data.tokenizer_json).decode(data.tokens[Part.TRAIN].tolist())
    words = set(words_of([stories]))
    firsts = [
        Run(row["architecture"], 0) for row in found["runs"] if row["seed"] == 0 and row["diverged"] is None
    ]
    samples = [
        known.samples[run.architecture]
        if run in known.rows
        else {"architecture": run.architecture, **asdict(write_sample(run_folder(out, run), words, sampling))}
        for run in firsts
        if run not in known.rows or run.architecture in known.samples
    ]
    return {**found, "samples": samples}


def settings_of(out: Path) -> tuple[Settings, dict[Run, str]]:
    """Settings and diverged runs of the series in `out`. Raises CheckpointError naming its quality.json."""
    path = out / SUMMARY_NAME
    found = read_json(path)
    try:
        shared = found["arguments"]
        settings = Settings(str(shared["preset"]), int(shared["steps"]), str(shared["precision"]))
        diverged = {
            Run(row["architecture"], row["seed"]): str(row["diverged"])
            for row in found["runs"]
            if row["diverged"] is not None
        }
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} is not valid: {error!r}") from error
    return settings, diverged


def lost_before(out: Path) -> dict[Run, str]:
    """Runs of the series in `out` that are recorded as diverged, as long as their folders are there.

    Raises CheckpointError for a damaged quality.json.
    """
    if not (out / SUMMARY_NAME).exists():
        return {}
    _, diverged = settings_of(out)
    begun = (run for run in diverged if (run_folder(out, run) / RUN_NAME).is_file())
    return {run: diverged[run] for run in begun if not is_complete(out, run)}


@contextmanager
def only_writer(out: Path) -> Iterator[None]:
    """Whoever else works on the series in `out` waits: nothing is recorded between reading its quality.json
    and writing it anew."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / _LOCK_NAME).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def write_summary(path: Path, found: Mapping[str, Any]) -> None:
    """One line per run and sample: a series that grows shows as lines that are added. Raises FileError."""
    text = json.dumps({**found, "samples": None, "runs": None}, indent=1, allow_nan=False) + "\n"
    for key in ("samples", "runs"):
        rows = ",\n".join(f"  {json.dumps(row, allow_nan=False)}" for row in found[key])
        text = text.replace(f'\n "{key}": null', f'\n "{key}": ' + (f"[\n{rows}\n ]" if rows else "[]"))
    write_atomically(path, text.encode())


def _row(folder: Path, run: Run, data: Prepared, settings: Settings, diverged: str | None) -> dict[str, Any]:
    arguments = settings.arguments(run)
    started = read_json(folder / RUN_NAME)
    differences = arguments.differences(started.get("arguments", {}))
    if differences or started.get("data") != data.hashes:
        what = "; ".join(differences) or "data: other text or another tokenizer"
        raise CheckpointError(f"{folder} holds a run of another series: {what}")
    result = {} if diverged else read_json(folder / RESULT_NAME)
    figures = ("test_log_perplexity", "test_perplexity", "test_top1", "test_tokens")
    test = {key: result.get(key) for key in figures}
    if not diverged and not all(isinstance(value, int | float) for value in test.values()):
        raise CheckpointError(f"{folder / RESULT_NAME} is not valid: it lacks one of {', '.join(figures)}")
    if not diverged and not math.isfinite(result["test_log_perplexity"]):
        diverged = f"test_log_perplexity is {result['test_log_perplexity']} after step {arguments.steps}"
    lines = read_metrics(folder)
    losses = _curve(lines, "loss")
    every = max(-(-len(losses) // _CURVE_POINTS), 1)
    batches = Batches(data.tokens[Part.TRAIN], arguments.sequence, arguments.batch, run.seed)
    return {
        "architecture": run.architecture,
        "seed": run.seed,
        "definition": None if diverged else definition(read_config(folder).geometry),
        "data_order": batches.order_hash(arguments.steps),
        "diverged": diverged,
        **(dict.fromkeys(figures) if diverged else test),
        **{key: result.get(key) for key in ("elapsed_s", "torch", "cpu")},
        "loss": losses[(len(losses) - 1) % every :: every],
        "validation": _curve(lines, "validation_log_perplexity"),
    }


def _curve(lines: Sequence[Mapping[str, Any]], key: str) -> list[list[float]]:
    """[step, value] of the lines that have it; JSON has no word for one that is not finite."""
    return [[line["step"], round(line[key], 4)] for line in lines if math.isfinite(line.get(key, math.nan))]
