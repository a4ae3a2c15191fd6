"""The second opinion on paired runs: it derives what the judge derives, and names each doubt."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest

from harness import check_rounds
from harness.check_rounds import TimedFinding, timed_finding
from harness.paired import Arm, run_pairs
from harness.rounds import Figure, Measure, Sample, Side, Timed
from harness.statistics import PositiveControl, sign_rank, summarise
from tests.harness.fake import FakeMachine

Data = dict[str, Any]
GUARD = 0.03
FIGURE = Figure(Side("new", "time"), Side("old", "time"))


def pairs(incidents: Mapping[int, object] | None = None, rounds: int = 12, drift: float = 0.0) -> Timed:
    machine = FakeMachine(1, incidents or {})
    arms = [machine.arm("old", 50e6), machine.arm("new", 40e6, drift=lambda number: 1 + drift * number)]
    return run_pairs(arms, FIGURE, machine.probes(), control_of="old", seed=1, rounds=rounds)


def first(timed: Timed, count: int) -> Timed:
    return dataclasses.replace(timed, rounds=timed.rounds[:count], interrupted=True)


def second(
    timed: Timed, positive: PositiveControl | None = None, cells: int = 1
) -> tuple[TimedFinding, list[str]]:
    """What the second opinion finds in a run and its summary, and what it reports."""
    stored = summarise(timed, 1 - 0.05 / cells, GUARD, positive).to_json()
    problems: list[str] = []
    control = None if positive is None else (positive.arm, positive.margin)
    found = timed_finding(copy.deepcopy(timed.to_json()), stored, GUARD, cells, problems.append, control)
    return found, problems


# --- figures ---


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 6, 12])
def test_any_number_of_rounds_is_summarised_as_the_judge_does(count: int) -> None:
    timed = first(pairs(), count)
    found, problems = second(timed)
    assert problems == []
    summary = summarise(timed, 0.95, GUARD)
    assert (found.value is None) is (count == 0)
    assert (found.low, found.high) == (
        (None, None) if summary.low is None else pytest.approx((summary.low, summary.high))
    )


@pytest.mark.parametrize("measure", ["time", "speed", "bandwidth", "computing", "reading"])
def test_every_measure_is_that_of_the_judge(measure: Measure) -> None:
    """Of arms whose work differs, so that it counts."""
    machine = FakeMachine(1)

    def arm(name: str, work: float) -> Arm:
        def run() -> Sample:
            ns = round(1e6 * work * (1 + machine.rng.uniform(0, 0.01)))
            machine.now_ns += ns
            counters = {"io_wait_ns": ns // 3, "read_ns": ns // 2}
            return Sample(ns, round(1000 * work), "d", work, 0, None, counters)

        return Arm(name, run, "d")

    figure = Figure(Side("new", measure), Side("old", measure))
    arms = [arm("old", 8.0), arm("new", 6.0)]
    timed = run_pairs(arms, figure, machine.probes(), control_of="old", seed=1, rounds=12)
    found, problems = second(timed)
    assert (found.doubts, problems) == ((), [])
    assert found.value == pytest.approx(summarise(timed, 0.95, GUARD).value)
    assert found.value == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize("cells", [1, 2, 7, 28])
def test_ranks_of_the_interval_are_those_of_the_judge(cells: int) -> None:
    for n in range(120):
        logs = [float(value) for value in range(n)]
        rank = sign_rank(n, 1 - 0.05 / cells)
        found = check_rounds._interval(logs, Fraction(1, 20 * cells))
        if rank == 0:
            assert found is None
        else:
            assert found == pytest.approx([math.exp(rank - 1), math.exp(n - rank)])


# --- what is reported ---


def test_a_missing_summary_is_reported() -> None:
    problems: list[str] = []
    timed_finding(pairs().to_json(), None, GUARD, 1, problems.append)
    assert problems == ["no summary of the rounds"]


def test_a_missing_sample_ends_it_with_its_faults() -> None:
    evidence = copy.deepcopy(pairs().to_json())
    del evidence["rounds"][0]["samples"]["new"]
    problems: list[str] = []
    found = timed_finding(evidence, None, GUARD, 1, problems.append)
    assert problems == ["round 0: order or samples do not hold every arm once"]
    assert found == TimedFinding(None, None, None, tuple(problems))


def test_a_figure_that_cannot_be_computed_is_one_doubt() -> None:
    evidence = copy.deepcopy(pairs().to_json())
    evidence["figure"]["subject"]["measure"] = "reading"
    problems: list[str] = []
    found = timed_finding(evidence, None, GUARD, 1, problems.append)
    assert problems == ["the figure cannot be computed: KeyError('read_ns')"]
    assert found == TimedFinding(None, None, None, ("no figure",))


# --- doubts ---


def test_a_quiet_run_has_no_doubts() -> None:
    assert second(pairs())[0].doubts == ()


def test_few_rounds_of_an_interrupted_run() -> None:
    assert second(first(pairs(), 11))[0].doubts == ("interrupted", "too few valid rounds")


def test_few_rounds_that_allow_no_interval() -> None:
    assert second(pairs(), cells=1000)[0].doubts == ("too few valid rounds", "the A/A control fails")


@pytest.mark.parametrize(("void", "doubted"), [(12, False), (13, True)])
def test_a_third_of_the_rounds_may_be_void(void: int, doubted: bool) -> None:
    timed = first(pairs(dict.fromkeys(range(void), "steal"), rounds=24), 36)
    expected = ("interrupted", *(["more than a third of the rounds void"] if doubted else []))
    assert second(timed)[0].doubts == expected


@pytest.mark.parametrize(("void", "rounds"), [(6, 24), (12, 36)])
def test_voids_that_fall_on_one_arm(void: int, rounds: int) -> None:
    """An arm that no other repeats is blamed by itself, however many there are."""
    timed = pairs(dict.fromkeys(range(0, 2 * void, 2), ("run_queue", "new")), rounds=rounds)
    assert second(timed)[0].doubts == ("voids fall on new",)


@pytest.mark.parametrize(("on_new", "doubts"), [(5, ()), (6, ("voids fall on new",))])
def test_one_arm_may_have_what_chance_gives_in_one_of_a_hundred(on_new: int, doubts: tuple[str]) -> None:
    """P(Bin(9, 1/4) >= 6) is 0.00999; a limit of 1 in 101 would let it pass."""
    incidents = {number: ("run_queue", "new" if number < on_new else "other") for number in range(9)}
    machine = FakeMachine(1, incidents)
    arms = [machine.arm(name, 50e6) for name in ("old", "new", "other")]
    timed = run_pairs(arms, FIGURE, machine.probes(), control_of="old", seed=1, rounds=36)
    assert second(timed)[0].doubts == doubts


def test_voids_that_fall_on_an_arm_and_its_twin() -> None:
    """On each of both too few to be told from chance: 9 of 9 voids have a chance of 2/4 each."""
    machine = FakeMachine(
        1, {number: ("run_queue", ["old", "old (A/A)"][number % 2]) for number in range(0, 9)}
    )
    arms = [machine.arm(name, 50e6) for name in ("old", "new", "other")]
    timed = run_pairs(arms, FIGURE, machine.probes(), control_of="old", seed=1, rounds=36)
    assert second(timed)[0].doubts == ("voids fall on old and its twin",)


def test_an_unequal_twin() -> None:
    timed = pairs(rounds=24)
    rounds = []
    for one in timed.rounds:
        placed = one.samples["old (A/A)"]
        slower = dataclasses.replace(placed.sample, ns=round(placed.sample.ns * 0.9))
        rounds.append(
            dataclasses.replace(
                one, samples={**one.samples, "old (A/A)": dataclasses.replace(placed, sample=slower)}
            )
        )
    found = second(dataclasses.replace(timed, rounds=tuple(rounds)))
    assert found[0].doubts == ("the A/A control fails",)


def test_halves_that_disagree() -> None:
    assert second(pairs(rounds=24, drift=0.01))[0].doubts == ("the halves disagree",)


def test_a_positive_control_that_does_not_gain() -> None:
    assert second(pairs(), PositiveControl("new", 0.1))[0].doubts == ()
    assert second(pairs(), PositiveControl("new", 0.5))[0].doubts == ("new does not gain",)
