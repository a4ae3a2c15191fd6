"""What a killed writer leaves: ignored, removed by the next one, and never what somebody is still writing."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.errors import FileError
from engine.held import create_file, hold_folder, remove_left, temporary_folder, temporary_name
from engine.pending import PendingFile, PendingFolder
from harness.results import write_atomically

ROOT = Path(__file__).resolve().parents[2]

FILE = """
import sys, time
from pathlib import Path
from engine.pending import PendingFile
with PendingFile(Path(sys.argv[1]), 8) as file:
    file.write_at(0, b"half")
    print("there", flush=True)
    time.sleep(600)
"""
FOLDER = """
import sys, time
from pathlib import Path
from engine.pending import PendingFolder
with PendingFolder(Path(sys.argv[1]), ("a",)) as folder:
    (folder.temporary / "a").write_bytes(b"half")
    print("there", flush=True)
    time.sleep(600)
"""
TAKEN_AWAY = """
import shutil, sys, time
from pathlib import Path
from engine import pending
def stop(path):
    if not path.exists():
        print("there", flush=True)
        time.sleep(600)
target = Path(sys.argv[1])
rename = Path.rename
def renamed(self, other):
    stop(target)
    return rename(self, other)
Path.rename = renamed
with pending.PendingFolder(target, ("a",)) as folder:
    (folder.temporary / "a").write_bytes(b"new")
    folder.commit()
"""
SCRATCH = """
import sys, time
from pathlib import Path
from engine.held import temporary_folder
with temporary_folder(Path(sys.argv[1]).parent, ".scratch-") as folder:
    (folder / "large").write_bytes(bytes(1000))
    print("there", flush=True)
    time.sleep(600)
"""
WRITER = """
import sys
from pathlib import Path
from harness.results import write_atomically
for number in range(150):
    write_atomically(Path(sys.argv[1]), f"{number:03d}" * 1000)
"""


def start(code: str, target: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code, str(target)], cwd=ROOT, stdout=subprocess.PIPE)


@contextmanager
def writing(code: str, target: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process in the middle of it; killed at the latest at the end."""
    process = start(code, target)
    try:
        assert process.stdout is not None and process.stdout.readline() == b"there\n"
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def hidden(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


def write_file(target: Path) -> None:
    with PendingFile(target, 5) as file:
        file.write_at(0, b"whole")
        file.commit()


def write_folder(target: Path) -> None:
    with PendingFolder(target, ("a",)) as folder:
        (folder.temporary / "a").write_bytes(b"whole")
        folder.commit()


def write_scratch(target: Path) -> None:
    with temporary_folder(target.parent, ".scratch-") as folder:
        assert list(folder.iterdir()) == []


WAYS = {"file": (FILE, write_file), "folder": (FOLDER, write_folder), "scratch": (SCRATCH, write_scratch)}


@pytest.mark.parametrize("way", WAYS)
def test_the_next_writer_removes_what_a_killed_one_left(tmp_path: Path, way: str) -> None:
    code, write = WAYS[way]
    target = tmp_path / "m.x"
    with writing(code, target):
        assert len(hidden(tmp_path)) == 1
        assert not target.exists()
    assert len(hidden(tmp_path)) == 1
    write(target)
    assert hidden(tmp_path) == []


@pytest.mark.parametrize("way", WAYS)
def test_what_somebody_still_writes_is_left_alone(tmp_path: Path, way: str) -> None:
    code, write = WAYS[way]
    target = tmp_path / "m.x"
    with writing(code, target):
        before = hidden(tmp_path)
        write(target)
        assert hidden(tmp_path) == before


def test_a_result_takes_away_what_a_killed_one_left(tmp_path: Path) -> None:
    target = tmp_path / "results.json"
    with writing(FILE, target):
        pass
    write_atomically(target, "{}")
    assert os.listdir(tmp_path) == ["results.json"]


def test_a_number_that_comes_again_is_no_obstacle(tmp_path: Path) -> None:
    """In a container every run may have the same process id."""
    target = tmp_path / "m.cflow"
    temporary_name(target).write_bytes(b"half")
    write_file(target)
    assert (target.read_bytes(), hidden(tmp_path)) == (b"whole", [])


def test_a_folder_that_was_being_replaced_comes_back(tmp_path: Path) -> None:
    target = tmp_path / "m"
    target.mkdir()
    (target / "a").write_bytes(b"old")
    with writing(TAKEN_AWAY, target):
        assert not target.exists()
        remove_left(target)
        assert not target.exists()  # its writer is still there
    remove_left(target)
    assert ((target / "a").read_bytes(), hidden(tmp_path)) == (b"old", [])


def test_files_of_others_stay(tmp_path: Path) -> None:
    names = [".m.cflow.backup.tmp", ".m.cflow.tmp", ".m.cflow.1.old", "m.cflow.1.tmp", ".other.1.tmp"]
    for name in names:
        (tmp_path / name).write_bytes(b"mine")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"mine")
    (tmp_path / ".m.cflow.7.tmp").symlink_to(elsewhere)
    write_file(tmp_path / "m.cflow")
    assert {*names, ".m.cflow.7.tmp"} <= set(os.listdir(tmp_path))
    assert elsewhere.read_bytes() == b"mine"


