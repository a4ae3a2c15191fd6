"""Readahead of a disk, set and taken back, over a made-up sysfs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.readahead import ReadAheadError, block_reads, read_ahead, read_ahead_kib

ROOT = Path(__file__).parents[2]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root whose sysfs knows the disk under `tmp_path`, with 4,096 KiB of readahead."""
    device = tmp_path.stat().st_dev
    disk = tmp_path / "root/sys/dev/block" / f"{os.major(device)}:{os.minor(device)}"
    (disk / "queue").mkdir(parents=True)
    (disk / "queue/read_ahead_kb").write_text("4096\n")
    (disk / "stat").write_text("  12  3  2048  5  0 0 0 0 0 0 0\n")
    return tmp_path / "root"


def test_it_is_read(tmp_path: Path, root: Path) -> None:
    assert read_ahead_kib(tmp_path, root) == 4096
    assert block_reads(tmp_path, root) == (12, 2048 * 512)


def test_it_is_set_and_taken_back(tmp_path: Path, root: Path) -> None:
    with read_ahead(tmp_path, 128, root) as holds:
        assert holds == read_ahead_kib(tmp_path, root) == 128
    assert read_ahead_kib(tmp_path, root) == 4096
    with read_ahead(tmp_path, None, root) as holds:
        assert holds == 4096


KILLED = """
import os, signal, sys
from pathlib import Path
from harness.readahead import read_ahead, read_ahead_kib
folder, root = map(Path, sys.argv[1:])
with read_ahead(folder, 128, root):
    assert read_ahead_kib(folder, root) == 128
    print("set", flush=True)
    os.killpg(0, signal.SIGKILL)
"""


def test_it_is_taken_back_when_the_process_group_is_killed(tmp_path: Path, root: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path), str(root)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, b"set\n")
    deadline_s = time.monotonic() + 60
    while read_ahead_kib(tmp_path, root) != 4096:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt])
def test_it_is_taken_back_after_a_failure(tmp_path: Path, root: Path, failure: type[BaseException]) -> None:
    with pytest.raises(failure), read_ahead(tmp_path, 128, root):
        raise failure
    assert read_ahead_kib(tmp_path, root) == 4096


def test_what_cannot_be_set_is_named(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path, text: str) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "write_text", refused)
    message = "read_ahead_kb: cannot be set: Permission denied.*root"
    with pytest.raises(ReadAheadError, match=message), read_ahead(tmp_path, 128, root):
        pass
    with read_ahead(tmp_path, 4096, root) as holds:  # already so: nothing to set
        assert holds == 4096


def test_a_folder_without_a_disk_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ReadAheadError, match="no block device"):
        read_ahead_kib(tmp_path, tmp_path / "empty")
    with pytest.raises(ReadAheadError, match="no block device"):
        block_reads(tmp_path, tmp_path / "empty")
