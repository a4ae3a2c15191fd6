"""Memory cgroups over a made-up tree, and a real one where this machine lets us make it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.memory_limit import MemoryLimitError, memory_limit

LIMIT = 64 << 20


@pytest.fixture(params=["v1", "v2"])
def root(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cgroup mount whose folders come with their control files, and lose them when they are removed."""
    control = "memory.limit_in_bytes" if request.param == "v1" else "memory.max"
    if request.param == "v1":
        (tmp_path / "memory").mkdir()
        (tmp_path / "memory/memory.limit_in_bytes").write_text("max")
    else:
        (tmp_path / "cgroup.subtree_control").write_text("cpu memory\n")
    mkdir, rmdir = Path.mkdir, Path.rmdir

    def make(folder: Path) -> None:
        mkdir(folder)
        for name in (control, "cgroup.procs"):
            (folder / name).write_text("")

    def remove(folder: Path) -> None:
        for file in folder.iterdir():
            file.unlink()
        rmdir(folder)

    monkeypatch.setattr(Path, "mkdir", make)
    monkeypatch.setattr(Path, "rmdir", remove)
    return tmp_path


def groups(root: Path) -> list[Path]:
    return [path for path in root.rglob("cflow-*") if path.is_dir()]


def test_limit_and_member_are_written_and_the_group_goes(root: Path) -> None:
    with memory_limit(LIMIT, root) as group, memory_limit(2 * LIMIT, root) as other:
        assert group.folder != other.folder
        assert (group.limit_bytes, other.limit_bytes) == (LIMIT, 2 * LIMIT)
        group.add(4321)
        assert (group.folder / "cgroup.procs").read_text() == "4321"
    assert groups(root) == []


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt])
def test_the_group_goes_after_a_failure(root: Path, failure: type[BaseException]) -> None:
    with pytest.raises(failure), memory_limit(LIMIT, root):
        raise failure
    assert groups(root) == []


def test_machines_without_memory_cgroups_say_so(tmp_path: Path) -> None:
    with pytest.raises(MemoryLimitError, match="no memory cgroups"), memory_limit(LIMIT, tmp_path):
        pass
    (tmp_path / "cgroup.subtree_control").write_text("cpu pids\n")
    with pytest.raises(MemoryLimitError, match="memory is not among"), memory_limit(LIMIT, tmp_path):
        pass


def test_what_cannot_be_made_or_set_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cgroup.subtree_control").write_text("memory\n")
    with (
        pytest.raises(MemoryLimitError, match=r"memory\.max: cannot be written"),
        memory_limit(LIMIT, tmp_path),
    ):
        pass  # an ordinary folder has no control files, and none is made

    def refuse(folder: Path) -> None:
        raise PermissionError(13, "Permission denied")

    assert groups(tmp_path) == []
    monkeypatch.setattr(Path, "mkdir", refuse)
    fault = "cannot be made: Permission denied; memory cgroups take root"
    with pytest.raises(MemoryLimitError, match=fault), memory_limit(LIMIT, tmp_path):
        pass


def test_what_a_group_holds_leaves_the_page_cache_out(root: Path) -> None:
    v1 = (root / "memory").exists()
    usage, cache = ("memory.usage_in_bytes", "cache") if v1 else ("memory.current", "file")
    with memory_limit(LIMIT, root) as group:
        with pytest.raises(MemoryLimitError, match=r"memory\.stat cannot be read"):
            group.held_bytes()
        (group.folder / usage).write_text("9000\n")
        (group.folder / "memory.stat").write_text(f"anon 77\n{cache} 8000\nslab 5\n")
        assert group.held_bytes() == 1000
        (group.folder / "memory.stat").write_text(f"{cache} 9500\n")
        assert group.held_bytes() == 0  # counted later than the whole


def test_swap_goes_beyond_a_limit_unless_it_is_forbidden(root: Path, tmp_path: Path) -> None:
    swaps = tmp_path / "swaps"
    with memory_limit(LIMIT, root) as group:
        assert not group.may_swap(swaps)
        swaps.write_text("Filename Type Size Used Priority\n")
        assert not group.may_swap(swaps)
        swaps.write_text("Filename Type Size Used Priority\n/dev/sda2 partition 1 0 -2\n")
        assert group.may_swap(swaps)
        (group.folder / "memory.swap.max").write_text("0\n")
        assert not group.may_swap(swaps)


KILLED = """
import os, signal
from harness.memory_limit import memory_limit
with memory_limit(1 << 28) as group:
    print(group.folder, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_group_that_a_killed_process_left_goes_with_the_next(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", KILLED], cwd=root, capture_output=True, text=True, check=False
    )
    if not done.stdout:
        pytest.skip(done.stderr.splitlines()[-1])
    left = Path(done.stdout.strip())
    assert left.is_dir()
    with memory_limit(LIMIT) as first:
        assert not left.exists()
        with memory_limit(LIMIT):
            assert first.folder.is_dir()  # somebody's


def test_a_real_group_holds_a_process(tmp_path: Path) -> None:
    try:
        with memory_limit(LIMIT) as group:
            script = "import sys; sys.stdin.read(1); print(open('/proc/self/cgroup').read())"
            with subprocess.Popen(
                [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            ) as child:
                group.add(child.pid)
                output, _ = child.communicate("x")
            assert group.folder.name in output
            assert group.limit_bytes == LIMIT
            folder = group.folder
    except MemoryLimitError as error:
        pytest.skip(str(error))
    assert not folder.exists()
