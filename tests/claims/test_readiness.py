"""Diagnosis of engine, installation and noise, on machines that are made up and on the one at hand."""

from __future__ import annotations

import dataclasses
import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from baselines import install
from baselines.errors import BaselineError
from claims.needs import NEEDS
from claims.readiness import diagnosis, installed, noise
from claims.readiness.diagnosis import diagnose
from claims.readiness.engine import engine_findings, isa_findings, storage_findings, topology_findings
from claims.readiness.installed import installed_findings
from claims.readiness.noise import READ, doubtful_checks, judged, noise_finding, read_arm
from claims.run import REGISTRY_PATH
from engine.enums import Isa, Reader, ReadPath
from engine.errors import LibraryError, MemoryExhaustedError
from engine.reads import Reads
from engine.topology import Topology
from harness.doctor import Finding
from harness.errors import ProfileError
from harness.kinds import INCONCLUSIVE
from harness.paired import run_pairs
from harness.registry import load_registry
from harness.rounds import Figure, Side, Timed
from tests.claims.fake_bench import FakeBench
from tests.harness.fake import FakeMachine

REGISTRY = load_registry(REGISTRY_PATH)


def rounds(machine: FakeMachine) -> Timed:
    arms = [machine.arm(READ, 80e6)]
    figure = Figure(Side(READ, "bandwidth"), None)
    return run_pairs(arms, figure, machine.probes(), control_of=READ, seed=1, rounds=20)


# ---- noise ----


def test_a_quiet_machine() -> None:
    heard = judged(rounds(FakeMachine(3, noise=0.003)), 2)
    assert heard.quiet and heard.reasons(0.03) == ()
    assert heard.resolution is not None and 0 < heard.resolution < 0.01
    assert heard.spread is not None and heard.spread[0] < heard.spread[1] < heard.spread[2]
    one = noise_finding(heard)
    assert (one.state, one.remedy) == ("yes", "")
    assert "differences above 0." in one.detail
    assert doubtful_checks(heard, REGISTRY, "quick") == ()
    assert json.loads(json.dumps(heard.to_json(), allow_nan=False)) == heard.to_json()


def test_noise_turns_those_checks_inconclusive_whose_guard_is_narrower() -> None:
    heard = judged(rounds(FakeMachine(8, noise=0.04)), 2)
    wide = {check.guard for check in REGISTRY.checks if not heard.reasons(check.guard)}
    doubtful = set(doubtful_checks(heard, REGISTRY, "quick"))
    for check in REGISTRY.checks:
        if check.id in doubtful:
            assert "timed" in check.kinds and check.guard not in wide


def test_void_rounds_are_counted_by_rule() -> None:
    incidents = {number: "steal" for number in range(0, 30, 2)}
    heard = judged(rounds(FakeMachine(3, incidents)), 2)
    assert heard.void == {"steal": 15}
    one = noise_finding(heard)
    assert one.state == "no" and "rounds void, more than a third (steal 15)" in one.detail and one.remedy
    timed = [c.id for c in REGISTRY.checks if c.built and "quick" in c.budget_s and "timed" in c.kinds]
    assert doubtful_checks(heard, REGISTRY, "quick") == tuple(timed)


def test_no_valid_round_is_no_figure() -> None:
    heard = judged(rounds(FakeMachine(3, dict.fromkeys(range(40), "steal"))), 2)
    assert heard.spread is None and heard.resolution is None and not heard.quiet
    assert "0 valid rounds" in noise_finding(heard).detail
    json.dumps(heard.to_json(), allow_nan=False)


def test_the_arm_reads_the_whole_arena_and_gives_the_same_sum() -> None:
    with noise.open_bench(1) as bench:
        arm = read_arm(bench)
        sample = arm.run()
        assert sample.bytes == sample.work * bench.arena.size_bytes
        assert sample.digest == arm.expected_digest
        assert arm.run().digest == sample.digest


# ---- engine and installation ----


def by_id(findings: tuple[Finding, ...]) -> dict[str, Finding]:
    return {one.id: one for one in findings}


def test_the_topology_and_why_so_many_threads() -> None:
    server = Topology(
        online=128,
        allowed=64,
        cores=32,
        nodes=1,
        quota_cpus=6.5,
        threads=7,
        worker_cpus=tuple(range(7)),
        worker_nodes=(0,) * 7,
    )
    assert [(one.name, one.detail) for one in topology_findings(server)] == [
        (
            "topology",
            "1 NUMA node, 32 physical cores, 32 SMT siblings, 64 of 128 CPUs allowed, "
            "cgroup quota of 6.5 CPUs",
        ),
        ("threads", "7 by default (a cgroup allows 6.5 CPUs of 32 cores)"),
    ]


def test_instruction_sets() -> None:
    scalar = by_id(isa_findings({Isa.SCALAR}, Isa.SCALAR))
    assert scalar["isa"].needs == ("vector_isa",) and scalar["isa"].state == "no"
    assert scalar["avx2"].needs == ("avx2",)
    every = isa_findings(set(Isa), Isa.AVX512VNNI)
    assert {one.state for one in every} == {"yes"}


def test_a_library_that_does_not_load_is_the_only_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> str:
        raise LibraryError("the C library was not found")

    monkeypatch.setattr("engine.native.build_info", absent)
    (one,) = engine_findings()
    assert (one.state, one.required) == ("no", True)
    assert "cmake" in one.remedy


