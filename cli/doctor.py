"""`cflow doctor`: what can be measured on this machine, why not, and what would help."""

import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from baselines.errors import BaselineError
from baselines.install import LLAMACPP, VLLM, VLLM_RECIPE, installed
from baselines.llamacpp import LlamaCpp
from cli.console import EXIT_USAGE, JsonOption, mb, print_json
from engine import native, smollm2
from engine.direct_io import direct_alignment
from engine.enums import Isa, Reader, ReadPath
from engine.errors import CflowError
from engine.kernels import isa_default, isa_supported
from engine.reads import MIB, consecutive, probe_reads
from engine.topology import Topology, read_topology
from harness.counters import probe_counters, process_io
from harness.machine import machine_state, transparent_huge_pages, warnings
from harness.profiles import DEFAULT_PROFILE, PROFILES, fit

_PROBED_BYTES = MIB


@dataclass(frozen=True)
class Finding:
    """One line of the diagnosis. `required`: without it the profile cannot run. `remedy` is empty when ok."""

    name: str
    ok: bool
    required: bool
    detail: str
    remedy: str = ""


def doctor(
    profile: Annotated[
        str, typer.Option(help=f"Profile to be ready for: {', '.join(p.name for p in PROFILES)}.")
    ] = DEFAULT_PROFILE,
    out: Annotated[Path, typer.Option(help="Where results would go.")] = Path(),
    json: JsonOption = False,
) -> None:
    """Say what this machine can show. Exit code 2 when the profile cannot run here."""
    state = machine_state(out)
    findings = [*_engine(), *_evidence(), *_storage(out), _huge_pages(), _profile(profile, state)]
    doubts = warnings(state)
    ready = all(finding.ok for finding in findings if finding.required)
    if json:
        print_json(
            {
                "ready": ready,
                "profile": profile,
                "findings": [asdict(finding) for finding in findings],
                "warnings": list(doubts),
                "machine": state,
            }
        )
    else:
        _print(state, findings, doubts)
        print(f"\n{'ready' if ready else 'NOT ready'} for profile {profile}")
    if not ready:
        raise typer.Exit(EXIT_USAGE)


def _engine() -> list[Finding]:
    try:
        info = native.build_info()
    except CflowError as error:
        return [Finding("engine", False, True, str(error), f"run `{native.BUILD_COMMAND}`")]
    sets = ", ".join(isa.name.lower() for isa in Isa if isa_supported(isa))
    default = isa_default()
    return [
        Finding("engine", True, True, info),
        Finding("instruction sets", True, True, f"{sets}; default {default.name.lower()}"),
        *_topology(read_topology()),
        _vnni(),
        _smollm2(),
        _llamacpp(),
        _vllm(),
    ]


def _topology(found: Topology) -> list[Finding]:
    """Where workers can run, and how many there are without --threads."""
    quota = "no cgroup quota" if found.quota_cpus is None else f"cgroup quota of {found.quota_cpus:g} CPUs"
    cpus = (
        f"{_counted(found.nodes, 'NUMA node')}, {_counted(found.cores, 'physical core')}, "
        f"{_counted(found.siblings, 'SMT sibling')}, {found.allowed} of {found.online} CPUs allowed, {quota}"
    )
    return [
        Finding("topology", True, True, cpus),
        Finding("threads", True, True, f"{found.threads} by default ({found.reason})"),
    ]


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _vnni() -> Finding:
    ok = isa_supported(Isa.AVX512VNNI)
    remedy = "" if ok else "AVX-512 kernels are not measured here; use a CPU that has AVX-512 VNNI"
    return Finding("AVX-512 VNNI", ok, False, "supported" if ok else "this CPU or OS lacks it", remedy)


def _smollm2() -> Finding:
    try:
        return Finding("SmolLM2 weights", True, False, smollm2.gguf_path().name)
    except CflowError as error:
        return Finding("SmolLM2 weights", False, False, str(error), f"run `{smollm2.INSTALL_COMMAND}`")


def _llamacpp() -> Finding:
    """Version and back end as the library itself reports them: it is started, and loads no model."""
    name = "llama.cpp baseline"
    if installed(LLAMACPP) is None:
        return Finding(name, False, False, "not installed", f"run `cflow baseline install {LLAMACPP}`")
    try:
        with LlamaCpp() as baseline:
            build = baseline.build()
    except BaselineError as error:
        return Finding(name, False, False, str(error), "comparisons with it are NOT MEASURABLE HERE")
    return Finding(name, True, False, f"{build.version} ({build.commit}), back end {build.back_end}")


