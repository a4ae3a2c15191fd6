"""Which pages of a file are in memory, and how to get them out of it.

mincore(2) tells the truth about files that the caller may write or owns; for others' read-only files Linux
reports every page as resident, so there preadv2 with RWF_NOWAIT is asked instead. Eviction needs no
privilege: fsync, then POSIX_FADV_DONTNEED, while nobody maps the file. The host of a virtual machine keeps
caches of its own: a file just written is cold for the guest and warm for the host.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.errors import HarnessError

PAGE_BYTES: Final = mmap.PAGESIZE
_CHUNK_BYTES: Final = 2**30
_LOW_BITS: Final = bytes(byte & 1 for byte in range(256))
"""The bit of mincore that says whether a page is resident; the others are undefined."""
_DROP_CACHES: Final = Path("/proc/sys/vm/drop_caches")


class CacheStateError(HarnessError):
    """The page cache of a file cannot be read or emptied."""


@dataclass(frozen=True)
class Residency:
    """Pages of a file (or of a part of it) in memory."""

    resident_pages: int
    pages: int
    method: str
    """"mincore" or "preadv2 RWF_NOWAIT"."""

    @property
    def share(self) -> float:
        """Resident share, 0 for an empty range."""
        return self.resident_pages / self.pages if self.pages else 0.0

    @property
    def resident_bytes(self) -> int:
        """Bytes of the resident pages."""
        return self.resident_pages * PAGE_BYTES


def residency(path: Path, offset: int = 0, length: int | None = None) -> Residency:
    """Counts the resident pages of a file without touching them.

    Args:
        path: a regular file.
        offset: first byte, a multiple of the page size.
        length: bytes; None = to the end.

    Raises:
        CacheStateError: the file cannot be opened, or the range is not inside it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise CacheStateError(f"{path}: {error.strerror}") from error
    try:
        status = os.fstat(descriptor)
        length = status.st_size - offset if length is None else length
        if offset < 0 or length < 0 or offset % PAGE_BYTES or offset + length > status.st_size:
            raise CacheStateError(
                f"{path}: range {offset}+{length}, allowed: page-aligned and inside {status.st_size} bytes"
            )
        pages = -(-length // PAGE_BYTES)
        if os.access(path, os.W_OK) or status.st_uid == os.geteuid():
            return Residency(_mincore(descriptor, offset, length), pages, "mincore")
        return Residency(_nowait(descriptor, offset, pages), pages, "preadv2 RWF_NOWAIT")
    finally:
        os.close(descriptor)


def _mincore(descriptor: int, offset: int, length: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    resident = 0
    for start in range(offset, offset + length, _CHUNK_BYTES):
        size = min(_CHUNK_BYTES, offset + length - start)
        address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, start)
        if address is None or address == ctypes.c_void_p(-1).value:
            raise CacheStateError(f"mmap: {os.strerror(ctypes.get_errno())}")
        try:
            pages = -(-size // PAGE_BYTES)
            vector = ctypes.create_string_buffer(pages)
            if libc.mincore(address, size, vector) != 0:
                raise CacheStateError(f"mincore: {os.strerror(ctypes.get_errno())}")
            resident += vector.raw[:pages].translate(_LOW_BITS).count(1)
        finally:
            libc.munmap(address, size)
    return resident


def _nowait(descriptor: int, offset: int, pages: int) -> int:
    buffer = bytearray(1)
    resident = 0
    for page in range(pages):
        try:
            resident += os.preadv(descriptor, [buffer], offset + page * PAGE_BYTES, os.RWF_NOWAIT)
        except BlockingIOError:
            continue
        except OSError as error:
            raise CacheStateError(f"preadv2 RWF_NOWAIT: {error.strerror}") from error
    return resident


def evict(path: Path, allowed_share: float = 0.01) -> Residency:
    """Drops a file from the page cache and verifies it. Nobody may have it mapped.

    Returns:
        what is still resident.

    Raises:
        CacheStateError: it cannot be opened, or more than `allowed_share` of it stays resident.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise CacheStateError(f"{path}: {error.strerror}") from error
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    except OSError as error:
        raise CacheStateError(f"{path}: cannot be evicted: {error.strerror}") from error
    finally:
        os.close(descriptor)
    left = residency(path)
    if left.share > allowed_share:
        raise CacheStateError(
            f"{path}: {left.share:.1%} still resident after eviction, allowed {allowed_share:.1%}; "
            "is it mapped, or on tmpfs?"
        )
    return left


def drop_caches(control: Path = _DROP_CACHES) -> bool:
    """Empties the page cache of the whole machine, which takes root. Returns whether it was done."""
    os.sync()
    try:
        control.write_text("1\n")
    except OSError:
        return False
    return True
