"""The property that every target keeps, for one case.

A use succeeds, or raises an error of our hierarchy whose message is a line that names a file of the case; it
leaves no file but those it says, takes bounded memory, and ends.
"""

from __future__ import annotations

import resource
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from cli.console import one_line
from engine.errors import CflowError
from harness.errors import HarnessError
from tests.fuzz.targets import Files, Target

MEMORY_BYTES: Final = 2 << 30
"""Address space that a process of the fuzzer may take beyond what it has when it starts."""
CASE_S: Final = 60


class FindingError(AssertionError):
    """A case that breaks the property; the message says how."""


def hold(target: Target, files: Files) -> bool:
    """Runs one case in a folder of its own; whether the files were taken. Raises FindingError."""
    with tempfile.TemporaryDirectory(prefix="cflow-fuzz-") as scratch:
        folder = Path(scratch) / "case"
        folder.mkdir()
        for name, data in files.items():
            (folder / name).write_bytes(data)
        taken = _use(target, folder)
        allowed = {*files, *(target.writes if taken else ())}
        left = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
        if left - allowed:
            raise FindingError(f"left behind: {sorted(left - allowed)}")
        return taken


def _use(target: Target, folder: Path) -> bool:
    try:
        with _time_limit():
            target.read(folder)
    except (CflowError, HarnessError) as error:
        text = one_line(str(error))  # as the command line shows it
        if str(folder) not in text:
            raise FindingError(f"names no file: {type(error).__name__}: {text[:300]}") from error
        return False
    except FindingError:
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise FindingError(f"{type(error).__name__}: {str(error)[:300]}") from error
    return True


@contextmanager
def _time_limit() -> Iterator[None]:
    def late(number: int, frame: FrameType | None) -> None:
        raise FindingError(f"takes more than {CASE_S} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(CASE_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def limit_memory() -> None:
    """Bounds what this process may allocate from now on: who asks for more is a finding, no dead machine."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
