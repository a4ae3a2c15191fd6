"""The accessor of the topology: this machine's, and one made up in the layout of /sys and /proc."""

from pathlib import Path

import pytest

from engine.errors import ArgumentError
from engine.kernels import threads_default
from engine.probes import Pool
from engine.topology import Topology, place_workers, read_topology


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """Two nodes of 32 cores, each core with an SMT sibling: 128 CPUs."""
    for cpu in range(128):
        siblings = f"{cpu % 64},{cpu % 64 + 64}\n"
        write(tmp_path, f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", siblings)
    write(tmp_path, "sys/devices/system/cpu/online", "0-127\n")
    write(tmp_path, "sys/devices/system/node/online", "0-1\n")
    write(tmp_path, "sys/devices/system/node/node0/cpulist", "0-31,64-95\n")
    write(tmp_path, "sys/devices/system/node/node1/cpulist", "32-63,96-127\n")
    write(tmp_path, "proc/self/status", "Cpus_allowed_list:\t0-127\n")
    return tmp_path


def test_this_machine() -> None:
    topology = read_topology()
    assert 1 <= topology.threads <= topology.cores <= topology.allowed <= topology.online
    assert topology.threads == threads_default()
    with Pool(topology.threads) as pool:
        assert pool.worker_cpus == list(topology.worker_cpus)


def test_workers_are_listed_node_by_node(server: Path) -> None:
    topology = read_topology(server)
    assert (topology.allowed, topology.cores, topology.siblings, topology.nodes) == (128, 64, 64, 2)
    assert topology.threads == 64
    assert topology.worker_cpus == tuple(range(64))
    assert topology.worker_nodes == (0,) * 32 + (1,) * 32
    assert topology.reason == "64 physical cores, SMT siblings left idle"


def test_few_workers_use_the_memory_of_all_nodes(server: Path) -> None:
    assert place_workers(4, server) == ((0, 1, 32, 33), (0, 0, 1, 1))


def test_quota(server: Path) -> None:
    write(server, "proc/self/cgroup", "0::/\n")
    write(server, "sys/fs/cgroup/cpu.max", "650000 100000\n")
    topology = read_topology(server)
    assert topology.threads == 7
    assert topology.reason == "a cgroup allows 6.5 CPUs of 64 cores"


def test_affinity(server: Path) -> None:
    write(server, "proc/self/status", "Cpus_allowed_list:\t8-11\n")
    topology = read_topology(server)
    assert (topology.threads, topology.nodes, topology.worker_cpus) == (4, 1, (8, 9, 10, 11))
    assert topology.reason == "one for each: 4 physical cores in the affinity mask (4 of 128 CPUs)"


def test_more_cores_than_a_pool_holds_workers(tmp_path: Path) -> None:
    write(tmp_path, "sys/devices/system/cpu/online", "0-383\n")
    write(tmp_path, "proc/self/status", "Cpus_allowed_list:\t0-383\n")
    topology = read_topology(tmp_path)
    assert (topology.cores, topology.threads, len(topology.worker_cpus)) == (384, 256, 256)
    assert topology.reason == "a pool holds 256 workers, of 384 cores"


def test_one_core() -> None:
    lone = Topology(1, 1, 1, 1, None, 1, (0,), (0,))
    assert lone.reason == "one for each: 1 physical core"


def test_more_workers_than_cpus(server: Path) -> None:
    with pytest.raises(ArgumentError, match="129 threads; allowed: 1 to 128"):
        place_workers(129, server)
