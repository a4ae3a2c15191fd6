"""Writing large files past the page cache, which takes them several times faster than through it."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
from pathlib import Path

import numpy as np

from engine.errors import FileError
from engine.pending import PendingFile
from engine.tiles import Bytes, align_up

#: Alignment of offsets, lengths and memory that every file system with O_DIRECT takes.
DIRECT_ALIGN_BYTES = 4096
_BUFFER_BYTES = 8 << 20

# statx(2): the fields of direct I/O of struct statx, by their offsets.
_AT_FDCWD, _STATX_DIOALIGN, _STATX_BYTES = -100, 0x2000, 256
_MASK_AT, _MEMORY_ALIGN_AT, _OFFSET_ALIGN_AT = 0, 152, 156


def direct_alignment(path: Path) -> int | None:
    """Alignment in bytes of memory and offsets that O_DIRECT needs on a file; None where nobody says so.

    Kernels before 6.1, some file systems, and files without O_DIRECT do not.
    """
    statx = getattr(ctypes.CDLL(None), "statx", None)
    if statx is None:
        return None
    found = ctypes.create_string_buffer(_STATX_BYTES)
    if statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_DIOALIGN, found) != 0:
        return None

    def field(at: int) -> int:
        return int.from_bytes(found.raw[at : at + 4], "little")

    if not field(_MASK_AT) & _STATX_DIOALIGN:
        return None
    return max(field(_MEMORY_ALIGN_AT), field(_OFFSET_ALIGN_AT)) or None


def reserve(file: PendingFile, file_bytes: int) -> None:
    """Allocates the blocks, so that a full disk shows now; file systems that cannot do it are let off."""
    try:
        os.posix_fallocate(file.fd, 0, file_bytes)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise FileError(f"{file.path}: cannot reserve {file_bytes:,} bytes: {error.strerror}") from error


def switch_to_direct_io(file: PendingFile) -> str:
    """Turns O_DIRECT on and tries it on the first page. Returns "" or why the page cache is used instead."""
    flags = fcntl.fcntl(file.fd, fcntl.F_GETFL)
    page = mmap.mmap(-1, mmap.PAGESIZE)
    try:
        fcntl.fcntl(file.fd, fcntl.F_SETFL, flags | os.O_DIRECT)
        os.pwrite(file.fd, page, 0)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise FileError(f"{file.path}: cannot be written: {error.strerror}") from error
        fcntl.fcntl(file.fd, fcntl.F_SETFL, flags)
        return f"O_DIRECT is refused by the file system ({error.strerror}); written through the page cache"
    return ""


class SequentialWriter:
    """Writes a file of `file_bytes` from its first byte to its last, by O_DIRECT where that works.

    Pieces of any length are gathered in one buffer of 8 MiB. `note` says why the page cache is used, or is
    "". Call `finish()` after the last piece. Raises FileError.
    """

    def __init__(self, file: PendingFile, file_bytes: int) -> None:
        self._file = file
        self._file_bytes = file_bytes
        reserve(file, file_bytes)
        self.note = switch_to_direct_io(file)
        self._buffer: Bytes = np.frombuffer(mmap.mmap(-1, _BUFFER_BYTES), np.uint8)
        self._filled = 0
        self._written = 0

    @property
    def position(self) -> int:
        """Bytes that were handed over so far."""
        return self._written + self._filled

    def write(self, data: Bytes) -> None:
        """Appends contiguous bytes, uint8 of any shape."""
        view = data.reshape(-1)
        while view.size:
            count = min(view.size, _BUFFER_BYTES - self._filled)
            self._buffer[self._filled : self._filled + count] = view[:count]
            self._filled += count
            view = view[count:]
            if self._filled == _BUFFER_BYTES:
                self._flush(_BUFFER_BYTES)

    def pad_to(self, position: int) -> None:
        """Appends zeros up to `position`."""
        self.write(np.zeros(position - self.position, np.uint8))

    def finish(self) -> None:
        """Writes what is left, up to a whole page, and cuts the file to its length."""
        whole = align_up(self._filled, DIRECT_ALIGN_BYTES)
        self._buffer[self._filled : whole] = 0
        self._flush(whole)
        self._file.extend_to(self._file_bytes)

    def _flush(self, length: int) -> None:
        self._file.write_at(self._written, self._buffer[:length].data)
        self._written += self._filled
        self._filled = 0
