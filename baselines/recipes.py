"""What all ways of installing a baseline share: what a recipe answers, and running an installer."""

from __future__ import annotations

import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Timer

from baselines.errors import BaselineError

Say = Callable[[str], None]
"""Told what happens, a line at a time, for a progress display."""

LOG_LINES = 20


class Recipe(ABC):
    """How one baseline gets into a folder of its own: its environment."""

    name: str
    package: str
    version: str
    movable: bool
    """Whether a complete environment may be renamed; one that may not is made in its final place."""

    @property
    @abstractmethod
    def specifier(self) -> str:
        """Package and version as the installer wants them."""

    @abstractmethod
    def is_complete(self, environment: Path) -> bool:
        """Whether the needed version is there, whole."""

    @abstractmethod
    def check(self, parent: Path) -> None:
        """Raises BaselineError when it cannot be installed below `parent`: nothing was done yet."""

    @abstractmethod
    def fetch(self, environment: Path, say: Say) -> None:
        """Installs into an empty folder. Raises BaselineError."""

    def failure(self, reason: str, log: Sequence[str] = ()) -> BaselineError:
        """The error of an installation that failed; the last lines of the log are kept."""
        return BaselineError(f"{self.name} was not installed: {reason}", tuple(log[-LOG_LINES:]))


@dataclass(frozen=True)
class Outcome:
    """How an installer ended; `status` is None when it took too long. `lines`: what it printed, no blanks."""

    status: int | None
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        """All lines."""
        return "\n".join(self.lines)


def run(
    command: Sequence[str], timeout_s: float, say: Say, environment: Mapping[str, str] | None = None
) -> Outcome:
    """Runs an installer to its end; kills it and what it started after `timeout_s`, or when interrupted."""
    with subprocess.Popen(
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        env=None if environment is None else dict(environment),
        start_new_session=True,
    ) as process:
        expired = []

        def expire() -> None:
            expired.append(True)
            _kill(process)

        timer = Timer(timeout_s, expire)
        timer.start()
        lines = []
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.strip():
                    lines.append(line.rstrip())
                    say(lines[-1].strip())
            status = process.wait()
        finally:
            timer.cancel()
            if process.poll() is None:
                _kill(process)
    return Outcome(None if expired else status, tuple(lines))


def _kill(process: subprocess.Popen[str]) -> None:
    """The whole group: installers start programs of their own, which hold the pipe open."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
