"""Fuzzes what reads files of strangers in Python: `python -m tests.fuzz TARGET --seconds 3600`.

Batches of cases made by hypothesis, each batch under a seed of its own; --work keeps the next seed, the
totals (TARGET.json) and what broke the property (TARGET/), so that a run goes on where it was stopped.
Findings are as small as hypothesis makes them. Exit codes: 0 no findings, 1 findings, 2 usage.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st
from hypothesis.errors import Flaky

from architectures.atomic import write_atomically
from engine.errors import LibraryError
from engine.native import lib
from tests.fuzz.property import FindingError, hold, limit_memory
from tests.fuzz.targets import TARGETS, Files, Target

BATCH_CASES = 500


@dataclass
class Totals:
    """Of all runs so far. taken: cases that were read as valid."""

    next_seed: int = 0
    cases: int = 0
    taken: int = 0
    seconds: float = 0.0
    findings: int = 0


@dataclass(frozen=True)
class Batch:
    """What a batch found. finding: the smallest case that breaks the property, and how, if there is one."""

    cases: int
    taken: int
    finding: tuple[Files, str] | None


def run_batch(target: Target, seed: int, cases: int) -> Batch:
    """Runs `cases` cases; the same seed gives the same ones."""
    counts = {"cases": 0, "taken": 0}
    broken: list[tuple[Files, str]] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=cases,
        deadline=None,
        database=None,
        derandomize=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        print_blob=False,
        report_multiple_bugs=False,
    )
    @hypothesis.given(st.randoms(use_true_random=False))
    def one(random: Random) -> None:
        files = target.make(random)
        counts["cases"] += 1
        try:
            counts["taken"] += hold(target, files)
        except FindingError as error:
            broken.append((files, str(error)))
            raise

    try:
        one()
    except (FindingError, Flaky):  # the latter: the next time it held, as may be with memory and time
        return Batch(counts["cases"], counts["taken"], broken[-1])
    return Batch(counts["cases"], counts["taken"], None)


def save_finding(folder: Path, files: Files, why: str) -> Path:
    """Writes the files of a case, and `why.txt` beside them, into a folder named by their hash."""
    digest = hashlib.sha256(b"\0".join(name.encode() + b"\0" + files[name] for name in sorted(files)))
    case = folder / digest.hexdigest()[:12]
    case.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (case / name).write_bytes(data)
    (case / "why.txt").write_text(why + "\n", encoding="utf-8", errors="backslashreplace")
    return case


def fuzz(target: Target, work: Path, seconds: float, cases: int) -> Totals:
    """Runs batches until the time or, if not 0, the number of cases is used up. Returns the totals so far."""
    path = work / f"{target.name}.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    totals = Totals(**found)
    begun = totals.cases
    end = time.monotonic() + seconds
    while time.monotonic() < end and not (cases and totals.cases - begun >= cases):
        start = time.monotonic()
        batch = run_batch(target, totals.next_seed, min(cases or BATCH_CASES, BATCH_CASES))
        totals.next_seed += 1
        totals.cases += batch.cases
        totals.taken += batch.taken
        totals.seconds += time.monotonic() - start
        if batch.finding is not None:
            totals.findings += 1
            print(f"{save_finding(work / target.name, *batch.finding)}: {batch.finding[1]}", flush=True)
        work.mkdir(parents=True, exist_ok=True)
        write_atomically(path, (json.dumps(asdict(totals), indent=1) + "\n").encode())
    return totals


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=float, default=60.0, help="for how long (default: 60)")
    parser.add_argument("--cases", type=int, default=0, help="how many cases at most (default: no limit)")
    parser.add_argument(
        "--work", type=Path, default=Path("build/fuzz/python"), help="default: build/fuzz/python"
    )
    chosen = parser.parse_args(arguments)
    target = TARGETS[chosen.target]
    if target.missing:
        print(f"fuzz: {target.name}: {target.missing}", file=sys.stderr)
        return 2
    try:
        lib()
    except LibraryError as error:
        print(f"fuzz: {error}", file=sys.stderr)
        return 2
    run_batch(target, 0, 1)  # whatever is imported on first use is there before memory is bounded
    limit_memory()
    before = 0
    if (chosen.work / f"{target.name}.json").exists():
        before = json.loads((chosen.work / f"{target.name}.json").read_text())["findings"]
    totals = fuzz(target, chosen.work, chosen.seconds, chosen.cases)
    speed = totals.cases / totals.seconds if totals.seconds else 0.0
    print(
        f"{target.name}: {totals.cases} cases, {totals.taken} taken, {totals.findings} findings, "
        f"{totals.seconds:.0f} s, {speed:.0f} cases/s in all runs"
    )
    return 1 if totals.findings > before else 0


if __name__ == "__main__":
    sys.exit(main())
