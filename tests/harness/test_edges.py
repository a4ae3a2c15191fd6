"""Ends of limits, and words of reasons: each could be changed once without a test that noticed."""

from __future__ import annotations

import dataclasses
import math
import re

import pytest

from harness.errors import EvidenceError
from harness.evidence import Counted, Derived
from harness.kinds import INCONCLUSIVE, NOT_MEASURABLE
from harness.paired import CLOCK_SLACK_NS, Arm, run_pairs
from harness.reductions import Reduction
from harness.registry import Check, load_registry
from harness.rounds import Figure, Sample, Side, Timed
from harness.shift import shift_rank
from harness.statistics import PositiveControl, summarise
from harness.verdict import NotMeasurable, judge_check, judge_claim
from tests.harness.fake import FakeMachine
from tests.harness.make_sample import SAMPLE_DIR

REGISTRY = load_registry(SAMPLE_DIR / "claims.toml")
FIGURE = Figure(Side("new", "time"), Side("old", "time"))


def pairs(machine: FakeMachine, rounds: int = 12, **options: object) -> Timed:
    arms = [machine.arm("old", 50e6), machine.arm("new", 40e6)]
    return run_pairs(arms, FIGURE, machine.probes(), control_of="old", seed=1, rounds=rounds, **options)  # type: ignore[arg-type]


def first(timed: Timed, count: int) -> Timed:
    return dataclasses.replace(timed, rounds=timed.rounds[:count])


# --- how many rounds ---


def test_at_most_half_as_many_rounds_again_are_run() -> None:
    assert len(pairs(FakeMachine(1, dict.fromkeys(range(99), "steal")), rounds=36).rounds) == 54


@pytest.mark.parametrize(("void", "last"), [(0, (12, 12)), (1, (18, 18)), (99, (18, 18))])
def test_the_last_progress_says_that_no_round_follows(void: int, last: tuple[int, int]) -> None:
    told: list[tuple[int, int]] = []
    machine = FakeMachine(1, dict.fromkeys(range(void), "steal"))
    pairs(machine, progress=lambda timed, planned: told.append((len(timed.rounds), planned)))
    assert told[-1] == last
    assert [planned for done, planned in told if done < 12] == [12] * 12


# --- clocks ---


def clocked(ns: int, wall_ns: int) -> Timed:
    machine = FakeMachine(1)

    def once() -> Sample:
        machine.now_ns += wall_ns
        return Sample(ns, 1, "d", 1.0, 0, None, {})

    figure = Figure(Side("a", "time"), None)
    return run_pairs([Arm("a", once, "d")], figure, machine.probes(), control_of="a", seed=1, rounds=2)


def test_an_arm_may_have_worked_as_long_as_the_clocks_resolve() -> None:
    longest = 1_010_000 + CLOCK_SLACK_NS
    assert len(clocked(longest, 1_000_000).rounds) == 2
    with pytest.raises(EvidenceError, match=f"measured {longest + 1} ns inside 1000000 ns"):
        clocked(longest + 1, 1_000_000)


def test_a_clock_that_stands_still_still_takes_a_nanosecond() -> None:
    walls = {placed.wall_ns for one in clocked(5, 0).rounds for placed in one.samples.values()}
    assert walls == {1}


# --- what must hold ---


def test_one_end_of_the_control_outside_is_enough() -> None:
    """The interval of the control reaches over one end of the guard alone."""
    timed = pairs(FakeMachine(1), rounds=24)
    twin = "old (A/A)"

    def spread(factor: float) -> Timed:
        rounds = []
        for one in timed.rounds:
            placed = one.samples[twin]
            ns = round(placed.sample.ns * (factor if one.seq % 2 else 1.0))
            new = dataclasses.replace(placed, sample=dataclasses.replace(placed.sample, ns=ns))
            rounds.append(dataclasses.replace(one, samples={**one.samples, twin: new}))
        return dataclasses.replace(timed, rounds=tuple(rounds))

    for factor in (1.2, 1 / 1.2):
        a_a = summarise(spread(factor), 0.95, 0.03).a_a
        assert a_a is not None
        inside = [1 / 1.03 <= end <= 1.03 for end in a_a]
        assert sorted(inside) == [False, True]
        reasons = summarise(spread(factor), 0.95, 0.03).reasons
        assert f"A/A interval [{a_a[0]:.4f}, {a_a[1]:.4f}], allowed [0.9709, 1.0300]" in reasons


@pytest.mark.parametrize(("count", "halves"), [(0, False), (1, False), (2, True), (3, True)])
def test_two_rounds_have_halves(count: int, halves: bool) -> None:
    summary = summarise(first(pairs(FakeMachine(1)), count), 0.95, 0.03)
    assert (summary.halves is not None) is halves
    stored = summary.to_json()
    assert (stored["halves"] is not None) is halves
    assert stored["a_a"] is None


