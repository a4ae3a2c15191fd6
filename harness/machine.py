"""The machine's state, read before and after a run: one small function per source; machine_state() never
raises.

None means that this machine does not tell; it is not a fault (virtual machines have no governor). Nothing
here identifies a person or a host: no names, no paths, no addresses. Every function takes the root of the
file tree, so that tests can read a made-up machine.
"""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import psutil

from harness import counters

ROOT: Final = Path("/")
_ISA: Final = (
    "sse4_2", "avx", "f16c", "fma", "avx2", "avx_vnni", "avx512f", "avx512bw", "avx512vl", "avx512dq",
    "avx512_vnni", "avx512_bf16", "amx_tile", "amx_int8", "asimd", "asimddp", "i8mm", "sve",
)  # fmt: skip
_UNITS: Final = {"K": 2**10, "M": 2**20, "G": 2**30}
_NO_LIMIT_BYTES: Final = 2**60
_SWITCH: Final = {"1": True, "0": False}
MAX_LOAD: Final = 0.5
"""Load average per usable core above which other work is running."""
MAX_STEAL: Final = 0.01
"""Share of CPU time since boot above which the host disturbs."""


def machine_state(out_dir: Path, root: Path = ROOT) -> dict[str, Any]:
    """Everything below, as plain data. out_dir: where results go, for the state of its disk."""
    return {
        "cpu": {
            "model": _quiet(lambda: cpu_model(root)),
            "architecture": platform.machine(),
            "isa": _quiet(lambda: isa(root)),
            "logical": _quiet(psutil.cpu_count),
            "physical": _quiet(lambda: psutil.cpu_count(logical=False)),
            "smt": _quiet(lambda: smt(root)),
            "affinity": _quiet(affinity),
            "quota_cpus": _quiet(lambda: cgroup_quota_cpus(root)),
            "caches": _quiet(lambda: caches(root)),
            "numa_nodes": _quiet(lambda: numa_nodes(root)),
            "governor": _quiet(lambda: governor(root)),
            "boost": _quiet(lambda: boost(root)),
            "frequency_mhz": _quiet(frequency_mhz),
            "virtualised": _quiet(lambda: virtualised(root)),
        },
        "memory": {
            "total_bytes": _quiet(lambda: psutil.virtual_memory().total),
            "available_bytes": _quiet(lambda: psutil.virtual_memory().available),
            "limit_bytes": _quiet(lambda: cgroup_memory_limit_bytes(root)),
            "swap_used_bytes": _quiet(lambda: psutil.swap_memory().used),
            "transparent_huge_pages": _quiet(lambda: transparent_huge_pages(root)),
            "page_bytes": _quiet(lambda: os.sysconf("SC_PAGE_SIZE")),
        },
        "kernel": {
            "system": platform.system(),
            "release": platform.release(),
            "perf_event_paranoid": _quiet(lambda: _integer(root / "proc/sys/kernel/perf_event_paranoid")),
            "run_delay": _quiet(lambda: run_delay(root)),
        },
        "load": {
            "average_1m": _quiet(lambda: os.getloadavg()[0]),
            "average_5m": _quiet(lambda: os.getloadavg()[1]),
            "cpu_pressure_10s": _quiet(lambda: cpu_pressure(root)),
            "steal_share": _quiet(lambda: steal_share(root)),
            "uptime_s": _quiet(lambda: float(_text(root / "proc/uptime").split()[0])),
        },
        "storage": storage(out_dir, root),
        "software": software(),
    }


def _quiet(source: Callable[[], Any]) -> Any:
    """The value of a source, or None: a machine that does not tell must never end a measurement."""
    try:
        return source()
    except Exception:
        return None


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace").strip()


def _integer(path: Path) -> int:
    return int(_text(path))


def _cpuinfo(root: Path) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in _text(root / "proc/cpuinfo").splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip().lower(), value.strip())
    return fields


def cpu_model(root: Path = ROOT) -> str | None:
    """Model name as the kernel prints it."""
    fields = _cpuinfo(root)
    return fields.get("model name") or fields.get("cpu part")


def isa(root: Path = ROOT) -> list[str]:
    """Instruction sets that matter here, out of the kernel's flags."""
    fields = _cpuinfo(root)
    flags = set((fields.get("flags") or fields.get("features") or "").split())
    return [name for name in _ISA if name in flags]