def _vllm() -> Finding:
    """Not started: that takes longer than all else here. The installation proved that it runs."""
    name = "vLLM baseline"
    if installed(VLLM) is None:
        remedy = f"run `cflow baseline install {VLLM}` ({VLLM_RECIPE.needed_bytes / 1e9:.0f} GB of disk)"
        return Finding(name, False, False, "not installed", remedy)
    return Finding(name, True, False, VLLM_RECIPE.specifier)


def _evidence() -> list[Finding]:
    io = process_io()
    remedy = "" if io else "checks that count device bytes are NOT MEASURABLE HERE; mount /proc"
    found = "bytes from storage can be counted" if io else "/proc/self/io cannot be read"
    return [*_hardware_counters(), Finding("device bytes", io is not None, False, found, remedy)]


def _storage(folder: Path) -> list[Finding]:
    """How experts would be read from a file in `folder`: the reader itself reads one there."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".cflow-doctor-") as file:
            file.write(bytes(_PROBED_BYTES))
            file.flush()
            os.fsync(file.fileno())
            found = probe_reads(Path(file.name), consecutive(_PROBED_BYTES, _PROBED_BYTES))
            alignment = direct_alignment(Path(file.name))
    except (OSError, CflowError) as error:
        return [Finding("reads from disk", False, False, f"{folder}: {error}", "give a folder with --out")]
    past = found.path is ReadPath.DIRECT
    aligned = "" if alignment is None else f", aligned to {alignment} bytes"
    uring = found.reader is Reader.IO_URING
    return [
        Finding(
            "O_DIRECT",
            past,
            False,
            f"reads go past the page cache{aligned}" if past else f"refused or meaningless in {folder}",
            "" if past else "keep models on a local file system: reads go through the page cache here",
        ),
        Finding(
            "io_uring",
            uring,
            False,
            "reads experts beside the computation" if uring else "refused: a few threads read instead",
            "" if uring else "they take more processor time; a container's seccomp profile may be the reason",
        ),
    ]


def _huge_pages() -> Finding:
    state = transparent_huge_pages()
    ok = state in ("always", "madvise")
    remedy = "reads into small pages take longer: allow them in /sys/kernel/mm/transparent_hugepage/enabled"
    return Finding(
        "huge pages for buffers", ok, False, state or "not known to this kernel", "" if ok else remedy
    )


def _hardware_counters() -> list[Finding]:
    """One line for the counters that can be read, and one for each reason why others cannot."""
    groups: dict[str, list[str]] = {}
    for status in probe_counters():
        groups.setdefault("" if status.available else status.reason, []).append(status.name)
    remedy = "hardware evidence that needs them is NOT MEASURABLE HERE; bare metal usually has them"
    return [
        Finding(
            "hardware counters",
            not reason,
            False,
            ", ".join(names) + (f": {reason}" if reason else ""),
            remedy if reason else "",
        )
        for reason, names in groups.items()
    ]


def _profile(name: str, state: dict[str, Any]) -> Finding:
    fitting = fit(name, state)
    return Finding(
        f"profile {name}",
        fitting.fits,
        True,
        "fits" if fitting.fits else "; ".join(fitting.missing),
        "" if fitting.smaller is None or fitting.fits else f"use --profile {fitting.smaller.name}",
    )


def _print(state: dict[str, Any], findings: list[Finding], doubts: tuple[str, ...]) -> None:
    cpu, memory, storage = state["cpu"], state["memory"], state["storage"]
    print(f"cpu        {cpu['model']}, {cpu['physical']} cores, {cpu['logical']} threads")
    print(f"memory     {_size(memory['available_bytes'])} available of {_size(memory['total_bytes'])}")
    print(f"storage    {_size(storage['free_bytes'])} free")
    print()
    for finding in findings:
        answer = "yes" if finding.ok else "NO" if finding.required else "no"
        print(f"{answer:<3}  {finding.name}: {finding.detail}")
        if finding.remedy:
            print(f"       -> {finding.remedy}")
    for doubt in doubts:
        print(f"warn {doubt}")


def _size(size_bytes: int | None) -> str:
    return "unknown" if size_bytes is None else mb(size_bytes)