def test_without_locks_nothing_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no locks available")

    target = tmp_path / "m.cflow"
    left = tmp_path / ".m.cflow.1.tmp"
    left.write_bytes(b"half")
    monkeypatch.setattr("fcntl.flock", refuse)
    write_file(target)
    assert (target.read_bytes(), hidden(tmp_path)) == (b"whole", [left.name])
    temporary_name(target).write_bytes(b"half")
    with pytest.raises(FileError, match=r"m\.cflow: cannot be written: \.m\.cflow\.\d+\.tmp is there"):
        write_file(target)


def test_a_name_that_another_process_with_our_number_holds_stays(tmp_path: Path) -> None:
    """As in another container that shares the folder."""
    target = tmp_path / "results.json"
    descriptor = create_file(temporary_name(target))
    with pytest.raises(OSError, match="is there and held by somebody") as refused:
        write_atomically(target, "{}")
    assert refused.value.filename == str(target)
    with pytest.raises(FileError, match="is there and held by somebody"):
        write_file(target)
    assert os.listdir(tmp_path) == [temporary_name(target).name]
    os.close(descriptor)


def test_a_folder_that_is_replaced_meanwhile_is_held_as_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, taken = tmp_path / "m", tmp_path / "taken"
    target.mkdir()
    real = fcntl.flock

    def waited(descriptor: int, how: int) -> None:
        real(descriptor, how)
        if not taken.exists():  # another writer had it, and has put a new one there
            target.rename(taken)
            target.mkdir()

    monkeypatch.setattr("fcntl.flock", waited)
    descriptor = hold_folder(target)
    assert os.path.samestat(os.fstat(descriptor), os.stat(target))
    os.close(descriptor)


def test_a_folder_that_cannot_be_held_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No descriptor is free, say."""

    def full(path: Path, flags: int, mode: int = 0o777) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(OSError, match="Too many open files"), temporary_folder(tmp_path, ".left-"):
        raise AssertionError("held")
    with pytest.raises(FileError, match="Too many open files"):
        PendingFolder(tmp_path / "result", ())
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []


def test_the_descriptor_goes_even_if_the_file_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EACCES, "refused", str(path))

    file = PendingFile(tmp_path / "result", 1)
    descriptor = file.fd
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(PermissionError):
        file.abandon()
    monkeypatch.undo()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    remove_left(tmp_path / "result")
    assert list(tmp_path.iterdir()) == []


def test_a_name_taken_from_under_its_writer_is_made_again(tmp_path: Path) -> None:
    """By somebody who takes it for a left one before it is held."""
    target = tmp_path / "m.cflow"
    real = os.open
    lost: list[Path] = []

    def opened(path: Path, *rest: int) -> int:
        descriptor = real(path, *rest)
        if not lost:
            lost.append(Path(path))
            os.unlink(path)
        return descriptor

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.held.os.open", opened)
        descriptor = create_file(temporary_name(target))
    assert os.path.samestat(os.fstat(descriptor), os.stat(temporary_name(target)))
    assert len(lost) == 1
    os.close(descriptor)


def test_several_processes_write_one_file(tmp_path: Path) -> None:
    """Each removes what is left, and none what another is writing."""
    target = tmp_path / "results.json"
    writers = [start(WRITER, target) for _ in range(3)]
    for writer in writers:
        output, _ = writer.communicate(timeout=120)
        assert writer.returncode == 0, output
    assert target.read_text() == "149" * 1000
    assert os.listdir(tmp_path) == ["results.json"]
    shutil.rmtree(tmp_path)