def smt(root: Path = ROOT) -> bool | None:
    """Whether two logical CPUs share a core."""
    return _SWITCH.get(_text(root / "sys/devices/system/cpu/smt/active"))


def affinity() -> list[int]:
    """Logical CPUs that this process may use."""
    return sorted(os.sched_getaffinity(0))


def _cgroup_folders(root: Path, controller: str) -> list[Path]:
    """Folders of this process's cgroup and its parents that the controller may sit in: version 2, then
    version 1.
    """
    base = root / "sys/fs/cgroup"
    found = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, names, path = line.split(":", 2)
        if names == "":
            mounts = [base, base / "unified"]
        elif controller in names.split(","):
            mounts = [base / names, base / controller]
        else:
            continue
        for mount in mounts:
            parts = [part for part in path.split("/") if part]
            found += [mount.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]
    return [folder for folder in found if folder.is_dir()]


def cgroup_quota_cpus(root: Path = ROOT) -> float | None:
    """CPUs that the tightest cgroup quota allows; None = no quota. Versions 1 and 2."""
    quotas = []
    for folder in _cgroup_folders(root, "cpu"):
        if (folder / "cpu.max").exists():
            quota, period = _text(folder / "cpu.max").split()
            if quota != "max":
                quotas.append(int(quota) / int(period))
        elif (folder / "cpu.cfs_quota_us").exists():
            micros = _integer(folder / "cpu.cfs_quota_us")
            if micros > 0:
                quotas.append(micros / _integer(folder / "cpu.cfs_period_us"))
    return min(quotas, default=None)


