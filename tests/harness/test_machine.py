"""Machine state on made-up file trees and on the machine at hand."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest

from harness import machine

CPUINFO = """processor\t: 0
model name\t: Example CPU
flags\t\t: fpu sse4_2 avx avx2 fma f16c avx512f hypervisor
"""


def write(root: Path, path: str, text: str) -> None:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)


def test_state_of_this_machine_is_plain_data(tmp_path: Path) -> None:
    state = machine.machine_state(tmp_path)
    assert json.loads(json.dumps(state, allow_nan=False)) == state
    assert state["cpu"]["affinity"] == sorted(os.sched_getaffinity(0))
    assert state["memory"]["total_bytes"] > state["memory"]["available_bytes"] > 0
    assert state["storage"]["free_bytes"] > 0
    assert 1 <= machine.usable_cpus(state) <= len(state["cpu"]["affinity"])


def test_state_tells_neither_paths_nor_names(tmp_path: Path) -> None:
    text = json.dumps(machine.machine_state(tmp_path))
    assert str(tmp_path) not in text
    assert os.uname().nodename not in text
    assert str(Path.home()) + "/" not in text


def test_an_empty_machine_tells_nothing_and_raises_nothing(tmp_path: Path) -> None:
    state = machine.machine_state(tmp_path / "missing" / "run", root=tmp_path / "nothing")
    for key in ("model", "isa", "smt", "quota_cpus", "numa_nodes", "governor", "boost", "virtualised"):
        assert state["cpu"][key] is None, key
    assert state["cpu"]["caches"] == []
    assert state["memory"]["limit_bytes"] is None
    assert state["load"]["steal_share"] is None
    assert state["storage"]["filesystem"] is None
    assert state["storage"]["free_bytes"] > 0
    assert not [text for text in machine.warnings(state) if "governor" in text]


def test_processor(tmp_path: Path) -> None:
    write(tmp_path, "proc/cpuinfo", CPUINFO)
    assert machine.cpu_model(tmp_path) == "Example CPU"
    assert machine.isa(tmp_path) == ["sse4_2", "avx", "f16c", "fma", "avx2", "avx512f"]
    assert machine.virtualised(tmp_path)
    write(tmp_path, "sys/devices/system/cpu/smt/active", "1\n")
    assert machine.smt(tmp_path) is True


def test_caches(tmp_path: Path) -> None:
    folder = "sys/devices/system/cpu/cpu0/cache/index0/"
    for name, text in {"level": "1", "type": "Data", "size": "48K", "coherency_line_size": "64"}.items():
        write(tmp_path, folder + name, text + "\n")
    assert machine.caches(tmp_path) == [
        {"level": 1, "type": "data", "size_bytes": 49152, "line_bytes": 64, "ways": None, "shared_cpus": None}
    ]


def test_last_level_cache(tmp_path: Path) -> None:
    assert machine.last_level_cache_bytes(tmp_path) == 0
    for index, size in enumerate(("32K", "2M", "512K")):
        folder = f"sys/devices/system/cpu/cpu0/cache/index{index}/"
        for name, text in {"level": str(index + 1), "type": "Unified", "size": size}.items():
            write(tmp_path, folder + name, text + "\n")
    assert machine.last_level_cache_bytes(tmp_path) == 2 << 20
    write(tmp_path, "sys/devices/system/cpu/cpu0/cache/index1/size", "large\n")
    assert machine.last_level_cache_bytes(tmp_path) == 0


@pytest.mark.parametrize(
    ("groups", "files", "quota"),
    [
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000", "a/cpu.max": "150000 100000"}, 1.5),
        ("0::/a/b\n", {"a/b/cpu.max": "50000 100000", "a/cpu.max": "150000 100000"}, 0.5),
        ("0::/a\n", {"a/cpu.max": "max 100000"}, None),
        (
            "4:cpu,cpuacct:/j\n",
            {"cpu,cpuacct/j/cpu.cfs_quota_us": "200000", "cpu,cpuacct/j/cpu.cfs_period_us": "100000"},
            2.0,
        ),
        ("4:cpu,cpuacct:/j\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ("4:cpuset:/j\n", {}, None),
    ],
)
def test_cpu_quota_of_both_cgroup_versions(
    tmp_path: Path, groups: str, files: dict[str, str], quota: float | None
) -> None:
    write(tmp_path, "proc/self/cgroup", groups)
    for path, text in files.items():
        write(tmp_path, f"sys/fs/cgroup/{path}", text + "\n")
    assert machine.cgroup_quota_cpus(tmp_path) == quota


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        ("0::/a\n", {"a/memory.max": "4000000000", "memory.max": "max"}, 4_000_000_000),
        ("9:memory:/a\n", {"memory/a/memory.limit_in_bytes": "3000000000"}, 3_000_000_000),
        ("9:memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712"}, None),
    ],
)
def test_memory_limit_of_both_cgroup_versions(
    tmp_path: Path, groups: str, files: dict[str, str], limit: int | None
) -> None:
    write(tmp_path, "proc/self/cgroup", groups)
    for path, text in files.items():
        write(tmp_path, f"sys/fs/cgroup/{path}", text + "\n")
    assert machine.cgroup_memory_limit_bytes(tmp_path) == limit


def test_settings(tmp_path: Path) -> None:
    write(tmp_path, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n")
    write(tmp_path, "sys/devices/system/cpu/intel_pstate/no_turbo", "1\n")
    write(tmp_path, "sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
    write(tmp_path, "proc/pressure/cpu", "some avg10=1.50 avg60=0.30 avg300=0.10 total=5\n")
    write(tmp_path, "proc/stat", "cpu  10 0 10 70 0 0 0 10 0 0\ncpu0 1\n")
    for node in (0, 1):
        (tmp_path / f"sys/devices/system/node/node{node}").mkdir(parents=True)
    assert machine.governor(tmp_path) == "powersave"
    assert machine.boost(tmp_path) is False
    assert machine.transparent_huge_pages(tmp_path) == "madvise"
    assert machine.cpu_pressure(tmp_path) == 1.5
    assert machine.steal_share(tmp_path) == 0.1
    assert machine.numa_nodes(tmp_path) == 2
    assert not machine.run_delay(tmp_path)
    write(tmp_path, "proc/thread-self/schedstat", "5 6 7\n")
    assert machine.run_delay(tmp_path)


def test_turbo_of_other_drivers(tmp_path: Path) -> None:
    write(tmp_path, "sys/devices/system/cpu/cpufreq/boost", "1\n")
    assert machine.boost(tmp_path) is True


def test_storage_of_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    found = machine.storage(tmp_path / "reports" / "runs" / "one")
    assert found["free_bytes"] == machine.storage(tmp_path)["free_bytes"] or found["free_bytes"] > 0
    assert found["filesystem"] == machine.storage(tmp_path)["filesystem"]


STATE: dict[str, Any] = {
    "cpu": {"affinity": [0, 1, 2, 3], "physical": 4, "quota_cpus": None, "governor": None},
    "memory": {"swap_used_bytes": 0},
    "kernel": {"run_delay": True},
    "load": {"average_1m": 0.1, "steal_share": 0.0},
}


@pytest.mark.parametrize(
    ("cpu", "usable"),
    [
        ({}, 4),
        ({"affinity": [2]}, 1),
        ({"physical": 2}, 2),
        ({"physical": None}, 4),
        ({"quota_cpus": 1.2}, 2),
        ({"quota_cpus": 0.3}, 1),
        ({"affinity": None, "physical": None}, 1),
    ],
)
def test_usable_cpus(cpu: dict[str, Any], usable: int) -> None:
    assert machine.usable_cpus({**STATE, "cpu": {**STATE["cpu"], **cpu}}) == usable


@pytest.mark.parametrize(
    ("part", "change", "words"),
    [
        ("cpu", {"governor": "powersave"}, "governor is powersave"),
        ("cpu", {"quota_cpus": 1.5}, "allows 1.50 CPUs of 4 cores"),
        ("load", {"average_1m": 2.5}, "load average is 2.50"),
        ("load", {"steal_share": 0.02}, "the host took 2.0%"),
        ("memory", {"swap_used_bytes": 5}, "swap is in use"),
        ("kernel", {"run_delay": False}, "keeps no run-queue delay"),
    ],
)
def test_each_warning_has_one_cause(part: str, change: dict[str, Any], words: str) -> None:
    assert machine.warnings(STATE) == ()
    state = copy.deepcopy(STATE)
    state[part].update(change)
    (found,) = machine.warnings(state)
    assert words in found
