"""How far the kernel reads ahead on the disk under a folder, and a setting that is always taken back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from harness.errors import HarnessError
from harness.machine import block_folder

ROOT: Final = Path("/")
_WATCHER: Final = """
import sys
if not sys.stdin.buffer.read(1):
    with open(sys.argv[1], "w") as control:
        control.write(sys.argv[2])
"""
"""Waits for a byte that says that all is done; a pipe that ends without one had a writer that was killed."""


class ReadAheadError(HarnessError):
    """The readahead of a disk cannot be read or set."""


def _control(folder: Path, root: Path) -> Path:
    try:
        return block_folder(folder, root) / "queue/read_ahead_kb"
    except OSError as error:
        raise ReadAheadError(f"{folder}: lies on no block device: {error.strerror}") from error


def read_ahead_kib(folder: Path, root: Path = ROOT) -> int:
    """Readahead in KiB of the disk under `folder`. Raises ReadAheadError where there is none."""
    control = _control(folder, root)
    try:
        return int(control.read_text())
    except (OSError, ValueError) as error:
        raise ReadAheadError(f"{control}: cannot be read: {error}") from error


@contextmanager
def read_ahead(folder: Path, kib: int | None, root: Path = ROOT) -> Iterator[int]:
    """Inside the block the disk under `folder` reads `kib` KiB ahead (None: as it is); yields what holds.

    A file takes the setting when it is opened. The old one comes back whatever happens inside, also when this
    process is killed: another one, in a session of its own, waits for that. The setting is the whole
    machine's. Raises ReadAheadError where it cannot be set, which takes root.
    """
    before = read_ahead_kib(folder, root)
    if kib is None or kib == before:
        yield before
        return
    control = _control(folder, root)
    with _taken_back(control, before):
        try:
            control.write_text(f"{kib}\n")
        except OSError as error:
            raise ReadAheadError(f"{control}: cannot be set: {error.strerror}; it takes root") from error
        yield read_ahead_kib(folder, root)


@contextmanager
def _taken_back(control: Path, before: int) -> Iterator[None]:
    """Writes `before` at the end of the block, or of this process."""
    command = [sys.executable, "-I", "-S", "-c", _WATCHER, str(control), f"{before}\n"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as watcher:
        try:
            yield
        finally:
            with suppress(OSError):  # where it could not be set
                control.write_text(f"{before}\n")
            watcher.communicate(b".")


def block_reads(folder: Path, root: Path = ROOT) -> tuple[int, int]:
    """Read requests and bytes read of the disk under `folder` since boot, by all processes.

    Raises ReadAheadError where the kernel does not count them.
    """
    path = _control(folder, root).parents[1] / "stat"
    try:
        fields = [int(field) for field in path.read_text().split()]
        return fields[0], fields[2] * 512
    except (OSError, ValueError, IndexError) as error:
        raise ReadAheadError(f"{path}: cannot be read: {error}") from error