def cgroup_memory_limit_bytes(root: Path = ROOT) -> int | None:
    """The tightest memory limit of this process's cgroups; None = no limit. Versions 1 and 2."""
    limits = []
    for folder in _cgroup_folders(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            if (folder / name).exists() and _text(folder / name) != "max":
                limits.append(_integer(folder / name))
    return min((limit for limit in limits if limit < _NO_LIMIT_BYTES), default=None)


def caches(root: Path = ROOT) -> list[dict[str, Any]]:
    """Caches of CPU 0: level, type, size, line, ways, and the logical CPUs that share each."""
    found = []
    for folder in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        size = _text(folder / "size")
        found.append(
            {
                "level": _integer(folder / "level"),
                "type": _text(folder / "type").lower(),
                "size_bytes": int(size[:-1]) * _UNITS[size[-1]],
                "line_bytes": _quiet(partial(_integer, folder / "coherency_line_size")),
                "ways": _quiet(partial(_integer, folder / "ways_of_associativity")),
                "shared_cpus": _quiet(partial(_text, folder / "shared_cpu_list")),
            }
        )
    return found


def last_level_cache_bytes(root: Path = ROOT) -> int:
    """Size of the largest cache of CPU 0; 0 when the kernel does not say."""
    return max((cache["size_bytes"] for cache in _quiet(lambda: caches(root)) or []), default=0)


def numa_nodes(root: Path = ROOT) -> int | None:
    """NUMA nodes with memory of their own."""
    return len(list((root / "sys/devices/system/node").glob("node[0-9]*"))) or None


def governor(root: Path = ROOT) -> str | None:
    """Frequency governor of CPU 0; None where the machine has none to tell."""
    return _text(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or None


def boost(root: Path = ROOT) -> bool | None:
    """Whether turbo frequencies are allowed; None where the machine does not tell."""
    off = root / "sys/devices/system/cpu/intel_pstate/no_turbo"
    if off.exists():
        switched_off = _SWITCH.get(_text(off))
        return None if switched_off is None else not switched_off
    return _SWITCH.get(_text(root / "sys/devices/system/cpu/cpufreq/boost"))


def frequency_mhz() -> float | None:
    """Current frequency, averaged over CPUs."""
    frequency = psutil.cpu_freq()
    return None if frequency is None else round(frequency.current, 1)


def virtualised(root: Path = ROOT) -> bool:
    """Whether a hypervisor shows itself."""
    return "hypervisor" in _cpuinfo(root).get("flags", "").split()


def transparent_huge_pages(root: Path = ROOT) -> str | None:
    """The active choice: always, madvise or never."""
    text = _text(root / "sys/kernel/mm/transparent_hugepage/enabled")
    return text.partition("[")[2].partition("]")[0] or None


def cpu_pressure(root: Path = ROOT) -> float | None:
    """Share of the last 10 s in which some task waited for a CPU, in percent (pressure stall information)."""
    first = _text(root / "proc/pressure/cpu").splitlines()[0]
    return float(dict(field.split("=") for field in first.split()[1:])["avg10"])


def run_delay(root: Path = ROOT) -> bool:
    """Whether the kernel accounts for the time that a thread waits for a core."""
    return counters.run_delay_ns(root / "proc/thread-self/schedstat") is not None


def steal_share(root: Path = ROOT) -> float | None:
    """Share of all CPU time since boot that the host gave to others."""
    stolen, ticks = counters.steal_ticks(root / "proc/stat")
    return stolen / ticks if ticks else None


def storage(out_dir: Path, root: Path = ROOT) -> dict[str, Any]:
    """The disk under a folder (or under its nearest parent that exists): filesystem, free bytes, readahead,
    kind.
    """
    folder = out_dir.absolute()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    device = _quiet(lambda: block_folder(folder, root))
    return {
        "filesystem": _quiet(lambda: _filesystem(folder, root)),
        "free_bytes": _quiet(lambda: shutil.disk_usage(folder).free),
        "read_ahead_kb": _quiet(lambda: _integer(device / "queue/read_ahead_kb")),
        "rotational": _quiet(lambda: _text(device / "queue/rotational") == "1"),
    }


def _device_number(folder: Path) -> str:
    device = folder.stat().st_dev
    return f"{os.major(device)}:{os.minor(device)}"


def _filesystem(folder: Path, root: Path) -> str | None:
    wanted = _device_number(folder)
    for line in _text(root / "proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        if before.split()[2] == wanted:
            return after.split()[0]
    return None


def block_folder(folder: Path, root: Path = ROOT) -> Path:
    """The folder in sysfs of the disk under `folder`. Raises OSError where it lies on no block device."""
    device = (root / "sys/dev/block" / _device_number(folder)).resolve(strict=True)
    return device if (device / "queue").exists() else device.parent


def software() -> dict[str, Any]:
    """Versions of what measures."""
    names = ("numpy", "pytest", "pytest-benchmark", "psutil", "gguf", "tokenizers")
    versions = {name: _quiet(partial(importlib.metadata.version, name)) for name in names}
    return {
        "python": platform.python_version(),
        "libc": " ".join(platform.libc_ver()).strip() or None,
        **versions,
    }


def usable_memory_bytes(state: Mapping[str, Any]) -> int | None:
    """What is available, or what a cgroup allows if that is less; None where neither is known."""
    memory = state["memory"]
    known = [size for size in (memory["available_bytes"], memory["limit_bytes"]) if size is not None]
    return min(known, default=None)


def usable_cpus(state: Mapping[str, Any]) -> int:
    """min(affinity, cgroup quota rounded up, physical cores), at least 1, from a machine state."""
    cpu = state["cpu"]
    counts = [len(cpu["affinity"] or ()) or None, cpu["physical"]]
    if cpu["quota_cpus"] is not None:
        counts.append(math.ceil(cpu["quota_cpus"]))
    return max(1, min((count for count in counts if count is not None), default=1))


def warnings(state: Mapping[str, Any]) -> tuple[str, ...]:
    """What makes timings of this machine doubtful, in words. What it does not tell is no warning."""
    found = []
    cpu, load = state["cpu"], state["load"]
    if cpu["governor"] not in (None, "performance"):
        found.append(f"frequency governor is {cpu['governor']}: use performance")
    if cpu["quota_cpus"] is not None and cpu["physical"] and cpu["quota_cpus"] < cpu["physical"]:
        found.append(f"a cgroup allows {cpu['quota_cpus']:.2f} CPUs of {cpu['physical']} cores")
    if load["average_1m"] is not None and load["average_1m"] > MAX_LOAD * usable_cpus(state):
        found.append(f"load average is {load['average_1m']:.2f}: other work is running")
    if load["steal_share"] is not None and load["steal_share"] > MAX_STEAL:
        found.append(f"the host took {load['steal_share']:.1%} of CPU time since boot")
    if state["kernel"].get("run_delay") is False:
        found.append("the kernel keeps no run-queue delay: rounds in which a worker waited are not void")
    if state["memory"]["swap_used_bytes"]:
        found.append("swap is in use")
    return tuple(found)
