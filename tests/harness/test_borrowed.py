"""Figures of models, and figures that look at rounds which are stored with another cell."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import harness
from harness.check import check
from harness.errors import EvidenceError, ResultsError
from harness.paired import Arm, run_pairs
from harness.registry import Registry, parse_registry
from harness.results import Recorder, RunInfo
from harness.rounds import Figure, Paths, RoundsOf, Sample, Side, Timed
from harness.statistics import figures
from reports.rounds import figure_of
from tests.harness.fake import FakeMachine
from tests.harness.make_sample import MACHINE, SAMPLE_DIR

Data = dict[str, Any]
COMPUTE, READ = Side("staged", "computing"), Side("read", "time")
SERIAL = Paths(COMPUTE, READ, ((1.0, 1.0),))
BESIDE = Paths(COMPUTE, READ, ((1.0, 0.0), (0.0, 1.0)))
PIPELINE = Paths(COMPUTE, READ, ((1.0, 0.0625), (0.0625, 1.0)))
FIGURES = {
    "over serial": Figure(Side("sync", "time"), SERIAL),
    "over pipeline": Figure(Side("staged", "time"), PIPELINE),
    "quotient": Figure(Side("sync", "time"), Side("staged", "time"), expected=(SERIAL, BESIDE)),
    "read over computing": Figure(Side("staged", "reading"), Side("staged", "computing")),
}
CHECKS = "".join(
    f"""
