"""Check the models of the engine's concurrency (models/) with Spin: `python -m tools.model [NAME...]`.

Every run is one model with one set of macros, searched in full. In a model as it is nothing may be found; in
one that is wrong on purpose the fault that is expected of it must be. Prints one line per run. Exit code 1: a
run did not end as it should; 2: usage, or a tool is missing.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import monotonic

from tools.build_engine import ROOT

MODELS = ROOT / "models"
TIME_LIMIT_S = 900
DEPTH = 1_000_000
"""Most steps of one execution; a search that would go deeper is reported, not cut."""
MEMORY_MIB = 6000

NOTHING, DEADLOCK, ASSERTION = "nothing", "deadlock", "assertion"
FAULTS = {"invalid end state": DEADLOCK, "assertion violated": ASSERTION}
"""As a search names them -> as runs do."""
INCOMPLETE = ("max search depth too small", "Search not completed", "out of memory", "reached -DMEMLIM")


class ModelError(Exception):
    """A model cannot be checked; the message says why."""


@dataclass(frozen=True)
class Run:
    """One search: a file of models/, its macros, and what must be found."""

    model: str
    macros: str = ""
    finds: str = NOTHING
    is_long: bool = False
    """Takes minutes: only with --long."""

    @property
    def name(self) -> str:
        """The model and its macros, as given on the command line of spin."""
        return " ".join([self.model, *(f"-D{macro}" for macro in self.macros.split())])


@dataclass(frozen=True)
class Outcome:
    """What a search found, in how many states and seconds (of compiling and searching)."""

    run: Run
    found: str
    states: int
    seconds: float

    @property
    def is_right(self) -> bool:
        """Whether it is what must be found."""
        return self.found == self.run.finds


def _wrong(model: str, macros: str, **mutants: str) -> list[Run]:
    return [Run(model, f"{macros} {mutant}".strip(), finds) for mutant, finds in mutants.items()]


ONE_FAULT = "FAULTS=1 REPEATS=0 CANCELS=1"
RUNS = (
    Run("barrier", "N=2 JOBS=2 INTERRUPTS=1"),
    Run("barrier", "N=2 JOBS=2 WEAK"),
    Run("barrier", "N=3"),
    Run("barrier", "N=3 PER_GROUP=2 ROUNDS=1"),
    Run("barrier", "N=3 PER_GROUP=2 ROUNDS=1 WEAK"),
    Run("barrier", "N=3 JOBS=2 INTERRUPTS=1", is_long=True),
    Run("barrier", "N=4 PER_GROUP=2 ROUNDS=1", is_long=True),
    Run("ring", "FAULTS=1 REPEATS=0 CANCELS=0 CALLS=1"),
    Run("ring", "FAULTS=0 REPEATS=1 CANCELS=0 CALLS=1"),
    Run("ring", "FAULTS=0 REPEATS=0 CANCELS=1 CALLS=1 SPARE=1"),
    Run("ring", f"{ONE_FAULT} TOKENS=1"),
    Run("ring", "FAULTS=1 REPEATS=0 CANCELS=0", is_long=True),
    Run("ring", "FAULTS=0 REPEATS=1 CANCELS=0", is_long=True),
    Run("ring", "FAULTS=0 REPEATS=0 CANCELS=1 SPARE=1", is_long=True),
    Run("staging", f"{ONE_FAULT} EXPERTS=1 DELAY=0 OFFSET=0"),
    Run("staging", f"{ONE_FAULT} EXPERTS=1 DELAY=0 OFFSET=1"),
    Run("staging", f"{ONE_FAULT} EXPERTS=1 DELAY=1 OFFSET=0"),
    Run("staging", f"{ONE_FAULT} EXPERTS=1 DELAY=1 OFFSET=1"),
    Run("staging", f"{ONE_FAULT} EXPERTS=1 DELAY=2 OFFSET=1"),
    Run("staging", "FAULTS=0 REPEATS=1 CANCELS=1 EXPERTS=1 DELAY=2 OFFSET=0"),
    Run("staging", f"{ONE_FAULT} LAYERS=2 DELAY=1 OFFSET=1 KEEP"),
    Run("staging", f"{ONE_FAULT} LAYERS=2 DELAY=0 OFFSET=0 KEEP SPARE=1 BLOCKS=1"),
    Run("staging", f"{ONE_FAULT} DELAY=1 OFFSET=1", is_long=True),
    Run("staging", f"{ONE_FAULT} DELAY=1 OFFSET=1 KEEP", is_long=True),
    Run("staging", f"{ONE_FAULT} DELAY=2 OFFSET=1 KEEP SPARE=1 BLOCKS=2", is_long=True),
    *_wrong(
        "barrier",
        "N=2",
        NO_FENCE=DEADLOCK,
        WAKE_BEFORE_FLAG=DEADLOCK,
        SLEEP_UNCOUNTED=DEADLOCK,
        NO_SECOND_LOOK=DEADLOCK,
        RESET_LATE=DEADLOCK,
        RUNNING_LATE=DEADLOCK,
        STOP_LATE=DEADLOCK,
        END_WITHOUT_WAKE=DEADLOCK,
        MISSING_WORKERS_COUNTED=DEADLOCK,
    ),
    *_wrong("barrier", "N=2 WEAK", RELAXED_ARRIVAL=ASSERTION, RELAXED_FLAG=ASSERTION),
    *_wrong(
        "ring",
        "FAULTS=0 REPEATS=0 CANCELS=0",
        NO_WAIT=ASSERTION,
        RELEASED_EARLY=ASSERTION,
        NO_GAP=ASSERTION,
        WRAPS_INTO_OLDEST=ASSERTION,
    ),
    *_wrong("ring", f"{ONE_FAULT} TOKENS=1", MISSING_CANCEL=ASSERTION, RETURNS_AT_FIRST_FAILURE=ASSERTION),
    *_wrong(
        "staging",
        f"{ONE_FAULT} DELAY=1 OFFSET=1",
        NO_WAIT=ASSERTION,
        RELEASED_EARLY=ASSERTION,
        MISSING_CANCEL=ASSERTION,
        RETURNS_AT_FIRST_FAILURE=ASSERTION,
        FENCE_STAYS_SHUT=DEADLOCK,
    ),
    *_wrong(
        "staging",
        f"{ONE_FAULT} DELAY=1 OFFSET=1 KEEP",
        READ_NOT_FORGOTTEN=ASSERTION,
        FAILURE_KEPT=ASSERTION,
        HIT_UNMARKED=ASSERTION,
    ),
)


def missing_tools() -> list[str]:
    """What must be installed and is not."""
    return [tool for tool in ("spin", "cc") if shutil.which(tool) is None]


def check(run: Run) -> Outcome:
    """Search a model. Raises ModelError when it does not compile, or the search does not end."""
    start = monotonic()
    with tempfile.TemporaryDirectory(prefix="cflow-model-") as folder:
        macros = [f"-D{macro}" for macro in run.macros.split()]
        _execute(run, ["spin", *macros, "-a", str(MODELS / f"{run.model}.pml")], folder)
        # A search of some seconds is over before an optimised program would be compiled.
        optimisation = "-O2" if run.is_long else "-O0"
        bounds = ["-DSAFETY", "-DNOFAIR", f"-DMEMLIM={MEMORY_MIB}"]
        _execute(run, ["cc", optimisation, "-w", *bounds, "-o", "pan", "pan.c"], folder)
        said = _execute(run, ["./pan", f"-m{DEPTH}"], folder)
    states = re.search(r"^ *([0-9.e+]+) states, stored", said, re.MULTILINE)
    cut = [reason for reason in INCOMPLETE if reason in said]
    fault = re.search(rf"^pan:\d+: ({'|'.join(FAULTS)})", said, re.MULTILINE)
    if states is None or (fault is None and (cut or "errors: 0" not in said)):
        raise ModelError(f"{run.name}: the search did not end: {', '.join(cut) or said.strip()[-500:]}")
    found = NOTHING if fault is None else FAULTS[fault[1]]
    return Outcome(run, found, int(float(states[1])), monotonic() - start)


def _execute(run: Run, command: list[str], folder: str) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIME_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        raise ModelError(f"{run.name}: {command[0]} ran for more than {TIME_LIMIT_S} s") from None
    # Spin says what it does not understand on the way, and goes on.
    if done.returncode != 0 or (command[0] == "spin" and "rror" in done.stdout):
        raise ModelError(f"{run.name}: {command[0]} failed: {done.stdout.strip()[-1000:]}")
    return done.stdout


def check_all(runs: Sequence[Run], jobs: int) -> Iterator[Outcome | ModelError]:
    """The outcomes of runs in their order, up to `jobs` of them at once; an error in the place of its run."""

    def attempt(run: Run) -> Outcome | ModelError:
        try:
            return check(run)
        except ModelError as error:
            return error

    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(attempt, runs)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.model", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="NAME", help="barrier, ring or staging; default: all")
    parser.add_argument("--long", action="store_true", help="also the searches that take minutes each")
    parser.add_argument("--jobs", type=int, default=2, help="searches at once (default: 2)")
    arguments = parser.parse_args()
    known = sorted({run.model for run in RUNS})
    unknown = [name for name in arguments.models if name not in known]
    if unknown or arguments.jobs < 1:
        wrong = f"no model {unknown[0]!r}; models are {', '.join(known)}" if unknown else "--jobs is below 1"
        print(f"model: {wrong}", file=sys.stderr)
        return 2
    if missing_tools():
        names = ", ".join(missing_tools())
        print(f"model: not installed: {names} (Debian, Ubuntu: apt install spin gcc)", file=sys.stderr)
        return 2
    chosen = [
        run
        for run in RUNS
        if (run.model in arguments.models or not arguments.models) and (arguments.long or not run.is_long)
    ]
    failed = 0
    for result in check_all(chosen, arguments.jobs):
        if isinstance(result, ModelError):
            print(f"FAILED  {result}", flush=True)
            failed += 1
            continue
        verdict = "ok    " if result.is_right else "FAILED"
        expected = "" if result.is_right else f", expected {result.run.finds}"
        print(
            f"{verdict}  {result.run.name}: {result.found} found{expected}; "
            f"{result.states:,} states, {result.seconds:.1f} s",
            flush=True,
        )
        failed += not result.is_right
    print(f"{len(chosen) - failed} as expected, {failed} not")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
