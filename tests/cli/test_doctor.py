"""`cflow doctor`: what it prints, its JSON, and its exit codes."""

import json
from pathlib import Path
from typing import Any

import pytest

from claims.readiness import diagnosis, noise
from cli.doctor import effect_words, report
from engine.errors import LibraryError
from harness.doctor import Effect
from harness.kinds import INCONCLUSIVE, NOT_MEASURABLE
from harness.machine import machine_state
from harness.paired import run_pairs
from harness.rounds import Figure, Side
from tests.cli.conftest import Cflow
from tests.harness.fake import FakeMachine


def heard(incidents: dict[int, object]) -> noise.Noise:
    machine = FakeMachine(3, incidents, noise=0.003)
    figure = Figure(Side(noise.READ, "bandwidth"), None)
    timed = run_pairs(
        [machine.arm(noise.READ, 80e6)], figure, machine.probes(), control_of=noise.READ, seed=1
    )
    return noise.judged(timed, 2)


@pytest.fixture
def roomy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """This machine, with enough memory and disk for quick."""
    state = machine_state(tmp_path)
    state["memory"] |= {"available_bytes": 8 * 10**9, "limit_bytes": None}
    state["storage"]["free_bytes"] = 10**12
    monkeypatch.setattr(diagnosis, "machine_state", lambda out: state)
    return state


def test_ready(cflow: Cflow, monkeypatch: pytest.MonkeyPatch, roomy: object, tmp_path: Path) -> None:
    monkeypatch.setattr(diagnosis, "listen", lambda progress: heard({}))
    outcome = cflow("doctor", "--out", tmp_path)
    assert outcome.code == 0
    assert outcome.out.endswith("\nready for profile quick\n")
    assert "yes  noisy neighbours: 20 valid rounds" in outcome.out
    found = json.loads(cflow("doctor", "--out", tmp_path, "--json").out)
    assert (found["ready"], found["quiet"]) == (True, True)


def test_too_noisy_is_1(cflow: Cflow, monkeypatch: pytest.MonkeyPatch, roomy: object, tmp_path: Path) -> None:
    monkeypatch.setattr(diagnosis, "listen", lambda progress: heard(dict.fromkeys(range(40), "steal")))
    outcome = cflow("doctor", "--out", tmp_path)
    assert outcome.code == 1
    assert "too noisy now" in outcome.out and "=> INCONCLUSIVE: " in outcome.out
    assert json.loads(cflow("doctor", "--out", tmp_path, "--json").out)["ready"] is False


def test_a_profile_that_does_not_fit_is_2(cflow: Cflow, roomy: dict[str, Any]) -> None:
    roomy["memory"]["available_bytes"] = 2 * 10**9
    outcome = cflow("doctor", "--no-measure")
    assert outcome.code == 2
    assert "NOT ready for profile quick" in outcome.out
    assert "6 GB of free RAM needed, 2.0 GB found" in outcome.out
    assert "-> use --profile smoke" in outcome.out
    rows = {line.split()[0]: line for line in outcome.out.splitlines() if line.startswith(("smoke", "quick"))}
    assert rows["smoke"].endswith("yes") and "no: 6 GB" in rows["quick"]


def test_without_measuring_it_says_so(cflow: Cflow, roomy: object, tmp_path: Path) -> None:
    outcome = cflow("doctor", "--no-measure", "--out", tmp_path)
    assert outcome.code == 0
    assert "noise was not measured" in outcome.out
    for name in ("O_DIRECT: ", "io_uring: ", "huge pages: ", "governor: ", "cgroup quota: "):
        assert name in outcome.out
    assert not list(tmp_path.iterdir()), "the probe leaves nothing behind"


def test_json_has_a_remedy_for_all_that_is_missing(cflow: Cflow, roomy: object, tmp_path: Path) -> None:
    found = json.loads(cflow("doctor", "--no-measure", "--out", tmp_path, "--json").out)
    ids = {finding["id"] for finding in found["findings"]}
    assert {"engine", "topology", "threads", "pmu", "device_bytes", "profile", "noise", "llama.cpp"} <= ids
    for finding in found["findings"]:
        assert bool(finding["remedy"]) is (finding["state"] == "no"), finding


def test_without_the_library(
    cflow: Cflow, monkeypatch: pytest.MonkeyPatch, roomy: object, tmp_path: Path
) -> None:
    def absent() -> str:
        raise LibraryError("the C library was not found")

    monkeypatch.setattr("engine.native.build_info", absent)
    outcome = cflow("doctor", "--out", tmp_path)
    assert outcome.code == 2
    assert "NO   engine: the C library was not found" in outcome.out
    assert "cmake" in outcome.out


def test_a_folder_that_is_not_there_or_cannot_be_written(cflow: Cflow, roomy: object, tmp_path: Path) -> None:
    outcome = cflow("doctor", "--no-measure", "--out", tmp_path / "absent")
    assert "O_DIRECT: " in outcome.out
    assert not (tmp_path / "absent").exists()
    refused = cflow("doctor", "--no-measure", "--out", "/proc/self")
    assert "no   O_DIRECT: /proc/self: " in refused.out


def test_unknown_profiles_are_named(cflow: Cflow) -> None:
    outcome = cflow("doctor", "--profile", "huge")
    assert outcome.code == 2
    assert "no profile 'huge'; profiles are smoke, quick, full, paper" in outcome.err


@pytest.mark.parametrize("width", [60, 80, 120])
def test_lines_fit(width: int, roomy: object, tmp_path: Path) -> None:
    found = diagnosis.diagnose("quick", tmp_path, measure=False)
    for line in report(found, width):
        assert len(line) <= width or " " not in line.strip(), line


def test_many_checks_are_counted() -> None:
    few = Effect(NOT_MEASURABLE, True, ("a", "b"), ("c: d",))
    assert effect_words(few) == "NOT MEASURABLE HERE: a, b; c: d"
    many = Effect(INCONCLUSIVE, False, tuple("abcdefgh"), ())
    assert effect_words(many) == "perhaps INCONCLUSIVE: 8 checks, a, b, c, d, e ..."
