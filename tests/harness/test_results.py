"""results.json: written after every check, resumed, read back, refused when damaged."""

from __future__ import annotations

import copy
import dataclasses
import errno
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

import harness
from harness.check import check
from harness.errors import EvidenceError, RegistryError, ResultsError
from harness.evidence import Counted, Derived
from harness.kinds import INCONCLUSIVE, NOT_MEASURABLE, REFUTED, SUPPORTED
from harness.paired import run_pairs
from harness.reductions import REDUCTIONS, Reduction
from harness.registry import load_registry, parse_registry
from harness.results import Recorder, RunInfo, headline, schema, write_atomically
from harness.rounds import Figure, Side, Timed
from harness.verdict import NotMeasurable
from tests.harness.fake import FakeMachine
from tests.harness.make_sample import MACHINE, SAMPLE_DIR

REGISTRY = load_registry(SAMPLE_DIR / "claims.toml")
RUN = RunInfo("quick", {"threads": 2, "only": None}, "abc", False, "pytest claims/")
BUILD = {"compiler": "gcc 12"}


def start(folder: Path, run: RunInfo = RUN, resume: bool = False, build: dict[str, str] = BUILD) -> Recorder:
    return Recorder.open(folder, REGISTRY, run, build, MACHINE, resume=resume)


def traffic(value: float = 1.0) -> Counted:
    return Counted("made up", {"a": value}, Reduction("value", ("a",)))


def add(recorder: Recorder, check_id: str, found: Any) -> Any:
    return recorder.add(
        check_id, found, started_ns=0, command=f"pytest claims/ --only {check_id}", limits=["none"]
    )


def timed(interrupted: bool = False) -> Timed:
    machine = FakeMachine(5)
    arms = [machine.arm("old", 50e6), machine.arm("new", 50e6)]
    run = run_pairs(
        arms, Figure(Side("new", "speed"), Side("old", "speed")), machine.probes(), control_of="old", seed=5
    )
    if interrupted:
        run = dataclasses.replace(run, interrupted=True, rounds=run.rounds[:7])
    return run


def test_schema_is_valid_and_knows_every_reduction() -> None:
    jsonschema_rs.meta.validate(schema())
    assert set(schema()["$defs"]["exact"]["properties"]["reduction"]["properties"]["op"]["enum"]) == set(
        REDUCTIONS
    )


def test_every_check_is_on_disk_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "run"
    recorder = start(folder)
    assert harness.load(folder).data["checks"] == []
    assert add(recorder, "7.traffic", traffic()) == (SUPPORTED, "exact value inside the target")
    assert [record["id"] for record in harness.load(folder).checks] == ["7.traffic"]
    add(recorder, "6.hint", NotMeasurable("no RAM"))
    assert [record["seq"] for record in harness.load(folder).data["checks"]] == [0, 1]
    assert harness.load(folder).run["finished_utc"] is None
    recorder.finish({**MACHINE, "load": {"average_1m": 9.0}})
    results = harness.load(folder)
    assert results.run["finished_utc"] is not None
    assert results.data["machine"]["after"]["load"] == {"average_1m": 9.0}
    assert results.data["registry"]["text"] == REGISTRY.text
    assert results.registry == REGISTRY
    assert sorted(os.listdir(folder)) == [".results.lock", "results.json"]


def test_claims_follow_their_checks(tmp_path: Path) -> None:
    recorder = start(tmp_path)
    assert recorder.claim_verdict("6") == (INCONCLUSIVE, "6.hint: not run")
    add(recorder, "6.hint", NotMeasurable("no RAM"))
    assert recorder.claim_verdict("6") == (NOT_MEASURABLE, "6.hint: no RAM")
    assert recorder.claim_verdict("4") == (NOT_MEASURABLE, "not built yet")
    add(recorder, "7.traffic", traffic(2.0))
    claims = {claim["id"]: claim["verdict"] for claim in harness.load(tmp_path).claims}
    assert (claims["6"], claims["7"], claims["4"]) == (NOT_MEASURABLE, REFUTED, NOT_MEASURABLE)
    assert recorder.verdict("7.traffic")[0] == REFUTED
    assert recorder.verdict("7.overlap") == (NOT_MEASURABLE, "not built yet")


