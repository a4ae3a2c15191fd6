"""A file that a library has mapped into this process: its pages given back, its readahead forbidden.

Runs in a worker: only the process that holds a mapping can let go of its pages, and while one holds them they
cannot leave the page cache.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from pathlib import Path

from baselines.errors import BaselineError

MAPS = Path("/proc/self/maps")
_MADV_NORMAL, _MADV_RANDOM, _MADV_DONTNEED = 0, 1, 4


@dataclass(frozen=True)
class Segment:
    """Part of this process's address space that shows a file."""

    address: int
    bytes: int


def segments(path: Path, maps: Path = MAPS) -> tuple[Segment, ...]:
    """Where this process has mapped `path`, by address. Raises BaselineError when it has not."""
    name = str(path.resolve())
    found = []
    for line in maps.read_text().splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5] == name:
            first, end = (int(part, 16) for part in fields[0].split("-"))
            found.append(Segment(first, end - first))
    if not found:
        raise BaselineError(f"{path} is not mapped into this process")
    return tuple(found)


def let_go(path: Path, readahead: bool) -> int:
    """Drops the pages of `path` from this process's page tables; what it needs again is read again.

    Their data may stay in the page cache, from where another process can now evict them. `readahead` False:
    from now on a fault reads one page. Returns the bytes mapped. Raises BaselineError when the file is not
    mapped or the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    mapped = segments(path)
    for one in mapped:
        for advice in (_MADV_DONTNEED, _MADV_NORMAL if readahead else _MADV_RANDOM):
            if libc.madvise(one.address, one.bytes, advice) != 0:
                raise BaselineError(f"{path}: madvise({advice}): {os.strerror(ctypes.get_errno())}")
    return sum(one.bytes for one in mapped)