def test_reasons_name_every_cause() -> None:
    machine = FakeMachine(1, {**dict.fromkeys(range(8), "steal"), 9: "bandwidth_probe"})
    reasons = summarise(pairs(machine, rounds=24), 0.95, 0.03).reasons
    assert not any("more than a third" in reason for reason in reasons)  # 9 of 36
    many = FakeMachine(1, {**dict.fromkeys(range(14), "steal"), 15: "bandwidth_probe"})
    reasons = summarise(pairs(many, rounds=24), 0.95, 0.03).reasons
    assert "15 of 36 rounds void, more than a third (bandwidth_probe 1, steal 14)" in reasons


def test_a_positive_control_says_what_it_gained() -> None:
    timed = pairs(FakeMachine(1), rounds=24)
    [reason] = summarise(timed, 0.95, 0.03, PositiveControl("new", 0.5)).reasons
    found = re.fullmatch(
        r"the positive control new gains \[(1\.\d+), (1\.\d+)\], needed above 1\.5: "
        r"a benefit could not have been seen",
        reason,
    )
    assert found is not None and float(found[1]) < 1.25 < float(found[2])
    few = summarise(first(timed, 3), 0.95, 0.03, PositiveControl("new", 0.5)).reasons
    assert any(reason.startswith("the positive control new gains no interval, needed") for reason in few)


@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 2), (3, 5)])
def test_ranks_at_no_confidence_at_all(n: int, k: int) -> None:
    """The largest rank that there is: 2 P(U <= k - 1) <= 1, half of all arrangements."""
    assert shift_rank(n, n, 0.0) == k


# --- verdicts and their words ---


def recorded(check: Check) -> Check:
    """The same check without a target."""
    return dataclasses.replace(
        check, target=None, cells=tuple(dataclasses.replace(cell, target=None) for cell in check.cells)
    )


def test_what_is_only_recorded_keeps_its_figure() -> None:
    check = recorded(REGISTRY.check("7.traffic"))
    result = judge_check(check, {"": Counted("made up", {"a": 2.5}, Reduction("value", ("a",)))})
    assert (result.verdict, result.reason) == (None, "recorded, no target")
    assert (result.cells[0].value, result.cells[0].low) == (2.5, None)
    result = judge_check(check, {"": NotMeasurable("no such thing")})
    assert (result.verdict, result.cells[0].verdict, result.reason) == (None, None, "no such thing")


def test_what_is_recorded_over_repetitions_keeps_its_interval() -> None:
    check = dataclasses.replace(recorded(REGISTRY.check("7.traffic")), kinds=("derived",))
    seen = {"logs": [0.0, 0.1, 0.2], "runs": ["a-0", "a-1", "a-2"], "diverged": []}
    evidence = Derived("made up", seen, Reduction("exp_mean", ("logs",)), note="all are there")
    result = judge_check(check, {"": evidence})
    assert result.reason == "recorded, no target (all are there)"
    cell = result.cells[0]
    assert cell.value == pytest.approx(math.exp(0.1))
    assert cell.low is not None and cell.high is not None and cell.low < cell.value < cell.high
    judged = dataclasses.replace(
        check, cells=(dataclasses.replace(check.cells[0], target=(0.0, 9.0), repetitions=3),)
    )
    result = judge_check(judged, {"": evidence})
    assert result.reason == "interval inside the target (all are there)"
    assert (result.cells[0].low, result.cells[0].high) == (cell.low, cell.high)


def test_words_of_an_interval_that_reaches_over() -> None:
    check = dataclasses.replace(REGISTRY.check("6.hint"), margin=None)
    cell = dataclasses.replace(check.cells[0], target=(0.8, 9.0))
    timed = pairs(FakeMachine(1), rounds=24)
    result = judge_check(dataclasses.replace(check, cells=(cell,)), {"": timed})
    assert (result.verdict, result.reason) == (INCONCLUSIVE, "interval reaches over an end of the target")
    doubtful = dataclasses.replace(first(timed, 11), interrupted=True)
    result = judge_check(recorded(check), {"": doubtful})
    assert result.reason == "recorded, no target; the run was interrupted; 11 valid rounds, fewer than 12"


def test_names_are_listed_with_commas() -> None:
    law = REGISTRY.check("7.law")
    labels = [cell.label for cell in law.cells]
    right = Derived("law", {"a": 2.0}, Reduction("value", ("a",)))
    found = judge_check(law, {labels[0]: right, labels[1]: NotMeasurable("x"), labels[2]: NotMeasurable("x")})
    assert found.reason.endswith(f"; not measured: {labels[1]}, {labels[2]}")
    claim, check = REGISTRY.claim("7"), REGISTRY.check("7.law")
    named = {"a": (check, "SUPPORTED", "fine"), **{k: (check, NOT_MEASURABLE, "no") for k in ("b", "c")}}
    assert judge_claim(claim, named)[1] == "a: fine; not measured: b, c"  # type: ignore[arg-type]
    two = dataclasses.replace(law, kinds=("counted", "kernel"))
    with pytest.raises(EvidenceError, match="kinds that count are counted, kernel$"):
        judge_check(two, {label: right for label in labels})
    machine = FakeMachine(1)
    with pytest.raises(EvidenceError, match="no arm 'gone'; there are new, old$"):
        run_pairs(
            [machine.arm("new", 1e6), machine.arm("old", 1e6)],
            FIGURE,
            machine.probes(),
            control_of="gone",
            seed=1,
        )