def test_reads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def probed(path: ReadPath, reader: Reader) -> None:
        found = Reads(reader, path, 1, 1, 0, 1, 0, None), 512
        monkeypatch.setattr("claims.readiness.engine.probed_reads", lambda folder: found)

    probed(ReadPath.DIRECT, Reader.IO_URING)
    good = by_id(storage_findings(tmp_path))
    assert {one.state for one in good.values()} == {"yes"}
    assert "aligned to 512 bytes" in good["o_direct"].detail
    probed(ReadPath.BUFFERED, Reader.THREADS)
    bad = by_id(storage_findings(tmp_path))
    assert {one.state for one in bad.values()} == {"no"}
    assert bad["o_direct"].needs == ("direct_reads",) and bad["io_uring"].needs == ()
    monkeypatch.undo()
    here = [one.state for one in storage_findings(tmp_path)]
    assert [one.state for one in storage_findings(tmp_path / "not" / "yet")] == here
    assert list(tmp_path.iterdir()) == []
    (refused,) = storage_findings(Path("/proc/self"))
    assert refused.state == "no" and "/proc/self: " in refused.detail


def test_what_is_not_installed_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(install.ENVIRONMENT_VARIABLE, str(tmp_path / "none"))
    found = by_id(installed_findings())
    assert (found["llama.cpp"].state, found["llama.cpp"].detail) == ("no", "not installed")
    assert found["llama.cpp"].remedy == "run `cflow baseline install llama.cpp`"
    assert found["vllm"].remedy == "run `cflow baseline install vllm` (6 GB of disk)"
    assert found["vllm"].rows == ("vLLM",)


def test_what_is_wrong_with_llamacpp_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise BaselineError("llama.cpp: versions differ")

    monkeypatch.setattr(installed, "installed", lambda name: Path())
    monkeypatch.setattr(installed, "LlamaCpp", broken)
    one = by_id(installed_findings())["llama.cpp"]
    assert (one.state, one.detail) == ("no", "llama.cpp: versions differ")
    assert one.needs == ("llama.cpp",) and "then install it again" in one.remedy


def test_every_need_of_a_check_is_looked_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A need that no finding names would make a check NOT MEASURABLE HERE without a word beforehand."""
    monkeypatch.setenv(install.ENVIRONMENT_VARIABLE, str(tmp_path))
    everything = [
        *isa_findings({Isa.SCALAR}, Isa.SCALAR),
        *storage_findings(Path("/proc/self")),
        *installed_findings(),
        Finding("device_bytes", "device bytes", "no", "", needs=("device_bytes",)),
    ]
    assert {need for one in everything for need in one.needs} == set(NEEDS)


# ---- together ----


def test_without_measuring(tmp_path: Path) -> None:
    found = diagnose("smoke", tmp_path, measure=False)
    assert found.noise is None and found.quiet is None
    heard, follows = found.findings[-1]
    assert (heard.id, heard.state, follows) == ("noise", "unknown", ())
    ids = [one.id for one, _ in found.findings]
    assert len(ids) == len(set(ids))
    data = found.to_json()
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert [row["name"] for row in data["profiles"]] == ["smoke", "quick", "full", "paper"]
    assert list(tmp_path.iterdir()) == []


def test_the_form_of_the_json_is_stable(tmp_path: Path) -> None:
    data = diagnose("smoke", tmp_path, measure=False).to_json()
    assert list(data) == [
        "form", "profile", "ready", "fits", "quiet", "findings", "profiles", "noise", "machine",
    ]  # fmt: skip
    assert data["form"] == 1
    assert {tuple(one) for one in data["findings"]} == {
        ("id", "name", "state", "required", "detail", "remedy", "effects")
    }


def test_with_measuring(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    loud = judged(rounds(FakeMachine(3, dict.fromkeys(range(40), "steal"))), 2)
    monkeypatch.setattr(diagnosis, "listen", lambda progress: loud)
    found = diagnose("smoke", tmp_path)
    heard, (effect,) = found.findings[-1]
    assert heard.state == "no" and found.quiet is False
    assert effect.verdict == INCONCLUSIVE and effect.certain and "3.speed" in effect.checks
    assert found.to_json()["ready"] is False and found.to_json()["fits"] is True
    others = [effect for _, follows in found.findings[:-1] for effect in follows]
    assert not any(effect.verdict == INCONCLUSIVE for effect in others), "measured, so not guessed"


def test_no_memory_for_the_measurement(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def exhausted(progress: object) -> None:
        raise MemoryExhaustedError("no memory")

    monkeypatch.setattr(diagnosis, "listen", exhausted)
    assert "not measured: no memory" in diagnose("smoke", tmp_path).findings[-1][0].detail
    monkeypatch.setattr(diagnosis, "needed_bytes", lambda: 10**15)
    said = diagnose("smoke", tmp_path).findings[-1][0]
    assert said.state == "unknown" and "MB of free memory needed" in said.detail


def test_an_unknown_profile(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="no profile 'huge'; profiles are smoke, quick, full, paper"):
        diagnose("huge", tmp_path, measure=False)


def test_ctrl_c_ends_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = dataclasses.replace(rounds(FakeMachine(3)), interrupted=True)
    monkeypatch.setattr(noise, "open_bench", lambda threads: nullcontext(FakeBench(1, 1)))
    monkeypatch.setattr(noise, "read_arm", lambda bench: None)
    monkeypatch.setattr(noise, "run_pairs", lambda *args, **kwargs: cut)
    with pytest.raises(KeyboardInterrupt):
        noise.listen()
