"""The runs behind the comparison of the architectures' quality: `python -m architectures.quality --help`.

Every arm trains with the same seeds on the same data in the same order. The arms that one comparison needs
come together, seed by seed: it is judged once all of their runs are there, so a series that ends early has
whole comparisons. It goes on where it stopped, and several may work on one folder: each leaves the runs that
another trains to it. `quality.json` in the folder holds what was measured so far (see `quality_file.py`); the
trained models are in `runs/`. Runs that another folder or machine made are not made again when `--known`
names their quality.json.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import groupby, product
from pathlib import Path
from typing import Any

from architectures.metrics import Progress
from architectures.prepared import Prepared, open_prepared
from architectures.pytorch import require_torch
from architectures.quality_file import (
    SUMMARY_NAME,
    Known,
    Run,
    Settings,
    collect,
    is_complete,
    lost_before,
    only_writer,
    settings_of,
    with_samples,
    write_summary,
)
from architectures.quality_jobs import Series, Work, make_runs, train_run
from architectures.quality_known import read_known
from engine.errors import CflowError

#: Seeds per arm, 0 and up: as many as the comparison that each of them decides needs. The arms of a
#: comparison are neighbours with the same number.
SEEDS: dict[str, int] = {
    "arch2_4_combined": 8,
    "arch2_4_sync": 8,
    "arch4": 5,
    "arch4_current": 5,
    "arch1": 3,
    "arch3": 3,
    "arch5": 3,
}
#: Names of `cflow data get` that a series reads when no data are named.
SOURCES = ("andersen", "novels")


def series() -> list[Run]:
    """All runs in the order in which they are made."""
    return [
        Run(architecture, seed)
        for seeds, arms in groupby(SEEDS, key=SEEDS.__getitem__)
        for seed, architecture in product(range(seeds), list(arms))
    ]


def measure(
    out: Path,
    data: Prepared,
    settings: Settings,
    jobs: int = 1,
    work: Work = train_run,
    known: Path | None = None,
) -> dict[str, Any]:
    """Makes the runs that are missing in `out`; the content of quality.json, which is written after each.

    jobs: runs that are made at once; what they give does not depend on it. work: makes one of them. known: a
    quality.json whose runs are not made again. A run whose loss is not finite is recorded as diverged, and
    not tried again until its folder is removed: else a series could go on until another machine is lucky.
    Raises CheckpointError when `out` or `known` holds a series with other arguments, ArchitectureError naming
    a run that failed.
    """
    runs, diverged, elsewhere = series(), lost_before(out), _known(known, data, settings)

    def record(finish: Callable[[dict[str, Any]], dict[str, Any]] = dict) -> dict[str, Any]:
        with only_writer(out):
            # Others who work on the folder may have recorded more that diverged.
            known_lost = {**lost_before(out), **diverged}
            found = finish(collect(out, data, settings, runs, known_lost, elsewhere))
            write_summary(out / SUMMARY_NAME, found)
        return found

    missing = [
        run for run in runs if run not in elsewhere.rows and run not in diverged and not is_complete(out, run)
    ]
    if len(missing) < len(runs):
        record()
    with closing(make_runs(Series(out, data.folder, settings), missing, jobs, _report, work)) as made:
        for ended in made:
            if ended.error is not None:
                diverged[ended.run] = str(ended.error)
            record()
    return record(lambda found: with_samples(out, data, found, elsewhere))


def train_series(
    out: Path, sources: Sequence[str], settings: Settings, jobs: int = 1, known: Path | None = None
) -> dict[str, Any]:
    """Begins the series in `out`, or goes on with it, on texts by path or name; as `measure`.

    Raises TorchMissingError without PyTorch, DataError for a text that cannot be used.
    """
    require_torch()
    from architectures.start import locate, tokens_of

    data = tokens_of(locate(sources), settings.preset, out / "data")
    return measure(out, data, settings, jobs, known=known)


def export(out: Path, target: Path, known: Path | None = None) -> dict[str, Any]:
    """Writes the runs that are complete in `out`, those that have diverged there, and those of a quality.json
    made elsewhere, to `target`, with a text that a model of each architecture writes. No PyTorch.

    Raises CheckpointError, DataError or FormatError naming what is missing, damaged, or of another series.
    """
    settings, _ = settings_of(out)
    data = open_prepared(out / "data")
    elsewhere = _known(known, data, settings)
    found = collect(out, data, settings, series(), lost_before(out), elsewhere)
    found = with_samples(out, data, found, elsewhere)
    write_summary(target, found)
    return found


def _known(path: Path | None, data: Prepared, settings: Settings) -> Known:
    return Known() if path is None else read_known(path, data, settings, series())


def _report(run: Run, progress: Progress) -> None:
    if progress.step % 100 == 0 or progress.step == progress.steps:
        print(
            f"{run.name}: step {progress.step}/{progress.steps}, loss {progress.loss:.3f}, "
            f"{progress.left_s / 60:.0f} min left in this run",
            file=sys.stderr,
            flush=True,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; exit code 2 for what a user can cause, 130 for Ctrl-C."""
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
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="runs at once, of one thread each; changes no result"
    )
    parser.add_argument(
        "--known",
        type=Path,
        metavar="FILE",
        help="quality.json of the same series, made in another folder or on another machine: its runs are "
        "kept as they are and not made again",
    )
    parser.add_argument(
        "--export",
        type=Path,
        metavar="FILE",
        help="train nothing: write what the folder has so far, and a text by each architecture, to FILE, "
        "such as claims/quality.json",
    )
    given = parser.parse_args(arguments)
    try:
        if given.export is not None:
            target, found = given.export, export(given.out, given.export, given.known)
        else:
            settings = Settings(given.preset, given.steps, given.precision)
            target = given.out / SUMMARY_NAME
            found = train_series(given.out, given.data or SOURCES, settings, given.jobs, given.known)
    except CflowError as error:
        print(f"quality: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("quality: interrupted; the same command goes on", file=sys.stderr)
        return 130
    print(f"{target}: {len(found['runs'])} of {len(series())} runs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
