"""Findings about the engine: whether it loads, what it runs on, and how it reads from disk."""

from __future__ import annotations

from pathlib import Path

from claims.needs import probed_reads
from engine import native
from engine.enums import Isa, Reader, ReadPath
from engine.errors import CflowError
from engine.kernels import isa_default, isa_supported
from engine.topology import Topology, read_topology
from harness.doctor import Finding


def engine_findings() -> tuple[Finding, ...]:
    """The library, instruction sets and threads; one finding alone when the library cannot be loaded."""
    try:
        info = native.build_info()
    except CflowError as error:
        remedy = f"run `{native.BUILD_COMMAND}`"
        return (Finding("engine", "engine", "no", str(error), remedy, required=True),)
    return (
        Finding("engine", "engine", "yes", info, required=True),
        *isa_findings({isa for isa in Isa if isa_supported(isa)}, isa_default()),
        *topology_findings(read_topology()),
    )


def isa_findings(supported: set[Isa], default: Isa) -> tuple[Finding, ...]:
    """The instruction sets together, and each that decides rows or checks. default: of sessions."""
    names = ", ".join(isa.name.lower() for isa in Isa if isa in supported)
    detail = f"{names}; default {default.name.lower()}"
    found = [
        Finding("isa", "instruction sets", "yes", detail)
        if default is not Isa.SCALAR
        else Finding(
            "isa",
            "instruction sets",
            "no",
            detail,
            "use a CPU with AVX2 or, on Arm, dot products, and take CFLOW_ISA=scalar out of the environment",
            needs=("vector_isa",),
        )
    ]
    remedy = "use a CPU that has it, and an operating system that saves its registers"
    wanted = (
        (Isa.AVX2, "AVX2", ("avx2",), ("avx2",)),
        (Isa.AVX512, "AVX-512", (), ("avx512", "vLLM int4")),
        (Isa.AVX512VNNI, "AVX-512 VNNI", (), ("avx512vnni",)),
        (Isa.NEONDOT, "NEON dot product (Arm)", (), ("neondot",)),
    )
    for isa, name, needs, rows in wanted:
        if isa in supported:
            found.append(Finding(isa.name.lower(), name, "yes", "supported"))
        else:
            lacking = "this CPU or operating system lacks it"
            found.append(Finding(isa.name.lower(), name, "no", lacking, remedy, needs=needs, rows=rows))
    return tuple(found)


def topology_findings(found: Topology) -> tuple[Finding, ...]:
    """Where workers can run, and how many there are without --threads."""
    quota = "no cgroup quota" if found.quota_cpus is None else f"cgroup quota of {found.quota_cpus:g} CPUs"
    cpus = (
        f"{_counted(found.nodes, 'NUMA node')}, {_counted(found.cores, 'physical core')}, "
        f"{_counted(found.siblings, 'SMT sibling')}, {found.allowed} of {found.online} CPUs allowed, {quota}"
    )
    return (
        Finding("topology", "topology", "yes", cpus),
        Finding("threads", "threads", "yes", f"{found.threads} by default ({found.reason})"),
    )


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def storage_findings(folder: Path) -> tuple[Finding, ...]:
    """How experts would be read from a file in `folder`: the reader itself reads one there, or in the nearest
    parent that exists.
    """
    needs = ("direct_reads",)
    folder = next(each for each in [folder, *folder.absolute().parents] if each.exists())
    try:
        found, alignment = probed_reads(folder)
    except (OSError, CflowError) as error:
        said = f"{folder}: {error.strerror if isinstance(error, OSError) else error}"
        return (
            Finding(
                "o_direct",
                "O_DIRECT",
                "no",
                said,
                "give a folder that can be written, with --out",
                needs=needs,
            ),
        )
    aligned = "" if alignment is None else f", aligned to {alignment} bytes"
    return (
        Finding("o_direct", "O_DIRECT", "yes", f"reads go past the page cache{aligned}")
        if found.path is ReadPath.DIRECT
        else Finding(
            "o_direct",
            "O_DIRECT",
            "no",
            f"refused or meaningless in {folder}: reads go through the page cache",
            "keep models and results on a local disk, with --out",
            needs=needs,
        ),
        Finding("io_uring", "io_uring", "yes", "reads experts beside the computation")
        if found.reader is Reader.IO_URING
        else Finding(
            "io_uring",
            "io_uring",
            "no",
            "refused: a few threads read instead, and take more processor time",
            "allow it in the container's seccomp profile and in kernel.io_uring_disabled",
        ),
    )
