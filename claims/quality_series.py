"""quality.json as `python -m architectures.quality` writes it, read without trusting it.

A file that contradicts itself or the table of architectures is refused; runs that saw other data do not pair.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from architectures.quality import SEEDS
from architectures.quality_file import FORMAT, SUMMARY_NAME, VERSION, definition
from architectures.samples import Sample, Sampling
from architectures.table import geometry, preset
from engine.errors import CflowError, FileError, FormatError
from harness.errors import ResultsError
from harness.results import parse_json

STORED: Final = Path(__file__).with_name(SUMMARY_NAME)
"""The series that is committed."""
_ROUNDING: Final = 1e-9


@dataclass(frozen=True)
class TrainedRun:
    """One run. log_perplexity (nats per token) and top1 are of the test part, None when it diverged.

    validation: log perplexity on the way, by step.
    """

    architecture: str
    seed: int
    data_order: str
    diverged: str | None
    log_perplexity: float | None
    top1: float | None
    validation: Mapping[int, float]

    @property
    def name(self) -> str:
        """Arm and seed."""
        return f"{self.architecture}-{self.seed}"


@dataclass(frozen=True)
class Pairs:
    """Log perplexities of two arms, seed by seed."""

    seeds: list[int]
    subject: list[float]
    reference: list[float]


@dataclass(frozen=True)
class Series:
    """What was trained so far. sha256: of the file. machines, torch: names and versions, each once.

    tokens_seen: by each run. samples: by architecture.
    """

    path: Path
    sha256: str
    command: str
    preset: str
    steps: int
    precision: str
    tokens_seen: int
    test_tokens: int
    machines: tuple[str, ...]
    torch: tuple[str, ...]
    runs: tuple[TrainedRun, ...]
    sampling: Sampling
    samples: Mapping[str, Sample]

    @property
    def scale(self) -> str:
        """Size of the models and of their training, in words."""
        sizes = preset(self.preset)
        weights = [geometry(arm, sizes).parameters / 1e6 for arm in SEEDS]
        return (
            f"preset {self.preset} (d {sizes.d_model}, {min(weights):.1f} to {max(weights):.1f} M weights), "
            f"{self.steps:,} steps, "
            f"{self.tokens_seen / 1e6:.1f} M tokens seen"
        )

    def arm(self, architecture: str) -> list[TrainedRun]:
        """Its runs by seed, those that diverged too."""
        return sorted(
            (run for run in self.runs if run.architecture == architecture), key=lambda run: run.seed
        )

    def pairs(self, subject: str, reference: str) -> Pairs:
        """Seeds that both arms have trained to the end.

        Raises FormatError when two runs of a seed did not see the same data in the same order.
        """
        others = {run.seed: run for run in self.arm(reference)}
        found = Pairs([], [], [])
        for run in self.arm(subject):
            other = others.get(run.seed)
            if other is None:
                continue
            if run.data_order != other.data_order:
                raise FormatError(
                    f"{self.path}: seed {run.seed}: {subject} saw its data in order {run.data_order}, "
                    f"{reference} in order {other.data_order}: they cannot be paired"
                )
            if run.log_perplexity is not None and other.log_perplexity is not None:
                found.seeds.append(run.seed)
                found.subject.append(run.log_perplexity)
                found.reference.append(other.log_perplexity)
        return found


def read_series(path: Path) -> Series:
    """A quality.json. Raises FileError, or FormatError naming the run and what contradicts what."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        found = parse_json(data.decode("utf-8"), path)
        if (found["format"], found["version"]) != (FORMAT, VERSION):
            raise ValueError(f"found {found['format']} {found['version']}, allowed: {FORMAT} {VERSION}")
        return _series(path, hashlib.sha256(data).hexdigest(), found)
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        text = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise FormatError(f"{path}: {text}") from error
    except ResultsError as error:
        raise FormatError(str(error)) from error
    except CflowError as error:
        raise error if isinstance(error, FormatError) else FormatError(f"{path}: {error}") from error


