"""Surroundings that a program is started in: words that stand before its command.

What takes root, or a tool that is not there, skips the test with a message.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CGROUPS = Path("/sys/fs/cgroup")

_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
_FORBIDDEN = """
import os, sys
from tests.engine.forbid import IO_URING_ENTER, IO_URING_SETUP, forbid
forbid([IO_URING_SETUP, IO_URING_ENTER, int(sys.argv[1])], int(sys.argv[2]))
os.execvp(sys.argv[3], sys.argv[3:])
"""


def python(*arguments: str) -> list[str]:
    return [sys.executable, *arguments]


def run(
    words: Sequence[str], environment: Mapping[str, str] | None = None, folder: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """Runs a command from the checkout; its output, and that it is no traceback."""
    given = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": "", **(environment or {})}
    done = subprocess.run(
        words, cwd=folder, env=given, capture_output=True, text=True, timeout=300, check=False
    )
    assert "Traceback" not in done.stdout + done.stderr, done.stdout + done.stderr
    return done


def _unshare(*arguments: str) -> list[str]:
    """Namespaces of the program's own, tried before."""
    words = ["unshare", *arguments]
    if shutil.which("unshare") is None:
        pytest.skip("no unshare command here")
    trial = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
    if trial.returncode != 0:
        pytest.skip(f"no namespaces of its own here, which may take root: {trial.stderr.strip()}")
    return words


def _mounts(*commands: str) -> list[str]:
    """A mount namespace in which these commands have run."""
    return _unshare("--mount", "sh", "-ec", "; ".join([*commands, 'exec "$@"']), "sh")


def empty(*folders: str) -> list[str]:
    """Folders that are there and hold nothing, as /proc and /sys in some sandboxes."""
    return _mounts(*(f"mount -t tmpfs -o size=64k,ro tmpfs {folder}" for folder in folders))


def read_only(*folders: Path) -> list[str]:
    """Folders that nobody can write, root neither."""
    return _mounts(*(f"mount --bind -o ro '{folder}' '{folder}'" for folder in folders))


def no_home() -> list[str]:
    """A user whom no list of users knows, with the rights of this one: the checkout may be private."""
    return _unshare("--user", "--map-user=54321", "env", "-u", "HOME")


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[Path]:
    """A file system of that size at `folder`."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)]
    if shutil.which("mount") is None:
        pytest.skip("no mount command here")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"a file system of its own takes root: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def forbidden_calls(errno: int) -> list[str]:
    """io_uring and perf_event_open fail with `errno`, as under the filter of a container."""
    number = _PERF_EVENT_OPEN.get(platform.machine())
    if number is None:
        pytest.skip(f"the number of perf_event_open on {platform.machine()} is not known here")
    return python("-c", _FORBIDDEN, str(number), str(errno))


def one_core() -> list[str]:
    """Bound to the first CPU that is allowed here."""
    if shutil.which("taskset") is None:
        pytest.skip("no taskset command here")
    return ["taskset", "-c", str(min(os.sched_getaffinity(0)))]


def files_of(size_bytes: int) -> list[str]:
    """No file may grow beyond that."""
    if shutil.which("prlimit") is None:
        pytest.skip("no prlimit command here")
    return ["prlimit", f"--fsize={size_bytes}"]


@contextmanager
def half_a_cpu() -> Iterator[list[str]]:
    """A cgroup whose processes get half a CPU together."""
    limits = {"cpu.cfs_period_us": 20000, "cpu.cfs_quota_us": 10000}
    with _cgroup("cpu", limits) as before:
        yield before


@contextmanager
def memory_of(size_bytes: int) -> Iterator[list[str]]:
    """A cgroup whose processes get that much memory together."""
    with _cgroup("memory", {"memory.limit_in_bytes": size_bytes}) as before:
        yield before


@contextmanager
def _cgroup(controller: str, limits: Mapping[str, int]) -> Iterator[list[str]]:
    group = CGROUPS / controller / f"cflow-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"a cgroup of its own takes root and version 1: {error}")
    try:
        for name, value in limits.items():
            (group / name).write_text(str(value))
        yield ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"]
    finally:
        group.rmdir()


def locale_folder(folder: Path, name: str) -> Mapping[str, str]:
    """The environment of a locale, compiled into `folder`."""
    language = name.partition(".")[0]
    if shutil.which("localedef") is None or not Path("/usr/share/i18n/locales", language).exists():
        pytest.skip(f"{name} cannot be made here (Debian, Ubuntu: apt install locales)")
    command = ["localedef", "-i", language, "-f", "UTF-8", str(folder / name)]
    subprocess.run(command, capture_output=True, check=True)
    return {"LOCPATH": str(folder), "LC_ALL": name}
