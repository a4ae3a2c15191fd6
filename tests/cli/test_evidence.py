"""`cflow doctor`, `check`, `report` and `explain`."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from baselines import install
from baselines.errors import BaselineError
from baselines.llamacpp_abi import VERSIONS
from cli import doctor
from engine.errors import LibraryError
from engine.topology import Topology
from harness.counters import CounterStatus
from harness.machine import machine_state
from harness.registry import load_registry
from tests.cli.conftest import Cflow

SAMPLE = Path(__file__).parent.parent / "data" / "results_sample"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A copy of the sample run, to be spoilt."""
    shutil.copytree(SAMPLE, tmp_path / "run")
    return tmp_path / "run"


def test_check_of_a_good_run(cflow: Cflow, results: Path) -> None:
    outcome = cflow("check", results)
    assert outcome.code == 0
    assert outcome.err == ""
    assert "every verdict follows from the raw data" in outcome.out
    found = json.loads(cflow("check", results, "--json").out)
    assert [claim["id"] for claim in found["claims"]][:2] == ["1", "2"]
    assert found["problems"] == []


def test_check_of_a_run_with_a_flipped_verdict(cflow: Cflow, results: Path) -> None:
    path = results / "results.json"
    data: dict[str, Any] = json.loads(path.read_text())
    record = next(record for record in data["checks"] if record["verdict"] == "SUPPORTED")
    record["verdict"] = "REFUTED"
    path.write_text(json.dumps(data))
    outcome = cflow("check", results)
    assert outcome.code == 1
    assert f"problem: {record['id']}: " in outcome.err
    as_json = cflow("check", results, "--json")
    assert as_json.code == 1
    assert json.loads(as_json.out)["problems"]


@pytest.mark.parametrize("command", ["check", "report"])
def test_missing_or_damaged_results(cflow: Cflow, results: Path, command: str) -> None:
    (results / "results.json").write_text("{")
    outcome = cflow(command, results)
    assert outcome.code == 2
    assert "results.json" in outcome.err
    (results / "results.json").unlink()
    assert cflow(command, results).code == 2
    assert not (results / "report.html").exists()


def test_report_writes_the_page(cflow: Cflow, results: Path) -> None:
    outcome = cflow("report", results)
    assert outcome.code == 0
    page = Path(outcome.out.strip())
    assert page == results / "report.html"
    assert page.read_text().lower().startswith("<!doctype html>")


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The claims of the sample in place of those of the package."""
    path = SAMPLE / "claims.toml"
    monkeypatch.setattr("cli.explain.claims_path", lambda: path)
    return path


def test_explain_every_claim_and_check(cflow: Cflow, registry: Path) -> None:
    known = load_registry(registry)
    for claim in known.claims:
        outcome = cflow("explain", claim.id)
        assert outcome.code == 0
        assert claim.statement in outcome.out
        assert ("not built yet" in outcome.out) is not claim.built
    for check in known.checks:
        outcome = cflow("explain", check.id)
        assert check.statement in outcome.out
        assert f"--only {check.id}" in outcome.out
        found = json.loads(cflow("explain", check.id, "--json").out)
        assert found["id"] == check.claim
        assert [item["id"] for item in found["checks"]] == [check.id]


def test_explain_of_an_unknown_claim(cflow: Cflow, registry: Path) -> None:
    outcome = cflow("explain", "99")
    assert outcome.code == 2
    assert "no claim or check '99'; claims are 1, 2" in outcome.err


def test_doctor_json(cflow: Cflow, tmp_path: Path) -> None:
    outcome = cflow("doctor", "--profile", "smoke", "--out", tmp_path, "--json")
    found = json.loads(outcome.out)
    assert found["profile"] == "smoke"
    assert found["ready"] is (outcome.code == 0)
    names = {finding["name"] for finding in found["findings"]}
    assert {"engine", "topology", "threads", "hardware counters", "device bytes", "profile smoke"} <= names
    for finding in found["findings"]:
        assert finding["ok"] or finding["remedy"]


def test_doctor_tells_the_topology_and_why_so_many_threads() -> None:
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
    assert [(finding.name, finding.detail) for finding in doctor._topology(server)] == [
        (
            "topology",
            "1 NUMA node, 32 physical cores, 32 SMT siblings, 64 of 128 CPUs allowed, "
            "cgroup quota of 6.5 CPUs",
        ),
        ("threads", "7 by default (a cgroup allows 6.5 CPUs of 32 cores)"),
    ]


def test_doctor_counts_what_is_refused_once_per_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    statuses = (
        CounterStatus("cycles", True, ""),
        CounterStatus("misses", False, "not here"),
        CounterStatus("hits", False, "not here"),
    )
    monkeypatch.setattr("cli.doctor.probe_counters", lambda: statuses)
    findings = [finding for finding in doctor._evidence() if finding.name == "hardware counters"]
    assert [(finding.ok, finding.detail) for finding in findings] == [
        (True, "cycles"),
        (False, "misses, hits: not here"),
    ]


def test_doctor_says_how_to_get_llamacpp(
    cflow: Cflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(install.ENVIRONMENT_VARIABLE, str(tmp_path / "none"))
    found = doctor._llamacpp()
    assert (found.ok, found.required) == (False, False)
    assert found.remedy == "run `cflow baseline install llama.cpp`"
    assert "llama.cpp baseline: not installed" in cflow("doctor", "--profile", "smoke").out


def test_doctor_tells_the_build_of_llamacpp() -> None:
    if install.installed(install.LLAMACPP) is None:
        pytest.skip("llama.cpp is not installed: run `cflow baseline install llama.cpp`")
    found = doctor._llamacpp()
    assert found.ok
    assert VERSIONS["llama.cpp"] in found.detail and "back end" in found.detail


def test_doctor_names_what_is_wrong_with_llamacpp(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise BaselineError("llama.cpp: versions differ")

    monkeypatch.setattr("cli.doctor.installed", lambda name: Path())
    monkeypatch.setattr("cli.doctor.LlamaCpp", broken)
    found = doctor._llamacpp()
    assert (found.ok, found.detail) == (False, "llama.cpp: versions differ")
    assert "NOT MEASURABLE HERE" in found.remedy


def test_doctor_of_a_profile_that_does_not_fit(
    cflow: Cflow, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    state = machine_state(tmp_path)
    state["memory"] |= {"available_bytes": 2 * 10**9, "limit_bytes": None}
    state["storage"]["free_bytes"] = 10**12
    monkeypatch.setattr("cli.doctor.machine_state", lambda out: state)
    outcome = cflow("doctor", "--profile", "quick")
    assert outcome.code == 2
    assert "NOT ready for profile quick" in outcome.out
    assert "6 GB of free RAM needed, 2.0 GB found" in outcome.out
    assert "use --profile smoke" in outcome.out


def test_doctor_without_the_library(cflow: Cflow, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> str:
        raise LibraryError("the C library was not found")

    monkeypatch.setattr("engine.native.build_info", absent)
    outcome = cflow("doctor", "--profile", "smoke")
    assert outcome.code == 2
    assert "the C library was not found" in outcome.out
    assert "cmake" in outcome.out


def test_doctor_names_unknown_profiles(cflow: Cflow) -> None:
    outcome = cflow("doctor", "--profile", "huge")
    assert outcome.code == 2
    assert "no profile 'huge'; profiles are smoke, quick, full, paper" in outcome.err
