"""Runs a program under valgrind's cachegrind and reads what each of its functions missed.

cachegrind 3.19 has no way to start and stop counting, so counts are taken by function: each function's own,
without those that it calls. A kernel is one function, never inlined, for it is called through a pointer.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.cachesim import CacheGeometry
from harness.errors import HarnessError

_LAST_LEVEL = "20971520,20,64"
_TIMEOUT_S = 600


class CachegrindError(HarnessError):
    """valgrind is missing, or it failed, or its file does not hold what is needed."""


@dataclass(frozen=True)
class FunctionCounts:
    """Counts of one function by cachegrind's names of events: Ir, Dr, D1mr, Dw, D1mw, ..."""

    events: Mapping[str, int]

    @property
    def read_misses(self) -> int:
        """Loads that missed L1-d."""
        return self.events["D1mr"]

    @property
    def reads(self) -> int:
        """Loads, those of spilled registers and constants included."""
        return self.events["Dr"]


def available() -> bool:
    """Whether valgrind is installed."""
    return shutil.which("valgrind") is not None


def parse(text: str) -> dict[str, FunctionCounts]:
    """Counts by function out of a cachegrind.out file. A function in several files is summed.

    Raises CachegrindError naming the line.
    """
    events: list[str] = []
    sums: dict[str, list[int]] = {}
    current: list[int] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("events:"):
            events = line.split()[1:]
        elif line.startswith("fn="):
            current = sums.setdefault(line[3:], [0] * len(events))
        elif line[:1].isdigit():
            fields = line.split()[1:]
            if current is None or len(fields) > len(events) or not all(field.isdigit() for field in fields):
                raise CachegrindError(
                    f"cachegrind.out line {number}: found {line!r}, expected a line of counts"
                )
            for index, field in enumerate(fields):
                current[index] += int(field)
    if not events or not sums:
        raise CachegrindError("cachegrind.out: no events or no functions in it")
    return {name: FunctionCounts(dict(zip(events, counts, strict=True))) for name, counts in sums.items()}


def run(
    command: Sequence[str], d1: CacheGeometry, variables: Mapping[str, str] | None = None
) -> dict[str, FunctionCounts]:
    """Counts by function of a program with that L1-d; `variables` are added to its environment.

    Raises CachegrindError with the end of valgrind's output.
    """
    if not available():
        raise CachegrindError("valgrind is not installed (Debian, Ubuntu: apt install valgrind)")
    # A preloaded sanitizer is for the process that tests, and cannot run under valgrind.
    inherited = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    environment = {**inherited, **(variables or {})}
    with tempfile.TemporaryDirectory(prefix="cflow-cachegrind-") as folder:
        out = Path(folder) / "cachegrind.out"
        options = ["--tool=cachegrind", "--cache-sim=yes", f"--D1={d1.cachegrind()}", f"--LL={_LAST_LEVEL}"]
        try:
            done = subprocess.run(
                ["valgrind", *options, f"--cachegrind-out-file={out}", *command],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CachegrindError(f"valgrind: {error}") from error
        if done.returncode != 0 or not out.exists():
            said = (done.stdout + done.stderr).strip().splitlines()
            own = [line for line in said if not line.startswith(("==", "--"))]
            end = "\n".join((own or said)[-10:])
            raise CachegrindError(f"valgrind {' '.join(command)} exited with {done.returncode}:\n{end}")
        return parse(out.read_text())


def of_function(counts: Mapping[str, FunctionCounts], name: str) -> FunctionCounts:
    """Counts of a function and of the clones that a compiler makes of it (`name.part.0`).

    Raises CachegrindError when there is none: it was inlined, or the program lost its symbols.
    """
    parts = [one.events for key, one in counts.items() if key == name or key.startswith(f"{name}.")]
    if not parts:
        raise CachegrindError(f"cachegrind.out: no function {name}")
    return FunctionCounts({event: sum(part[event] for part in parts) for event in parts[0]})
