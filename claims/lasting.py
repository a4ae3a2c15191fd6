"""Arms of engines in processes of their own, which may die, hang or run out of memory in the middle of a run.

The turn that was lost stands in the rounds as a sample that voids its round; the engine is started anew and
the run goes on. What the engine logged is kept in the results folder. An engine that fails again and again
ends the measurement with a BaselineError that says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from baselines.errors import BaselineError
from harness.paired import Arm
from harness.results import write_atomically
from harness.rounds import FAILED_COUNTER, Sample

MOST_FAILURES: Final = 3
"""Of an engine in one run: at the last of them it is given up."""
LOGS: Final = "logs"
"""Folder beside results.json."""
_MEMORY_SIGNAL: Final = "Killed"


class Process(Protocol):
    """An engine's process, as `LlamaCpp` and `VllmCpu` are."""

    @property
    def pid(self) -> int:
        """Its process id."""

    def close(self) -> None:
        """Ends it. May be called again."""


@dataclass(frozen=True)
class Started:
    """An engine that is loaded, and the arm that runs it."""

    process: Process
    arm: Arm


@dataclass(frozen=True)
class Logs:
    """Keeps what failed engines logged: one file for each failure in `folder`."""

    folder: Path

    def keep(self, name: str, error: BaselineError) -> Path:
        """Writes message and log of a failure; the file's path."""
        self.folder.mkdir(parents=True, exist_ok=True)
        words = "-".join("".join(c if c.isalnum() or c == "." else " " for c in name.lower()).split())
        number = 1
        while (path := self.folder / f"{words}-{number}.log").exists():
            number += 1
        write_atomically(path, "\n".join([str(error), *error.log, ""]))
        return path


class Lasting:
    """An arm whose engine is started anew when it fails. Use `arm` in a run; `close()` ends the engine.

    start: loads the engine and makes its arm, which gives the same output each time. Raises BaselineError,
    its log kept, when the engine does not even start.
    """

    def __init__(self, name: str, start: Callable[[], Started], logs: Logs) -> None:
        self._name = name
        self._start = start
        self._logs = logs
        self._failures: list[Path] = []
        self._started = self._begin()

    @property
    def arm(self) -> Arm:
        """The arm: its turns are the engine's, or a failed sample for one that the engine did not end."""
        first = self._started.arm
        return Arm(first.name, self._run, first.expected_digest, first.description, first.resident)

    @property
    def pid(self) -> int:
        """The engine's process id, another one after a failure."""
        return self._started.process.pid

    def close(self) -> None:
        """Ends the engine. May be called again."""
        self._started.process.close()

    def _begin(self) -> Started:
        try:
            return self._start()
        except BaselineError as error:
            raise self._told(error) from error

    def _run(self) -> Sample:
        started_ns = time.monotonic_ns()
        try:
            return self._started.arm.run()
        except BaselineError as error:
            lost_ns = time.monotonic_ns() - started_ns
            told = self._told(error)
            self._started.process.close()
            if len(self._failures) >= MOST_FAILURES:
                raise told from error
        self._started = self._begin()
        return Sample(max(lost_ns, 1), 0, "", counters={FAILED_COUNTER: 1})

    def _told(self, error: BaselineError) -> BaselineError:
        """The failure in words, with where its log is kept."""
        self._failures.append(self._logs.keep(self._name, error))
        times = f" {len(self._failures)} times" if len(self._failures) > 1 else ""
        memory = " (out of memory?)" if _MEMORY_SIGNAL in str(error) else ""
        kept = ", ".join(str(path) for path in self._failures)
        return BaselineError(f"{self._name} failed{times}: {error}{memory}; logs: {kept}", error.log)