def test_the_cell_that_decides_stands_for_its_check(tmp_path: Path) -> None:
    recorder = start(tmp_path)
    labels = [cell.label for cell in REGISTRY.check("7.law").cells]
    made = [Derived("law", {"a": value}, Reduction("value", ("a",))) for value in (2.0, 9.0, 4.6)]
    assert add(recorder, "7.law", dict(zip(labels, made, strict=True)))[0] == REFUTED
    results = harness.load(tmp_path)
    record = results.record("7.law")
    assert record is not None
    assert (record["value"], record["unit"], headline(record)["label"]) == (4.6, "MiB", labels[2])
    row = results.to_frame().set_index("id").loc["7.law"]
    assert (row["value"], row["unit"], row["target_high"]) == (4.6, "MiB", 4.505)
    found = check(tmp_path)
    derived = {one["id"]: one for claim in found["claims"] for one in claim["checks"]}["7.law"]
    assert (derived["value"], derived["unit"]) == (4.6, "MiB")
    assert found["problems"] == []


def test_a_check_is_recorded_once_and_must_be_declared(tmp_path: Path) -> None:
    recorder = start(tmp_path)
    add(recorder, "7.traffic", traffic())
    with pytest.raises(ResultsError, match="7.traffic: recorded already"):
        add(recorder, "7.traffic", traffic())
    with pytest.raises(RegistryError, match="no check '7.tarffic'"):
        add(recorder, "7.tarffic", traffic())
    with pytest.raises(EvidenceError, match="cells found"):
        add(recorder, "7.law", {"arch1": traffic()})
    other = "check 6.hint, cell '': rounds_wanted is 12, claims.toml declares 20 in profile quick"
    with pytest.raises(EvidenceError, match=other):
        add(recorder, "6.hint", Timed(Figure(Side("a", "time"), Side("b", "time")), 1, 12, False, (), ()))
    assert len(harness.load(tmp_path).checks) == 1


def test_a_folder_with_results_is_not_overwritten(tmp_path: Path) -> None:
    add(start(tmp_path), "7.traffic", traffic())
    with pytest.raises(ResultsError, match="--resume"):
        start(tmp_path)
    assert len(harness.load(tmp_path).checks) == 1


def test_resume_goes_on_and_measures_interrupted_checks_again(tmp_path: Path) -> None:
    recorder = start(tmp_path)
    add(recorder, "7.traffic", traffic())
    assert add(recorder, "6.hint", timed(interrupted=True))[0] == INCONCLUSIVE
    kept = harness.load(tmp_path).record("6.hint")
    assert kept is not None and len(kept["cells"][0]["evidence"]["rounds"]) == 7
    recorder.close()
    recorder = start(tmp_path, resume=True)
    assert recorder.done("7.traffic") and not recorder.done("6.hint") and not recorder.done("7.law")
    assert add(recorder, "6.hint", timed())[0] == SUPPORTED
    recorder.finish(MACHINE)
    results = harness.load(tmp_path)
    assert [(record["id"], record["seq"]) for record in results.data["checks"]] == [
        ("7.traffic", 0),
        ("6.hint", 2),
    ]
    assert len(results.run["resumed_utc"]) == 1
    assert results.interrupted("6.hint") == [kept] and results.interrupted("7.traffic") == []
    assert not any("6.hint" in str(item["check"]) for item in check(tmp_path)["problems"])


