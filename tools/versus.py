"""Decode one model in several ways, in paired rounds: `python -m tools.versus MODEL WAY WAY ...`.

A way is session options and, after an @, the library that runs them: `read_streams=1,prefetch_hint=t0`,
`residency=copy@/path/to/libcflow.so`, or `-` for the defaults. The first is the reference: a ratio is its
time over that of another way, so above 1 the other is faster. All ways run in one process, round by round,
with the rules of evidence of the claims (docs/performance.md); they must generate the same tokens. With
--prompt the tokens come after a prompt, which is timed, too.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from claims.arms import read_whole
from claims.prompts import bench_prompt
from claims.run import SEED
from claims.speed import Ratio, ratio, time_ratio
from claims.timing import open_bench, progress_line
from claims.turns import engine_arm, greedy_course, prompt_view
from engine.errors import ArgumentError, CflowError
from engine.kernels import threads_default
from engine.model import Model
from engine.native import other_library
from engine.session import OptionValue, Session, parse_options
from harness.paired import Arm, run_pairs
from harness.rounds import Sample
from harness.statistics import DEFAULT_ROUNDS


@dataclass(frozen=True)
class Way:
    """What one arm runs: `text` as it was given, its options, and its library (None: the ordinary one)."""

    text: str
    options: dict[str, OptionValue]
    library: Path | None


def parse_way(text: str) -> Way:
    """Raises ArgumentError: an option that is not NAME=VALUE, or a library that is no file."""
    options, _, library = text.partition("@")
    if library and not Path(library).is_file():
        raise ArgumentError(f"{text}: {library} is not a file")
    pairs = [] if options in ("", "-") else options.split(",")
    parsed = parse_options(pairs)
    for name, option in (("threads", "--threads"), ("context", "--tokens and --prompt")):
        if name in parsed:
            raise ArgumentError(f"{text}: {name} is set by {option}")
    return Way(text, parsed, Path(library) if library else None)


def thread_counts(text: str) -> list[int]:
    """Numbers from "1,2".

    Raises ArgumentError: no number, or more workers than cores, which voids all rounds.
    """
    most = threads_default()
    counts = [int(part) if part.isdecimal() else 0 for part in text.split(",")]
    if not all(1 <= count <= most for count in counts):
        raise ArgumentError(f"--threads is {text!r}, must be numbers from 1 to {most}, separated by commas")
    return counts


@contextmanager
def arm_of(way: Way, path: Path, threads: int, tokens: int, prompt: int = 1) -> Iterator[Arm]:
    """An arm that decodes `tokens` tokens after `prompt` on the way's own session, made and closed on its
    library.
    """

    def library() -> AbstractContextManager[None]:
        return nullcontext() if way.library is None else other_library(way.library)

    # Left again before the next way is made, which would be made on this one's library.
    with library():
        model = Model(path)
        session = Session(model, threads=threads, context=prompt + tokens, **way.options)
        course = greedy_course(session, bench_prompt(model, prompt, tokens).ids, tokens)
        arm = engine_arm(way.text, session, course)

    def run() -> Sample:
        with library():
            return arm.run()

    try:
        yield replace(arm, run=run)
    finally:
        with library():
            session.close()
            model.close()


def compare(
    path: Path, ways: list[Way], threads: int, tokens: int, rounds: int, prompt: int = 1
) -> Iterator[str]:
    """A line per way but the first; two when there is more than one token of prompt."""
    with ExitStack() as stack:
        bench = stack.enter_context(open_bench(threads))
        arms = [stack.enter_context(arm_of(way, path, threads, tokens, prompt)) for way in ways]
        first = arms[0]
        timed = run_pairs(
            [replace(arm, expected_digest=first.expected_digest) for arm in arms],
            time_ratio(first.name, arms[1].name),
            bench.probes(),
            control_of=first.name,
            seed=SEED,
            rounds=rounds,
            progress=progress_line(f"{threads} threads"),
        )
    for arm in arms[1:]:
        yield _line(ratio(timed, threads, first.name, arm.name, "decode", True), arm.name)
        if prompt > 1:
            prompts = prompt_view(timed, time_ratio(first.name, arm.name))
            yield _line(ratio(prompts, threads, first.name, arm.name, "prompt", True), arm.name)


def _line(found: Ratio, way: str) -> str:
    if found.median is None or found.low is None or found.high is None or found.a_a is None:
        figure = "no figure"
    else:
        figure = f"{found.median:.3f} [{found.low:.3f}, {found.high:.3f}]"
        figure += f", A/A [{found.a_a[0]:.3f}, {found.a_a[1]:.3f}]"
    doubts = "".join(f"; {reason}" for reason in found.reasons)
    head = f"{found.threads} threads, {way}, {found.what}"
    return f"{head}: {figure}, {found.rounds} rounds, {found.void} void{doubts}"


def main() -> None:
    """Parses the arguments and prints a line per way and number of threads."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("ways", nargs="+", metavar="WAY", help="options[@library], or - for the defaults")
    parser.add_argument("--threads", default="1", help="thread counts, e.g. 1,2 (default 1)")
    parser.add_argument("--tokens", type=int, default=32, help="tokens of a turn (default 32)")
    parser.add_argument("--prompt", type=int, default=1, help="tokens of prompt before them (default 1)")
    parser.add_argument("--rounds", type=int, default=DEFAULT_ROUNDS, help="valid rounds wanted")
    arguments = parser.parse_args()
    try:
        ways = [parse_way(text) for text in arguments.ways]
        if len(ways) < 2 or len({way.text for way in ways}) != len(ways):
            raise ArgumentError("two ways or more, all different, are needed")
        counts = thread_counts(arguments.threads)
        for name in ("tokens", "prompt", "rounds"):
            if getattr(arguments, name) < 1:
                raise ArgumentError(f"--{name} is {getattr(arguments, name)}, must be at least 1")
        read_whole(arguments.model)
        for threads in counts:
            sizes = (arguments.tokens, arguments.rounds, arguments.prompt)
            for line in compare(arguments.model, ways, threads, *sizes):
                print(line, flush=True)
    except (CflowError, OSError, ValueError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
