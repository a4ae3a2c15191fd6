"""Fuzz the readers of model files with libFuzzer under AddressSanitizer and UndefinedBehaviorSanitizer.

Examples: `python -m tools.fuzz vflow --seconds 7200`, `python -m tools.fuzz all --seconds 60`. A run goes on
where the last one in the same work folder ended. Exit code 1: something was found, or what was found earlier
is still there; 2: it cannot run. With --blind an engine is fuzzed that does not look where a tensor lies:
exit code 1 then says that its fault was not found in that time.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.build_engine import ROOT, BuildError
from tools.fuzz.coverage import measure_lines
from tools.fuzz.merge import merge_corpus
from tools.fuzz.run import Crash, Runner, Summary, read_summary, write_summary
from tools.fuzz.seeds import write_seeds
from tools.fuzz.targets import TARGETS, build_targets, find_clang

BLIND = "unchecked_regions"
"""The engine that the fuzzers must find at fault (cmake/CflowFlags.cmake)."""


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line; exits with 2 when it is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "target", choices=[*TARGETS, "all", "seeds"], help="seeds: write the inputs that fuzzing starts from"
    )
    parser.add_argument("--seconds", type=_count, default=60, help="of each target (60)")
    parser.add_argument("--jobs", type=_count, default=1, help="processes side by side (1)")
    parser.add_argument("--work", type=Path, default=ROOT / "build/fuzz", help="folder (build/fuzz)")
    parser.add_argument(
        "--compiler", help="a clang, by name or path; by default the first that has libFuzzer"
    )
    parser.add_argument("--blind", action="store_true", help=f"instead: find the fault of mutant {BLIND}")
    parser.add_argument("--merge", action="store_true", help="instead: take found inputs into fuzz/corpus")
    parser.add_argument("--coverage", action="store_true", help="instead: lines that the inputs reach")
    return parser.parse_args(arguments)


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 10_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number, 1 to 10,000,000")
    return int(text)


def _say(text: str) -> None:
    print(text, flush=True)


def _fuzz(runner: Runner, compiler: str, options: argparse.Namespace, stop: threading.Event) -> bool:
    """Whether the target passed."""
    summary = read_summary(runner.summary_path, runner.target.name)
    summary.compiler = compiler
    before, old = len(summary.crashes), list[Crash]()
    if options.coverage:
        summary.lines = measure_lines(runner, compiler, options.work / f"coverage-{Path(compiler).name}")
        for name, counts in sorted(summary.lines.items()):
            covered = f"{counts['covered']:.0f} of {counts['lines']:.0f}"
            _say(f"{runner.target.name}: {name}: {covered} lines, {counts['percent']} %")
        write_summary(runner.summary_path, summary)
    elif options.merge:
        added, left_out = merge_corpus(runner)
        _say(f"{runner.target.name}: {len(added)} inputs taken over, {left_out} left out for want of room")
    else:
        old = runner.still_found(summary, stop.is_set)
        runner.run(summary, options.seconds, options.jobs, _say, stop.is_set)
    for crash in summary.crashes[before:]:
        _say(f"{runner.target.name}: {crash.cause}\n  input {crash.reduced or 'unknown'}")
    for crash in old:
        _say(f"{runner.target.name}: found earlier and still there: {crash.cause}\n  input {crash.reduced}")
    return len(summary.crashes) == before and not old


def _finds_the_fault(
    runner: Runner, compiler: str, options: argparse.Namespace, stop: threading.Event
) -> bool:
    """Whether a fresh run of the engine with a fault comes upon an input that shows it."""
    summary = Summary(runner.target.name, compiler)
    runner.run(
        summary,
        options.seconds,
        options.jobs,
        lambda _: None,
        lambda: stop.is_set() or bool(summary.crashes),
    )
    found = next((crash.cause for crash in summary.crashes if crash.input), "")
    if found:
        said = f"found by {summary.executions:,} executions {found}"
    elif summary.crashes:
        said = f"not found: {summary.crashes[0].cause}"
    else:
        said = f"not found in {options.seconds} s"
    _say(f"{runner.target.name}: the fault of {BLIND} was {said}")
    return bool(found)


@contextmanager
def _stop_on_signals() -> Iterator[threading.Event]:
    """Set by Ctrl-C and SIGTERM: the piece at work ends, and its counts are kept."""
    stop = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main(arguments: list[str]) -> int:
    """Exit code 0, 1 (something was found) or 2."""
    options = parse(arguments)
    if options.target == "seeds":
        _say(f"{len(write_seeds(ROOT / 'fuzz/corpus'))} inputs written to fuzz/corpus")
        return 0
    options.work = options.work.resolve()
    outcomes = []
    try:
        compiler = options.compiler or find_clang()
        judge = _finds_the_fault if options.blind else _fuzz
        work = options.work / "blind" if options.blind else options.work
        mutant = BLIND if options.blind else ""
        build_dir = build_targets(work / f"build-{Path(compiler).name}", compiler, mutant=mutant)
        with _stop_on_signals() as stop:
            for target in TARGETS.values() if options.target == "all" else [TARGETS[options.target]]:
                runner = Runner(target, build_dir / target.program, work / target.name, not options.blind)
                if options.blind:  # what an earlier run found would be no news
                    shutil.rmtree(runner.work, ignore_errors=True)
                runner.prepare()
                outcomes.append(judge(runner, compiler, options, stop))
                if stop.is_set():
                    break
    except (BuildError, ValueError, OSError) as error:
        print(f"fuzz: {error}", file=sys.stderr)
        return 2
    failed = outcomes.count(False)
    _say(f"{len(outcomes) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
