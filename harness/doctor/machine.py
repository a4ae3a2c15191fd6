"""Findings about processor and kernel. A file that is missing or odd is no fault: the state is unknown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from harness.counters import CounterStatus, probe_counters, process_io
from harness.doctor.finding import Finding
from harness.kinds import Kind
from harness.machine import MAX_LOAD, MAX_STEAL, ROOT, cgroup_quota_cpus, usable_cpus

_SILENT: Final = "this machine does not tell"
_CLAIM_2: Final = {"l1d_read_misses"}
"""What the hardware evidence reads."""
_THP: Final = "/sys/kernel/mm/transparent_hugepage/enabled"


def machine_findings(
    state: Mapping[str, Any], root: Path = ROOT, counters: tuple[CounterStatus, ...] | None = None
) -> tuple[Finding, ...]:
    """Everything below.

    state: harness.machine.machine_state of the same root. counters: as probed; None = probe them here.
    """
    return (
        _pmu(probe_counters() if counters is None else counters),
        _device_bytes(root),
        _run_delay(state),
        _huge_pages(state),
        _governor(state),
        _boost(state),
        _smt(state),
        _numa(state),
        _quota(state, root),
        _steal(state),
        _load(state),
        _swap(state),
    )


def _pmu(counters: tuple[CounterStatus, ...]) -> Finding:
    """All counters in one line: those that can be read, and those that cannot by reason."""
    groups: dict[str, list[str]] = {}
    for one in counters:
        groups.setdefault("" if one.available else one.reason, []).append(one.name)
    readable = groups.pop("", [])
    parts = [", ".join(readable)] if readable else []
    parts += [f"{', '.join(names)}: {reason}" for reason, names in groups.items()]
    if not groups:
        return Finding("pmu", "hardware counters", "yes", "; ".join(parts))
    lost: tuple[Kind, ...] = ("hardware",)
    if set(readable) >= _CLAIM_2:
        lost = ()
    remedy = "run on bare metal, or on a virtual machine with a vPMU; see the reasons"
    return Finding("pmu", "hardware counters", "no", "; ".join(parts), remedy, kinds=lost)


def _device_bytes(root: Path) -> Finding:
    if process_io(root / "proc/self/io") is not None:
        return Finding("device_bytes", "device bytes", "yes", "bytes from storage can be counted")
    return Finding(
        "device_bytes",
        "device bytes",
        "no",
        "/proc/self/io cannot be read",
        "mount /proc, on a kernel with CONFIG_TASK_IO_ACCOUNTING",
        needs=("device_bytes",),
    )


def _run_delay(state: Mapping[str, Any]) -> Finding:
    if state["kernel"]["run_delay"]:
        return Finding("run_delay", "run-queue delay", "yes", "a round in which a worker waited is void")
    return Finding(
        "run_delay",
        "run-queue delay",
        "no",
        "/proc/thread-self/schedstat cannot be read: rounds in which a worker waited count",
        "use a kernel with CONFIG_SCHED_INFO, and keep the machine free of other work",
    )


def _huge_pages(state: Mapping[str, Any]) -> Finding:
    name, choice = "huge pages", state["memory"]["transparent_huge_pages"]
    if choice in ("always", "madvise"):
        return Finding("huge_pages", name, "yes", str(choice))
    if choice is None:
        return Finding("huge_pages", name, "unknown", f"{_SILENT}; buffers may lie on small pages")
    return Finding(
        "huge_pages",
        name,
        "no",
        f"{choice}: weights and buffers lie on small pages, which takes longer for all engines",
        f"echo madvise > {_THP}, as root",
    )


def _governor(state: Mapping[str, Any]) -> Finding:
    choice = state["cpu"]["governor"]
    if choice is None:
        return Finding("governor", "governor", "unknown", f"{_SILENT} (virtual machines rarely do)")
    if choice == "performance":
        return Finding("governor", "governor", "yes", choice)
    return Finding(
        "governor",
        "governor",
        "no",
        f"{choice}: the clock follows the load, and the first rounds may be slower",
        "cpupower frequency-set -g performance, as root",
        doubts=True,
    )


def _boost(state: Mapping[str, Any]) -> Finding:
    on = state["cpu"]["boost"]
    if on is None:
        return Finding("boost", "boost", "unknown", f"{_SILENT} (virtual machines rarely do)")
    said = "on: the clock follows heat; arms take turns, so that it falls on all alike" if on else "off"
    return Finding("boost", "boost", "yes", said)


def _smt(state: Mapping[str, Any]) -> Finding:
    on = state["cpu"]["smt"]
    if on is None:
        return Finding("smt", "SMT", "unknown", _SILENT)
    said = "on: one worker per physical core, siblings stay idle" if on else "off"
    return Finding("smt", "SMT", "yes", said)


def _numa(state: Mapping[str, Any]) -> Finding:
    nodes = state["cpu"]["numa_nodes"]
    if nodes is None:
        return Finding("numa", "NUMA", "unknown", _SILENT)
    said = "one node" if nodes == 1 else f"{nodes} nodes: workers are spread, each touches its weights first"
    return Finding("numa", "NUMA", "yes", said)


def _quota(state: Mapping[str, Any], root: Path) -> Finding:
    quota, cores = state["cpu"]["quota_cpus"], state["cpu"]["physical"]
    if quota is None:
        if not _quota_can_be_read(root):
            return Finding("quota", "cgroup quota", "unknown", _SILENT)
        return Finding("quota", "cgroup quota", "yes", "none")
    allowed = len(state["cpu"]["affinity"] or ()) or cores
    said = f"{quota:g} CPUs"
    if allowed and quota >= allowed:
        return Finding("quota", "cgroup quota", "yes", f"{said}, as many as there are")
    return Finding(
        "quota",
        "cgroup quota",
        "no",
        f"{said} of {allowed or 'an unknown number of'} CPUs: workers stand still when it is used up",
        "raise cpu.max (version 2) or cpu.cfs_quota_us (version 1), or run outside of the container",
        doubts=True,
    )


def _quota_can_be_read(root: Path) -> bool:
    try:
        cgroup_quota_cpus(root)
    except (OSError, ValueError, ArithmeticError):
        return False
    return any((root / "sys/fs/cgroup").glob("*"))


def _steal(state: Mapping[str, Any]) -> Finding:
    share = state["load"]["steal_share"]
    if share is None:
        return Finding("steal", "steal time", "unknown", _SILENT)
    said = f"the host took {share:.2%} of CPU time since boot"
    if share <= MAX_STEAL:
        return Finding("steal", "steal time", "yes", said)
    remedy = "use a dedicated host or another time of day: rounds with more than 1 % are void"
    return Finding("steal", "steal time", "no", said, remedy, doubts=True)


def _load(state: Mapping[str, Any]) -> Finding:
    load, usable = state["load"]["average_1m"], usable_cpus(state)
    if load is None:
        return Finding("load", "other work", "unknown", _SILENT)
    said = f"load average {load:.2f} on {usable} usable core{'' if usable == 1 else 's'}"
    if load <= MAX_LOAD * usable:
        return Finding("load", "other work", "yes", said)
    return Finding("load", "other work", "no", said, "end other programs, or wait for them", doubts=True)


def _swap(state: Mapping[str, Any]) -> Finding:
    used = state["memory"]["swap_used_bytes"]
    if used is None:
        return Finding("swap", "swap", "unknown", _SILENT)
    if not used:
        return Finding("swap", "swap", "yes", "not in use")
    remedy = "free memory, then swapoff -a and swapon -a, as root"
    return Finding("swap", "swap", "no", f"{used / 1e6:,.0f} MB in use", remedy, doubts=True)
