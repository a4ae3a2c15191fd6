"""A limit on the memory of child processes, page cache among it: a memory cgroup of their own, v1 or v2."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

from harness.errors import HarnessError

CGROUPS: Final = Path("/sys/fs/cgroup")
_NUMBERS: Final = count()


class MemoryLimitError(HarnessError):
    """No memory cgroup can be made here, or a process cannot be put into it."""


@dataclass(frozen=True)
class MemoryGroup:
    """A cgroup; what its processes read into the page cache counts, what others have there does not."""

    folder: Path
    limit_bytes: int
    """As the kernel has taken it, a multiple of the page size."""

    def add(self, process: int) -> None:
        """Puts a process into it. Raises MemoryLimitError."""
        _write(self.folder / "cgroup.procs", str(process))


def _write(control: Path, value: str) -> None:
    try:
        descriptor = os.open(control, os.O_WRONLY | os.O_CLOEXEC)  # never made when it is missing
        try:
            os.write(descriptor, value.encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        raise MemoryLimitError(
            f"{control}: cannot be written: {error.strerror}; memory cgroups take root"
        ) from error


def _controller(root: Path) -> tuple[Path, str]:
    """The folder that cgroups with a memory limit are made in, and the name of their limit."""
    if (root / "memory/memory.limit_in_bytes").exists():
        return root / "memory", "memory.limit_in_bytes"
    try:
        enabled = (root / "cgroup.subtree_control").read_text().split()
    except OSError as error:
        raise MemoryLimitError(f"{root}: no memory cgroups are mounted here") from error
    if "memory" not in enabled:
        raise MemoryLimitError(f"{root}/cgroup.subtree_control: memory is not among {enabled}")
    return root, "memory.max"


@contextmanager
def memory_limit(limit_bytes: int, root: Path = CGROUPS) -> Iterator[MemoryGroup]:
    """A cgroup with that limit, removed at the end; its processes must have ended by then.

    Raises MemoryLimitError where there are no memory cgroups or they cannot be made, which takes root.
    """
    parent, control = _controller(root)
    folder = parent / f"cflow-{os.getpid()}-{next(_NUMBERS)}"
    try:
        folder.mkdir()
    except OSError as error:
        raise MemoryLimitError(
            f"{folder}: cannot be made: {error.strerror}; memory cgroups take root"
        ) from error
    try:
        _write(folder / control, str(limit_bytes))
        with suppress(MemoryLimitError):  # absent where there is no swap
            _write(folder / "memory.swap.max", "0")
        yield MemoryGroup(folder, int((folder / control).read_text()))
    finally:
        with suppress(OSError):  # a process that does not end keeps it; the next boot removes it
            folder.rmdir()