def test_resume_without_results_starts_anew(tmp_path: Path) -> None:
    assert not start(tmp_path, resume=True).done("7.traffic")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"commit": "def"}, "commit was 'abc', now 'def'"),
        ({"dirty": True}, "dirty was False, now True"),
        ({"profile": "full"}, "profile was 'quick', now 'full'"),
        ({"options": {"threads": 1, "only": None}}, "options was"),
    ],
)
def test_resume_refuses_another_run(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    start(tmp_path)
    with pytest.raises(ResultsError, match=message):
        start(tmp_path, dataclasses.replace(RUN, **change), resume=True)


def test_resume_refuses_another_registry_and_build(tmp_path: Path) -> None:
    start(tmp_path)
    with pytest.raises(ResultsError, match="build was"):
        start(tmp_path, resume=True, build={"compiler": "clang"})
    other = parse_registry(REGISTRY.text.replace("target = [5.0, inf]", "target = [1.0, inf]", 1))
    with pytest.raises(ResultsError, match=r"claims\.toml SHA-256 was"):
        Recorder.open(tmp_path, other, RUN, BUILD, MACHINE, resume=True)


@pytest.mark.parametrize(
    ("part", "key", "message"),
    [
        ("cpu", "model", "machine cpu.model was 'Example 2-core CPU', now 'other'"),
        ("kernel", "release", r"machine kernel.release was '6\.1\.0', now 'other'"),
    ],
)
def test_resume_refuses_another_machine(tmp_path: Path, part: str, key: str, message: str) -> None:
    start(tmp_path)
    machine: dict[str, Any] = copy.deepcopy(MACHINE)
    machine[part][key] = "other"
    with pytest.raises(ResultsError, match=message):
        Recorder.open(tmp_path, REGISTRY, RUN, BUILD, machine, resume=True)


def test_resume_allows_another_load_of_the_same_machine(tmp_path: Path) -> None:
    start(tmp_path)
    Recorder.open(tmp_path, REGISTRY, RUN, BUILD, {**MACHINE, "load": {"average_1m": 3.0}}, resume=True)


HOLDER = """
import sys
from pathlib import Path
from tests.harness.test_results import start
held = start(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_process_cannot_write_the_same_folder(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        before = (tmp_path / "results.json").read_bytes()
        for resume in (True, False):
            with pytest.raises(ResultsError, match="is being written by another run"):
                start(tmp_path, resume=resume)
        assert (tmp_path / "results.json").read_bytes() == before
        holder.kill()
    assert start(tmp_path, resume=True).path.exists()


def test_the_lock_goes_with_the_recorder(tmp_path: Path) -> None:
    recorder = start(tmp_path)
    with pytest.raises(ResultsError, match="is being written by another run"):
        start(tmp_path, resume=True)
    recorder.close()
    recorder.close()
    recorder = start(tmp_path, resume=True)
    del recorder
    with pytest.raises(ResultsError, match="commit was"):
        start(tmp_path, dataclasses.replace(RUN, commit="def"), resume=True)
    start(tmp_path, resume=True)


def test_nothing_half_written_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.json"
    write_atomically(path, "old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["results.json"]


def test_full_disk_is_told_with_the_file_and_what_was_measured_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = start(tmp_path)
    add(recorder, "7.traffic", traffic())

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(ResultsError, match=r"results\.json: cannot be written: No space left"):
            add(recorder, "6.hint", NotMeasurable("no RAM"))
    assert [record["id"] for record in harness.load(tmp_path).checks] == ["7.traffic"]


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsError, match=r"file.run: cannot be created: Not a directory"):
        start(tmp_path / "file" / "run")


def test_numbers_that_json_cannot_hold_are_refused(tmp_path: Path) -> None:
    recorder = start(tmp_path)
    with pytest.raises(EvidenceError, match="found nan"):
        add(recorder, "7.traffic", traffic(math.nan))
    odd = Counted("made up", {"a": 1}, Reduction("value", ("a",)), {"sigma": math.inf})
    with pytest.raises(ResultsError, match="cannot hold this"):
        add(recorder, "7.traffic", odd)
    assert harness.load(tmp_path).checks == []


@pytest.mark.parametrize(
    ("edit", "field"),
    [
        (lambda d: d.update(schema_version=2), r"\$\.schema_version: found 2, allowed: 1"),
        (lambda d: d.pop("machine"), r'"machine" is a required property'),
        (lambda d: d["run"].update(profile="fast"), r'\$\.run\.profile: "fast"'),
        (lambda d: d["checks"][0].update(verdict="PASSED"), r"\$\.checks\[0\]\.verdict: .PASSED."),
        (lambda d: d["checks"][0].update(value="7"), r"\$\.checks\[0\]\.value: .7."),
        (lambda d: d["checks"][0].pop("unit"), r"\$\.checks\[0\]: .unit. is a required property"),
        (
            lambda d: d["checks"][5]["cells"][0]["evidence"]["rounds"][3].update(seq="3"),
            r"\$\.checks\[5\]\.cells\[0\]\.evidence\.rounds\[3\]\.seq",
        ),
        (lambda d: d["registry"].update(text="[[claim"), r"\$\.registry\.text: claims\.toml: not valid TOML"),
        (
            lambda d: d["checks"][0].update(id="1.other"),
            r"\$\.checks\[0\]\.id: '1\.other' is not in claims\.toml",
        ),
    ],
)
def test_damage_is_named_by_field(edited: Callable[..., Path], edit: Callable[..., Any], field: str) -> None:
    with pytest.raises(ResultsError, match=field):
        harness.load(edited(edit))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"a": NaN}', "found the number NaN"),
        ('{"a": 1e999}', "found the number 1e999"),
        (f'{{"a": -{"9" * 400}}}', "found the number -9999"),
        (f'{{"a": {"9" * 5000}}}', "found the number 9999"),
        ("[]", "not of type"),
    ],
)
def test_files_that_are_not_results(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "results.json").write_text(text)
    with pytest.raises(ResultsError, match=f"results.json: .*{message}"):
        harness.load(tmp_path)
    with pytest.raises(ResultsError, match="results.json: "):
        check(tmp_path)


def test_missing_results_name_the_folder(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="no results.json in this folder"):
        harness.load(tmp_path)
    (tmp_path / "results.json").mkdir()
    with pytest.raises(ResultsError, match="cannot be read"):
        harness.load(tmp_path)


def test_frame_has_one_row_per_declared_check() -> None:
    frame = harness.load(SAMPLE_DIR).to_frame().set_index("id")
    assert list(frame.index) == [check.id for check in REGISTRY.checks]
    assert frame.loc["2.l1.simulated", "value"] == 7.68
    assert frame.loc["2.l1.simulated", "paper"] == 7.29
    assert frame.loc["7.overlap", "verdict"] == NOT_MEASURABLE
    assert frame.loc["6.hint", "void_rounds"] == 2
    hint = frame.loc["6.hint"].to_dict()
    assert hint["low"] < hint["value"] < hint["high"]


def test_rounds_frame_gives_the_figure_again() -> None:
    results = harness.load(SAMPLE_DIR)
    rounds = results.rounds_frame()
    hint = rounds[(rounds["check"] == "6.hint") & (rounds["void"] == "")]
    ns = hint.pivot(index="seq", columns="arm", values="ns")
    record = results.record("6.hint")
    assert record is not None
    logs = (ns["no hint"] / ns["hint"]).map(math.log)
    assert math.exp(logs.median()) == pytest.approx(record["value"])
    everything = rounds[rounds["check"] == "6.hint"]
    assert set(everything["void"]) == {"", "run_queue", "steal"}


def test_results_verdict_of_any_declared_check() -> None:
    results = harness.load(SAMPLE_DIR)
    assert results.verdict("7.path")[0] == REFUTED
    assert results.verdict("7.overlap") == (NOT_MEASURABLE, "not built yet")
    assert results.record("7.overlap") is None


def test_recorder_and_checker_agree_on_random_runs(tmp_path: Path) -> None:
    """The two implementations of the rules, over clean, noisy, drifting, disturbed and interrupted runs."""
    incidents: list[dict[int, object]] = [
        {},
        {1: "steal", 9: "bandwidth_probe", 10: ("run_queue", "new")},
        dict.fromkeys(range(0, 30, 2), "steal"),
        {seq: ("output", "new") for seq in range(5)},
        dict.fromkeys(range(60), ("output", "new")),
    ]
    seen = set()
    for number, (spoilt, noise, gain) in enumerate(
        (spoilt, noise, gain)
        for spoilt in incidents
        for noise, gain in ((0.003, 1.0), (0.003, 1.2), (0.03, 1.03))
    ):
        machine = FakeMachine(100 + number, spoilt, noise)
        arms = [machine.arm("old", 50e6), machine.arm("new", 50e6 / gain)]
        figure = Figure(Side("new", "speed"), Side("old", "speed"))
        run = run_pairs(arms, figure, machine.probes(), control_of="old", seed=number)
        folder = tmp_path / str(number)
        recorder = Recorder.open(
            folder,
            REGISTRY,
            dataclasses.replace(RUN, options={"only": "6.hint"}),
            BUILD,
            MACHINE,
            clock_ns=machine.clock_ns,
        )
        verdict, reason = add(recorder, "6.hint", run)
        again = check(folder)
        assert again["problems"] == [], reason
        row = next(row for claim in again["claims"] for row in claim["checks"] if row["id"] == "6.hint")
        assert row["verdict"] == verdict
        seen.add(verdict)
    assert seen == {SUPPORTED, REFUTED, INCONCLUSIVE}


def test_recorded_data_is_not_shared_with_the_caller(tmp_path: Path) -> None:
    machine = copy.deepcopy(MACHINE)
    recorder = Recorder.open(tmp_path, REGISTRY, RUN, BUILD, machine)
    machine["cpu"] = {}
    recorder.finish(MACHINE)
    assert json.loads(recorder.path.read_text())["machine"]["before"] == json.loads(json.dumps(MACHINE))
