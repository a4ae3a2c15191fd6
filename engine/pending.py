"""A file or folder under a temporary name that takes its real name only when it is whole."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from engine.errors import FileError
from engine.held import (
    create_file,
    create_folder,
    hold_folder,
    remove_left,
    replaced_name,
    temporary_name,
)


class PendingFile:
    """Creates a temporary file beside `path`; `commit()` fsyncs and renames it, anything else removes it.

    What a killed process left of `path` is removed first.
    `file_bytes` is the size that the file will have. Raises FileError naming the path when the disk has
    less space for this user (f_bavail), or when a system call fails. `fd` is open for reading and writing.
    """

    def __init__(self, path: Path, file_bytes: int) -> None:
        self.path = path
        self._temporary = temporary_name(path)
        if path.is_dir():
            raise FileError(f"{path}: is a directory, not a file to write")
        remove_left(path)
        try:
            state = os.statvfs(path.parent)
            available_bytes = state.f_bavail * state.f_frsize
            if file_bytes > available_bytes:
                raise FileError(
                    f"{path}: needs {file_bytes:,} bytes, the file system has {available_bytes:,} bytes free"
                )
            self.fd = create_file(self._temporary)
        except OSError as error:
            raise FileError(f"{path}: cannot be written: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.abandon()

    def write_at(self, offset: int, data: memoryview | bytes) -> None:
        """Writes all of `data` at `offset`. Raises FileError; a full disk is named as such."""
        view = memoryview(data).cast("B")
        try:
            while view:
                written = os.pwrite(self.fd, view, offset)
                offset += written
                view = view[written:]
        except OSError as error:
            reason = "no space left" if error.errno == errno.ENOSPC else error.strerror
            raise FileError(f"{self.path}: write at byte {offset} failed: {reason}") from error

    def extend_to(self, file_bytes: int) -> None:
        """Sets the length of the file; what was not written reads as zero. Raises FileError."""
        try:
            os.ftruncate(self.fd, file_bytes)
        except OSError as error:
            raise FileError(f"{self.path}: cannot be extended: {error.strerror}") from error

    def commit(self) -> None:
        """Makes the file durable and gives it its name. Raises FileError."""
        try:
            os.fsync(self.fd)
            os.replace(self._temporary, self.path)
            _sync_folder(self.path.parent)
        except OSError as error:
            raise FileError(f"{self.path}: cannot be completed: {error.strerror}") from error
        self._close()

    def abandon(self) -> None:
        """Removes the temporary file. Does nothing after `commit()`."""
        if self.fd >= 0:
            try:
                self._temporary.unlink(missing_ok=True)
            finally:
                self._close()

    def _close(self) -> None:
        fd, self.fd = self.fd, -1
        os.close(fd)


class PendingFolder:
    """Creates a temporary folder beside `path`; `commit()` gives it that name, anything else removes it.

    A folder at `path` is replaced when it holds nothing but files named in `replaceable`. What a killed
    process left of `path` is removed first. Raises FileError naming the path: something else is there, or a
    system call failed.
    """

    def __init__(self, path: Path, replaceable: Sequence[str]) -> None:
        self.path = path
        self.temporary = temporary_name(path)
        self._old = replaced_name(path)
        self._held: list[int] = []
        remove_left(path)
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise FileError(f"{path}: exists and is no folder")
        try:
            held = sorted(entry.name for entry in path.iterdir()) if path.exists() else []
            foreign = next((name for name in held if name not in replaceable), None)
            if foreign is not None:
                raise FileError(
                    f"{path}: is not replaced: it holds {foreign}, which is none of {', '.join(replaceable)}"
                )
            self._held.append(create_folder(self.temporary))
        except OSError as error:
            raise FileError(f"{path}: cannot be written: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        shutil.rmtree(self.temporary, ignore_errors=True)
        for descriptor in self._held:
            os.close(descriptor)

    def commit(self) -> None:
        """Gives the folder its name. Raises FileError; the folder that was there is then still there."""
        try:
            replaced = self.path.exists()
            if replaced:
                self._held.append(hold_folder(self.path))
                self.path.rename(self._old)
            try:
                self.temporary.rename(self.path)
            except OSError:
                if replaced:
                    self._old.rename(self.path)
                raise
            _sync_folder(self.path.parent)
        except OSError as error:
            raise FileError(f"{self.path}: cannot be completed: {error.strerror}") from error
        shutil.rmtree(self._old, ignore_errors=True)


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
