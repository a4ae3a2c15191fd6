"""Every check of claims.toml has something that turns it, and what is not a build of the engine does so here:
from the observation through reduction, verdict and record to the second opinion, without a clock.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

from claims.run import REGISTRY_PATH
from harness.check import check
from harness.evidence import Counted, Derived, Evidence, Hardware, Kernel, Simulated
from harness.kinds import REFUTED, SUPPORTED, Target
from harness.paired import run_pairs
from harness.reductions import Reduction
from harness.registry import Check, load_registry
from harness.results import Recorder, RunInfo
from harness.rounds import Figure, Side, Timed
from harness.statistics import DEFAULT_ROUNDS
from harness.verdict import NotMeasurable
from tests.claims.mutants import ARM, MUTANTS, OBSERVATION, SERIES, turned_by
from tests.harness.fake import FakeMachine
from tests.harness.make_sample import MACHINE

REGISTRY = load_registry(REGISTRY_PATH)
FACTOR: Final = 1.2
"""By which an arm is slower or faster than the end of a target allows."""
Found = Mapping[str, tuple[str | None, float]]
EXACT: Final = {"counted": Counted, "kernel": Kernel, "derived": Derived}


def test_every_check_has_something_that_turns_it() -> None:
    declared = {one.id for one in REGISTRY.checks}
    assert {name for name in declared if not turned_by(name)} == set()
    listed = {name for turned, _ in MUTANTS.values() for name in turned} | {*SERIES, *ARM, *OBSERVATION}
    assert listed - declared == set()


def test_each_is_turned_as_its_kind_is() -> None:
    assert all(REGISTRY.check(name).kinds == ("timed",) for name in ARM)
    assert all("timed" not in REGISTRY.check(name).kinds for name in OBSERVATION)
    assert len({*SERIES, *ARM, *OBSERVATION}) == len(SERIES) + len(ARM) + len(OBSERVATION)


def values(target: Target | None) -> tuple[float, float]:
    """A figure that the target allows, and one that lies outside by a known amount."""
    low, high = target or (1.0, 1.0)
    if target is None or low == high:
        return low, FACTOR * low if low else 1.0
    if math.isinf(high):
        return FACTOR * low, low / FACTOR
    return (high / FACTOR if math.isinf(low) else (low + high) / 2), FACTOR * high


def timed(machine: FakeMachine, declared: Check, label: str, value: float) -> Timed:
    """Arms of which the first takes `value` times as long as the second."""
    arms = [machine.arm("this", 50e6 * value), machine.arm("that", 50e6)]
    if declared.positive_control is not None:
        arms.append(machine.arm(declared.positive_control, 30e6))
    figure = Figure(Side("this", "time"), Side("that", "time"))
    wanted = declared.rounds("full", label) or DEFAULT_ROUNDS
    return run_pairs(arms, figure, machine.probes(), control_of="that", seed=machine.seed, rounds=wanted)


def exact(declared: Check, value: float) -> Evidence:
    seen, reduction = {"found": 1000 * value, "of": 1000}, Reduction("ratio", ("found", "of"))
    if declared.kinds[0] == "simulated":
        return Simulated("made up", seen, reduction, geometry="made up")
    if declared.kinds[0] == "hardware":
        return Hardware("made up", seen, reduction, events=("made_up",))
    return EXACT[declared.kinds[0]]("made up", seen, reduction)


def found_by(folder: Path, claim: str, turned: bool) -> Found:
    """Verdict and value that the second opinion derives for checks of a claim: of each the first cell with
    a target is measured, or turned.
    """
    machine = FakeMachine(1)
    recorder = Recorder.open(
        folder,
        REGISTRY,
        RunInfo("full", {"only": [claim]}, None, None, "pytest"),
        {"mutant": "none"},
        MACHINE,
        clock_ns=machine.clock_ns,
    )
    for declared in REGISTRY.checks_of(claim):
        if declared.id not in (*ARM, *OBSERVATION):
            continue
        cell = next((one for one in declared.cells if one.target is not None), declared.cells[0])
        value = values(cell.target)[turned]
        started_ns = machine.now_ns
        machine.now_ns += 1
        measured = declared.id in ARM
        evidence = timed(machine, declared, cell.label, value) if measured else exact(declared, value)
        found: Mapping[str, Evidence | NotMeasurable] = {
            one.label: evidence if one is cell else NotMeasurable("not here") for one in declared.cells
        }
        recorder.add(declared.id, found, started_ns=started_ns, command="pytest")
    recorder.close()
    second = check(folder)
    allowed = "recorded, but not part of profile full"
    assert [item for item in second["problems"] if item["problem"] != allowed] == []
    return {row["id"]: (row["verdict"], row["value"]) for one in second["claims"] for row in one["checks"]}


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, bool], Found]:
    @functools.cache
    def of(claim: str, turned: bool) -> Found:
        return found_by(tmp_path_factory.mktemp("turned") / "run", claim, turned)

    return of


@pytest.mark.parametrize("name", (*ARM, *OBSERVATION))
def test_the_verdict_turns(verdicts: Callable[[str, bool], Found], name: str) -> None:
    declared = REGISTRY.check(name)
    right, wrong = (verdicts(declared.claim, turned)[name] for turned in (False, True))
    target = next((one.target for one in declared.cells if one.target is not None), None)
    if target is None:
        # Recorded only: there is no verdict to turn, the figure moves by what was done to it.
        assert (right[0], wrong[0]) == (None, None)
        assert wrong[1] / right[1] == pytest.approx(FACTOR, rel=0.01)
    else:
        assert (right[0], wrong[0]) == (SUPPORTED, REFUTED)
