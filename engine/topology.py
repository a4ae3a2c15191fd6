"""Which CPUs this process may use, how they are arranged, and how many threads follow from that."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engine.enums import TopologyField
from engine.native import check, lib, pointer


@dataclass(frozen=True)
class Topology:
    """What the default number of threads was decided from.

    online: CPUs of the machine. allowed: those in the affinity mask. cores: physical cores among the
    allowed; the rest are SMT siblings. nodes: NUMA nodes among the allowed. quota_cpus: the tightest cgroup
    quota, None = none. threads: min(cores, quota rounded up, 256), at least 1: a pool holds no more.
    worker_cpus, worker_nodes: where a pinned pool of that many workers runs.
    """

    online: int
    allowed: int
    cores: int
    nodes: int
    quota_cpus: float | None
    threads: int
    worker_cpus: tuple[int, ...]
    worker_nodes: tuple[int, ...]

    @property
    def siblings(self) -> int:
        """Allowed CPUs that share a physical core with another allowed one."""
        return self.allowed - self.cores

    @property
    def reason(self) -> str:
        """Why there are as many threads as there are, in words."""
        wanted = self.cores if self.quota_cpus is None else min(self.cores, math.ceil(self.quota_cpus))
        if self.threads < wanted:
            return f"a pool holds {self.threads} workers, of {self.cores} cores"
        if self.quota_cpus is not None and wanted < self.cores:
            return f"a cgroup allows {self.quota_cpus:g} CPUs of {self.cores} cores"
        cores = f"{self.cores} physical core{'s' if self.cores > 1 else ''}"
        if self.allowed < self.online:
            cores += f" in the affinity mask ({self.allowed} of {self.online} CPUs)"
        return f"one for each: {cores}" if not self.siblings else f"{cores}, SMT siblings left idle"


def read_topology(root: Path | None = None) -> Topology:
    """The topology of this machine, or of one whose /sys and /proc are copied below `root`."""
    raw = np.zeros(len(TopologyField), dtype=np.uint64)
    check(lib().cflow_topology(_encoded(root), pointer("fields", raw, np.uint64, raw.size)))
    value = {field: int(raw[field]) for field in TopologyField}
    threads, quota = value[TopologyField.THREADS], value[TopologyField.QUOTA_MILLICPUS]
    cpus, nodes = place_workers(threads, root)
    return Topology(
        online=value[TopologyField.ONLINE],
        allowed=value[TopologyField.ALLOWED],
        cores=value[TopologyField.CORES],
        nodes=value[TopologyField.NODES],
        quota_cpus=quota / 1000 if quota else None,
        threads=threads,
        worker_cpus=cpus,
        worker_nodes=nodes,
    )


def place_workers(threads: int, root: Path | None = None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """CPU and NUMA node of each worker of a pinned pool.

    Physical cores come first, spread over the nodes, and are listed node by node. Raises ArgumentError when
    there are fewer allowed CPUs than `threads`.
    """
    cpus, nodes = np.zeros((2, max(threads, 1)), dtype=np.int32)
    check(
        lib().cflow_topology_place(
            _encoded(root),
            threads,
            pointer("cpus", cpus, np.int32, cpus.size),
            pointer("nodes", nodes, np.int32, nodes.size),
        )
    )
    return tuple(int(cpu) for cpu in cpus), tuple(int(node) for node in nodes)


def _encoded(root: Path | None) -> bytes | None:
    return None if root is None else os.fsencode(root)
