"""A limit on the memory of child processes, page cache among it: a memory cgroup of their own, v1 or v2."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

from engine.held import create_folder, unheld
from harness.errors import HarnessError

CGROUPS: Final = Path("/sys/fs/cgroup")
GROUP_NAME: Final = re.compile(r"cflow-(\d+)-\d+")
"""Of a cgroup that the process with that number makes and holds."""
SWAPS: Final = Path("/proc/swaps")
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

    def held_bytes(self) -> int:
        """What its processes hold that is not page cache: their memory, and the kernel's for them.

        Raises MemoryLimitError where the kernel does not say.
        """
        v1 = (self.folder / "memory.usage_in_bytes").exists()
        usage, cache = ("memory.usage_in_bytes", "cache") if v1 else ("memory.current", "file")
        try:
            # Counted in batches per CPU: by up to some hundred KiB the cache may look larger than the whole.
            return max(0, int((self.folder / usage).read_text()) - self._counted(cache))
        except (OSError, ValueError, KeyError) as error:
            raise MemoryLimitError(f"{self.folder}: {usage} or memory.stat cannot be read") from error

    def may_swap(self, swaps: Path = SWAPS) -> bool:
        """Whether its processes can go beyond the limit by swapping."""
        try:
            devices = swaps.read_text().splitlines()[1:]
        except OSError:  # a kernel without swap
            return False
        control = self.folder / "memory.swap.max"
        forbidden = control.exists() and control.read_text().strip() == "0"
        return bool(devices) and not forbidden

    def _counted(self, name: str) -> int:
        lines = (self.folder / "memory.stat").read_text().splitlines()
        return int(dict(line.split(maxsplit=1) for line in lines)[name])


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

    Those that a killed process left go first.

    Raises MemoryLimitError where there are no memory cgroups or they cannot be made, which takes root.
    """
    parent, control = _controller(root)
    for left in unheld(parent, GROUP_NAME):
        with suppress(OSError):  # it has processes
            left.rmdir()
    folder = parent / f"cflow-{os.getpid()}-{next(_NUMBERS)}"
    try:
        held = create_folder(folder)
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
        os.close(held)
