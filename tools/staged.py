"""Hold decoding with experts on disk against its bounds: `python -m tools.staged MODEL`.

C is computing in place, IO reading alone, both per token; N its layers. Per number of threads a line each for

- sync: the time over C + IO;
- staged: the time over IO/N + (N - 1) max(C, IO)/N + C/N, the pipeline with its fill;
- half in RAM: with half of the file's bytes for everything (ram_budget), the time over the same pipeline, of
  the experts that it had to read;

and one for the speed of staged over sync. All in paired rounds, with the rules of evidence of the claims.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from claims.overlap import (
    HALF,
    READ,
    STAGED,
    SYNC,
    arms,
    decode_arm,
    follow,
    open_staging,
    refused,
    routed_bytes,
)
from claims.overlap_model import SERIAL, Terms, pipeline
from claims.run import SEED
from claims.speed import CONFIDENCE
from claims.timing import open_bench, progress_line
from engine.enums import Param
from engine.errors import ArgumentError, CflowError
from engine.session import OptionValue, Session, parse_options
from harness.cachestate import CacheStateError
from harness.paired import run_pairs
from harness.registry import DEFAULT_GUARD
from harness.rounds import Figure, Paths, Side, Timed
from harness.statistics import DEFAULT_ROUNDS, summarise
from tools.versus import thread_counts

READING: Final = Side(READ, "time")


def lines(
    path: Path, threads: int, tokens: int, rounds: int, options: dict[str, OptionValue]
) -> Iterator[str]:
    """The lines of one number of threads."""
    shared: dict[str, OptionValue] = {"threads": threads, "context": tokens, **options}
    with (
        open_bench(threads) as bench,
        open_staging(path, shared) as staging,
        Session(
            staging.model,
            residency="direct",
            verify="never",
            ram_budget=staging.model.file_bytes // 2,
            **shared,
        ) as half,
    ):
        reason = refused(staging.staged)
        if reason is not None:
            raise ArgumentError(reason.reason)
        if staging.model.param(Param.EXPERT_DELAY) == 0:
            raise ArgumentError(
                f"{path}: expert_delay is 0, must be at least 1: what its own layer needs is waited for"
            )
        course = follow(staging.compute, tokens)
        routed = routed_bytes(staging.model, course.routing)
        steps = staging.model.param(Param.LAYERS)
        probe = decode_arm(HALF, half, course, routed)
        probe.run()
        missed = probe.run().counters["asked_bytes"]
        timed = run_pairs(
            [*arms(staging, course), decode_arm(HALF, half, course, missed)],
            Figure(Side(SYNC, "time"), Side(STAGED, "time")),
            bench.probes(),
            control_of=STAGED,
            seed=SEED,
            rounds=rounds,
            progress=progress_line(f"{threads} threads"),
        )
    share = missed / routed
    bound = tuple((a, b * share) for a, b in pipeline(steps))
    for what, figure in (
        ("C, ms", Figure(Side(STAGED, "computing"), None, 1e-6)),
        ("IO, ms", Figure(READING, None, 1e-6)),
        ("sync over C + IO", _over(SYNC, STAGED, SERIAL)),
        (f"staged over the pipeline of {steps} steps", _over(STAGED, STAGED, pipeline(steps))),
        ("speed of staged over sync", timed.figure),
        (f"half in RAM, {share:.0%} of its experts read, over the pipeline", _over(HALF, HALF, bound)),
    ):
        yield f"{threads} threads, {what}: {_text(timed, figure)}"


def _over(arm: str, compute: str, terms: Terms) -> Figure:
    return Figure(Side(arm, "time"), Paths(Side(compute, "computing"), READING, terms))


def _text(timed: Timed, figure: Figure) -> str:
    found = summarise(replace(timed, figure=figure), CONFIDENCE, DEFAULT_GUARD)
    if found.value is None or found.low is None or found.high is None:
        text = "no figure"
    else:
        text = f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]"
    doubts = "".join(f"; {reason}" for reason in found.reasons)
    return f"{text}, {found.valid} rounds, {found.void} void{doubts}"


def main() -> None:
    """Parses the arguments and prints the lines of every number of threads."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", default="1", help="thread counts, e.g. 1,2 (default 1)")
    parser.add_argument("--tokens", type=int, default=4, help="tokens of a turn (default 4)")
    parser.add_argument("--rounds", type=int, default=DEFAULT_ROUNDS, help="valid rounds wanted")
    parser.add_argument("-o", "--option", action="append", default=[], metavar="NAME=VALUE")
    arguments = parser.parse_args()
    try:
        for name in ("tokens", "rounds"):
            if getattr(arguments, name) < 1:
                raise ArgumentError(f"--{name} is {getattr(arguments, name)}, must be at least 1")
        options = parse_options(arguments.option)
        for threads in thread_counts(arguments.threads):
            for line in lines(arguments.model, threads, arguments.tokens, arguments.rounds, options):
                print(line, flush=True)
    except (CflowError, CacheStateError, OSError, ValueError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
