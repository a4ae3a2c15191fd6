"""What is being written, under a temporary name that its writer holds locked.

The kernel lets go of a lock when its process ends, however it ends: what nobody holds was left by a process
that was killed, and the next writer removes it. A process id would not tell: it is another's in another
container, or on another machine that shares the folder. Without locks on the file system nothing is removed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def temporary_name(path: Path, suffix: str = "") -> Path:
    """Where this process writes what will be `path`."""
    return path.with_name(f".{path.name}.{os.getpid()}{suffix}.tmp")


def replaced_name(path: Path) -> Path:
    """Where a folder at `path` is between being taken away and its replacement being there."""
    return temporary_name(path, ".old")


def remove_left(path: Path) -> None:
    """Removes what killed writers of `path` left beside it; a folder that one had taken away comes back."""
    name = rf"\.{re.escape(path.name)}\.\d+"
    for left in unheld(path.parent, re.compile(rf"{name}\.old\.tmp")):
        if path.exists():
            _remove(left)
        else:
            with suppress(OSError):
                left.rename(path)
    for left in unheld(path.parent, re.compile(rf"{name}\.tmp")):
        _remove(left)


def create_file(temporary: Path) -> int:
    """A new file that this process holds until it closes the descriptor, for reading and writing."""

    def create() -> int:
        try:
            return os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except FileExistsError as error:
            raise _in_the_way(temporary) from error

    return _held(temporary, create)


def create_folder(temporary: Path) -> int:
    """A new folder that this process holds until it closes the descriptor."""

    def create() -> int:
        while True:
            try:
                temporary.mkdir()
            except FileExistsError as error:
                raise _in_the_way(temporary) from error
            with suppress(FileNotFoundError):  # taken for a left one before it was opened
                return _open_new(temporary)

    return _held(temporary, create)


@contextmanager
def temporary_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """An empty folder in `parent`, gone at the end; those of that prefix that killed processes left go first.

    prefix: begins with a dot. Only the owner can look into the folder.
    """
    for left in unheld(parent, re.compile(rf"{re.escape(prefix)}[a-z0-9_]{{8}}")):
        _remove(left)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        try:
            descriptor = _open_new(folder)
        except FileNotFoundError:  # taken for a left one before it was held
            continue
        if _hold(descriptor, folder):
            break
        os.close(descriptor)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def hold_folder(folder: Path) -> int:
    """A descriptor that holds a folder that is there already: the one that has the name once it is held.

    Raises OSError.
    """
    return _held(folder, lambda: _open_folder(folder))


def _open_folder(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _open_new(folder: Path) -> int:
    """A folder that was made just now; removed again when it cannot be opened."""
    try:
        return _open_folder(folder)
    except OSError:
        with suppress(OSError):
            folder.rmdir()
        raise


def _in_the_way(temporary: Path) -> FileExistsError:
    """Of another process with our number (in another container), or left where files cannot be locked."""
    reason = (
        f"{temporary.name} is there and held by somebody, or cannot be locked; remove it if nobody writes it"
    )
    return FileExistsError(errno.EEXIST, reason, str(temporary))


def _held(temporary: Path, create: Callable[[], int]) -> int:
    """What `create` makes or opens, held; again when it has lost its name before it is held."""
    while True:
        descriptor = create()
        if _hold(descriptor, temporary):
            return descriptor
        os.close(descriptor)


def _hold(descriptor: int, path: Path) -> bool:
    """Whether `path` is still what the descriptor has open, once it is locked."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:  # no locks here
        return True
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def unheld(folder: Path, name: re.Pattern[str]) -> Iterator[Path]:
    """What of that name nobody holds, each held here while the caller looks at it.

    What cannot be opened or locked is passed over: it is somebody's.
    """
    try:
        found = [Path(entry.path) for entry in os.scandir(folder) if name.fullmatch(entry.name)]
    except OSError:
        return
    for left in found:
        with suppress(OSError):
            descriptor = os.open(left, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.stat(left), os.fstat(descriptor)):  # else renamed meanwhile: complete
                    yield left
            finally:
                os.close(descriptor)


def _remove(left: Path) -> None:
    with suppress(OSError):
        if left.is_dir():
            shutil.rmtree(left)
        else:
            left.unlink()