def _series(path: Path, sha256: str, found: Mapping[str, Any]) -> Series:
    rows = list(found["runs"])
    if not rows:
        raise ValueError("runs: empty, allowed: at least one")
    shared, steps = found["arguments"], int(found["steps"])
    for key in ("preset", "steps"):
        if shared[key] != found[key]:
            raise ValueError(f"{key} is {found[key]!r}, arguments.{key} is {shared[key]!r}")
    runs = tuple(_run(row, found["preset"], steps) for row in rows)
    names = [(run.architecture, run.seed) for run in runs]
    for architecture, seed in names:
        if names.count((architecture, seed)) > 1:
            raise ValueError(f"run {architecture}-{seed}: listed twice")
    tokens = {row["test_tokens"] for row in rows if row["diverged"] is None}
    if len(tokens) > 1:
        raise ValueError(f"test_tokens differ between runs: {sorted(tokens)}")
    return Series(
        path=path,
        sha256=sha256,
        command=str(found["command"]),
        preset=str(found["preset"]),
        steps=steps,
        precision=str(shared["precision"]),
        tokens_seen=steps * int(shared["batch"]) * int(shared["sequence"]),
        test_tokens=int(tokens.pop()) if tokens else 0,
        machines=tuple(sorted({str(row["cpu"] or "a CPU that was not recorded") for row in rows})),
        torch=tuple(sorted({str(row["torch"]) for row in rows if row["torch"]})),
        runs=runs,
        sampling=_sampling(found["sampling"]),
        samples=_samples(found["samples"], runs),
    )


def _sampling(found: Mapping[str, Any]) -> Sampling:
    wanted = asdict(Sampling())
    if found.keys() != wanted.keys() or not all(
        isinstance(value, str | int | float) for value in found.values()
    ):
        raise ValueError(f"sampling: found {dict(found)}, allowed: what {wanted} has")
    return Sampling(**found)


def _samples(rows: Sequence[Mapping[str, Any]], runs: Sequence[TrainedRun]) -> dict[str, Sample]:
    """One of an architecture, of its complete run of seed 0."""
    complete = {run.architecture for run in runs if run.seed == 0 and run.diverged is None}
    samples: dict[str, Sample] = {}
    for row in rows:
        name, sample = row["architecture"], Sample(row["text"], row["words"], row["known"])
        if name not in complete or name in samples:
            raise ValueError(f"samples: {name!r} is listed twice, or its run of seed 0 is not complete")
        if not isinstance(sample.text, str) or not 0 <= sample.known <= sample.words:
            raise ValueError(
                f"samples: {name}: found {sample}, allowed: a text, and known words among its words"
            )
        samples[name] = sample
    return samples


def _run(row: Mapping[str, Any], preset_name: str, steps: int) -> TrainedRun:
    architecture, seed = row["architecture"], row["seed"]
    name = f"run {architecture}-{seed}"
    # Names of runs hold the seed, and an equal number of another type has another name.
    if architecture not in SEEDS or type(seed) is not int or seed not in range(SEEDS[architecture]):
        raise ValueError(f"{name}: not of the series; its arms and seeds are {SEEDS}")
    if not isinstance(row["data_order"], str) or not row["data_order"]:
        raise ValueError(f"{name}: data_order is {row['data_order']!r}, allowed: a hash")
    for curve in ("loss", "validation"):
        _check_curve(f"{name}: {curve}", row[curve], steps)
    figures = [row[key] for key in ("test_log_perplexity", "test_perplexity", "test_top1", "test_tokens")]
    if row["diverged"] is not None:
        if any(figure is not None for figure in figures):
            raise ValueError(f"{name}: diverged ({row['diverged']}), and has test figures")
        return TrainedRun(architecture, seed, row["data_order"], str(row["diverged"]), None, None, {})
    wanted = definition(geometry(architecture, preset(preset_name)))
    if row["definition"] != wanted:
        raise ValueError(f"{name}: its model is {row['definition']}, {architecture} is {wanted}")
    for curve in ("loss", "validation"):
        if not row[curve] or row[curve][-1][0] != steps:
            raise ValueError(f"{name}: {curve} does not end at step {steps}")
    log, perplexity, top1, tokens = figures
    if not math.isclose(math.exp(log), perplexity, rel_tol=_ROUNDING):
        raise ValueError(f"{name}: test_perplexity is {perplexity}, its logarithm {log}")
    if not (log > 0 and 0 <= top1 <= 1 and tokens > 0):
        raise ValueError(f"{name}: test figures {figures} are out of range")
    validation = {int(step): float(value) for step, value in row["validation"]}
    return TrainedRun(architecture, seed, row["data_order"], None, log, top1, validation)


def _check_curve(name: str, points: list[list[float]], steps: int) -> None:
    places = [step for step, _ in points]
    if places != sorted(set(places)) or any(not 0 < step <= steps for step in places):
        raise ValueError(f"{name}: steps do not ascend from 1 to {steps}")
    if any(not math.isfinite(value) for _, value in points):
        raise ValueError(f"{name}: not finite")