[[check]]
id = "9.{name.replace(" ", "_")}"
claim = "7"
statement = "made up"
metric = "{name}"
unit = "ratio"
target = [0.9, 1.1]
kinds = ["timed"]
budget_s = {{ quick = 1 }}
"""
    for name in FIGURES
)
CHECKS += """
[[check]]
id = "9.both"
claim = "7"
statement = "made up"
metric = "both"
unit = "ratio"
target = [0.9, 1.1]
kinds = ["timed"]
budget_s = { quick = 1 }
cells = [{ label = "sync" }, { label = "staged" }]
"""
REGISTRY: Registry = parse_registry((SAMPLE_DIR / "claims.toml").read_text() + CHECKS)


def staged_run(machine: FakeMachine) -> Timed:
    """60 ms of computing and 40 ms of reading in 16 steps: sync 100 ms, staged 62.5 ms."""

    def arm(name: str, ns: float, wait: float, asked: int = 4096) -> Arm:
        inner = machine.arm(name, ns)

        def run() -> Sample:
            sample = inner.run()
            counters = {"io_wait_ns": round(wait * sample.ns), "read_ns": round(40e6)}
            device = {"asked_bytes": asked, "device_bytes": asked}
            return dataclasses.replace(sample, work=1.0, counters={**sample.counters, **counters, **device})

        return dataclasses.replace(inner, run=run)

    arms = [arm("sync", 100e6, 0.4), arm("staged", 62.5e6, 0.04), arm("read", 40e6, 1.0)]
    return run_pairs(
        arms, FIGURES["over pipeline"], machine.probes(), control_of="staged", seed=1, inputs={"steps": 16}
    )


def recorded(folder: Path) -> Path:
    """A run whose first check holds the rounds that all the others look at."""
    machine = FakeMachine(7)
    recorder = Recorder.open(
        folder,
        REGISTRY,
        RunInfo("quick", {"only": ["9"]}, None, None, "pytest"),
        {"compiler": "gcc"},
        MACHINE,
        clock_ns=machine.clock_ns,
    )
    run, owner = staged_run(machine), None
    for name, figure in FIGURES.items():
        check_id = f"9.{name.replace(' ', '_')}"
        one = dataclasses.replace(run, figure=figure, rounds_of=owner)
        started_ns = 0 if owner is None else machine.clock_ns()
        recorder.add(check_id, one, started_ns=started_ns, command="pytest", limits=())
        owner = owner or RoundsOf(check_id, "")
    recorder.close()
    return folder


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("borrowed") / "run")


@pytest.fixture
def edited(sample: Path, tmp_path: Path) -> Callable[[Callable[[Data], None]], Path]:
    def edit(change: Callable[[Data], None]) -> Path:
        data = json.loads((sample / "results.json").read_text())
        change(data)
        (tmp_path / "results.json").write_text(json.dumps(data))
        return tmp_path

    return edit


def lender(data: Data) -> Data:
    return next(cell for one in data["checks"] for cell in one["cells"] if "rounds" in cell["evidence"])


def borrower(data: Data) -> Data:
    found: Data = record(data, "9.quotient")["cells"][0]["evidence"]
    return found


def record(data: Data, check_id: str) -> Data:
    return next(one for one in data["checks"] if one["id"] == check_id)


def test_rounds_are_stored_once_and_read_with_every_figure(sample: Path) -> None:
    stored = json.loads((sample / "results.json").read_text())
    assert ["rounds" in one["cells"][0]["evidence"] for one in stored["checks"]] == [True] + [False] * 3
    results = harness.load(sample)
    rounds = lender(dict(results.data))["evidence"]["rounds"]
    assert all(one["cells"][0]["evidence"]["rounds"] is rounds for one in results.checks)
    assert len(results.rounds_frame()) == 4 * len(rounds)


def test_the_second_opinion_and_the_report_find_the_same_figures(sample: Path) -> None:
    found = check(sample)
    assert found["problems"] == []
    rows = {row["id"]: row for claim in found["claims"] for row in claim["checks"]}
    expected = (1.0, 62.5 / 62.5, 1.6 / (100 / 60), 40 / 60)
    for (name, figure), value in zip(FIGURES.items(), expected, strict=True):
        row = rows[f"9.{name.replace(' ', '_')}"]
        assert row["value"] == pytest.approx(value, rel=0.02)
        assert row["verdict"] == ("REFUTED" if name == "read over computing" else "SUPPORTED")
        evidence = record(dict(harness.load(sample).data), row["id"])["cells"][0]["evidence"]
        shown = [figure_of(one, evidence) for one in evidence["rounds"] if not one["void"]]
        run = dataclasses.replace(staged_run(FakeMachine(7)), figure=figure)
        assert shown == pytest.approx(figures(run))


def test_a_device_that_delivers_other_bytes_voids_the_round(
    edited: Callable[[Callable[[Data], None]], Path],
) -> None:
    def change(data: Data) -> None:
        lender(data)["evidence"]["rounds"][2]["samples"]["staged"]["counters"]["device_bytes"] = 8192

    found = [item["problem"] for item in check(edited(change))["problems"]]
    assert any("round 2: void is []" in text and "device_bytes" in text for text in found)


def test_terms_that_were_edited(edited: Callable[[Callable[[Data], None]], Path]) -> None:
    def change(data: Data) -> None:
        borrower(data)["figure"]["expected"]["above"]["terms"] = [[1.0, 0.5]]

    found = check(edited(change))
    assert any(item["check"] == "9.quotient" and "value is" in item["problem"] for item in found["problems"])


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            lambda data: borrower(data)["rounds_of"].update(cell="other"),
            "cell '': the rounds of 9.over_serial, cell 'other' are not in this file",
        ),
        (
            lambda data: borrower(data)["rounds_of"].update(check="9.gone"),
            "cell '': the rounds of 9.gone, cell '' are not in this file",
        ),
        (lambda data: borrower(data)["rounds_of"].update(check="9.over_pipeline"), "are not in this file"),
        (lambda data: record(data, "9.over_serial").update(seq=9), "were recorded after it"),
        (lambda data: borrower(data)["inputs"].update(steps=12), "were measured with other inputs"),
    ],
)
def test_rounds_that_are_nowhere_decide_nothing(
    edited: Callable[[Callable[[Data], None]], Path], change: Callable[[Data], None], text: str
) -> None:
    found = check(edited(change))
    assert any(item["check"] == "9.quotient" and text in item["problem"] for item in found["problems"])
    rows = {row["id"]: row for claim in found["claims"] for row in claim["checks"]}
    assert (rows["9.quotient"]["verdict"], rows["9.quotient"]["value"]) == ("INCONCLUSIVE", None)


def test_a_file_without_the_rounds_is_not_read(edited: Callable[[Callable[[Data], None]], Path]) -> None:
    with pytest.raises(ResultsError, match=r"9.quotient, cell '': rounds_of: no rounds of 9.gone"):
        harness.load(edited(lambda data: borrower(data)["rounds_of"].update(check="9.gone")))


def test_other_rounds_are_not_recorded_as_borrowed(tmp_path: Path) -> None:
    machine = FakeMachine(3)
    recorder = Recorder.open(
        tmp_path, REGISTRY, RunInfo("quick", {}, None, None, "pytest"), {}, MACHINE, clock_ns=machine.clock_ns
    )
    first, second = staged_run(machine), staged_run(machine)
    recorder.add("9.over_serial", first, started_ns=0, command="pytest")
    for run, name in ((second, "9.over_serial"), (first, "9.over_pipeline")):
        borrowed = dataclasses.replace(run, rounds_of=RoundsOf(name, ""))
        with pytest.raises(EvidenceError, match=f"9.quotient, cell '': its rounds are not those of {name}"):
            recorder.add("9.quotient", borrowed, started_ns=0, command="pytest")


def test_two_cells_of_a_check_may_share_rounds(tmp_path: Path) -> None:
    machine = FakeMachine(5)
    recorder = Recorder.open(
        tmp_path, REGISTRY, RunInfo("quick", {}, None, None, "pytest"), {}, MACHINE, clock_ns=machine.clock_ns
    )
    run = staged_run(machine)
    both = {
        "sync": dataclasses.replace(run, figure=FIGURES["over serial"]),
        "staged": dataclasses.replace(run, rounds_of=RoundsOf("9.both", "sync")),
    }
    with pytest.raises(EvidenceError, match="its rounds are not those of 9.both, cell 'sync'"):
        other = dataclasses.replace(both["sync"], rounds=run.rounds[:-1])
        recorder.add("9.both", {**both, "sync": other}, started_ns=0, command="pytest")
    recorder.add("9.both", both, started_ns=0, command="pytest")
    assert check(tmp_path)["problems"] == []
    first, second = record(dict(harness.load(tmp_path).data), "9.both")["cells"]
    assert second["evidence"]["rounds"] is first["evidence"]["rounds"]
    assert (first["verdict"], second["verdict"]) == ("SUPPORTED", "SUPPORTED")


def test_a_model_takes_its_longest_path() -> None:
    run = staged_run(FakeMachine(1))
    samples = run.rounds[0].samples
    compute, read = COMPUTE.of(samples["staged"].sample), READ.of(samples["read"].sample)
    assert SERIAL.of(samples) == pytest.approx(compute + read)
    assert BESIDE.of(samples) == pytest.approx(max(compute, read))
    assert FIGURES["quotient"].arms == ("sync", "staged", "read")
    with pytest.raises(EvidenceError, match="no arm 'gone'"):
        run_pairs(
            [FakeMachine(1).arm("sync", 1e6)],
            Figure(
                Side("sync", "time"), Paths(Side("gone", "computing"), Side("sync", "time"), ((1.0, 1.0),))
            ),
            FakeMachine(1).probes(),
            control_of="sync",
            seed=1,
        )
