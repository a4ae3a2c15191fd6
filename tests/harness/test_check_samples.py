"""The second opinion on raw material: what it names of arms, rounds and samples, at its limits."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from harness.check_samples import missing_numbers, raw_faults, void_rules
from harness.paired import run_pairs
from harness.rounds import Figure, Side
from tests.harness.fake import FakeMachine

Data = dict[str, Any]
FIGURE = Figure(Side("new", "time"), Side("old", "time"))


@pytest.fixture
def evidence() -> Data:
    """Two arms that do different work, and a twin: two balanced blocks of six rounds."""
    machine = FakeMachine(1)
    arms = [machine.arm("old", 50e6, work=8.0), machine.arm("new", 40e6, bytes_=200_000_000, work=6.0)]
    timed = run_pairs(arms, FIGURE, machine.probes(), control_of="old", seed=1, rounds=12)
    return copy.deepcopy(timed.to_json())


def place(evidence: Data, number: int, position: int) -> tuple[str, Data]:
    """Arm and sample at a position of the order of a round."""
    one = evidence["rounds"][number]
    name = one["order"][position]
    return name, one["samples"][name]


def test_an_honest_run_has_no_faults(evidence: Data) -> None:
    assert raw_faults(evidence) == []


@pytest.mark.parametrize("count", range(1, 12))
def test_an_interrupted_run_may_end_anywhere(evidence: Data, count: int) -> None:
    cut = {**evidence, "rounds": evidence["rounds"][:count], "interrupted": True}
    assert raw_faults(cut) == []


def test_missing_numbers_are_named_up_to_ten() -> None:
    assert missing_numbers([]) == []
    assert missing_numbers([0, 2]) == [1]
    assert missing_numbers([13, 1]) == [0, *range(2, 11)]


def test_every_control_that_is_none_is_named(evidence: Data) -> None:
    for arm in evidence["arms"]:
        arm["control_of"] = "gone"
    faults = raw_faults(evidence)
    for name in ("old", "new", "old (A/A)"):
        assert f"arm {name}: control_of is 'gone', allowed: another arm" in faults


def test_the_last_block_is_balanced_too(evidence: Data) -> None:
    order = evidence["rounds"][11]["order"]
    order[:] = [*order[1:], order[0]]
    assert "rounds 6 to 11 are not in balanced order" in raw_faults(evidence)


def test_a_sample_that_is_missing_hides_no_other(evidence: Data) -> None:
    missing, _ = place(evidence, 0, 0)
    name, later = place(evidence, 0, 1)
    del evidence["rounds"][0]["samples"][missing]
    later["bytes"] += 1
    named = f"round 0, arm {name}: bytes is {later['bytes']}, its counters add up to {later['bytes'] - 1}"
    assert named in raw_faults(evidence)


def test_a_sample_may_end_with_its_round_and_not_later(evidence: Data) -> None:
    name, last = place(evidence, 0, 2)
    one = evidence["rounds"][0]
    one["end_ns"] = last["start_ns"] + last["wall_ns"]
    assert raw_faults(evidence) == []
    one["end_ns"] -= 1
    assert raw_faults(evidence) == [f"round 0, arm {name}: ran outside its place in the order"]


def test_a_sample_may_start_when_the_one_before_ends_and_not_sooner(evidence: Data) -> None:
    _, before = place(evidence, 0, 0)
    name, after = place(evidence, 0, 1)
    after["start_ns"] = before["start_ns"] + before["wall_ns"]
    assert raw_faults(evidence) == []
    after["start_ns"] -= 1
    assert raw_faults(evidence) == [f"round 0, arm {name}: ran outside its place in the order"]


def test_the_two_clocks_may_differ_by_a_hundredth_and_ten_microseconds(evidence: Data) -> None:
    name, sample = place(evidence, 0, 2)
    sample["wall_ns"], sample["ns"] = 1_000_000, 1_020_000
    assert raw_faults(evidence) == []
    sample["ns"] += 1
    assert raw_faults(evidence) == [
        f"round 0, arm {name}: 1020001 ns measured inside 1000000 ns of wall time"
    ]


def test_work_that_changes_is_named(evidence: Data) -> None:
    evidence["rounds"][5]["samples"]["new"]["work"] = 7.0
    assert raw_faults(evidence) == ["round 5, arm new: work is 7.0, but 6.0 in round 0"]


def test_a_twin_does_the_work_of_its_arm(evidence: Data) -> None:
    for one in evidence["rounds"]:
        one["samples"]["old (A/A)"]["work"] = 9.0
    named = [fault for fault in raw_faults(evidence) if ", arm old (A/A): work is 9.0, but 8.0" in fault]
    assert len(named) == 12


@pytest.mark.parametrize("failure", ["output", "engine"])
def test_what_failed_may_do_anything_and_hides_no_other(evidence: Data, failure: str) -> None:
    evidence["interrupted"] = True  # else a round that is void asks for more
    failed = evidence["rounds"][5]["samples"]["old"]
    failed["work"] = 1.0
    if failure == "output":
        failed["digest"] = "bad"
    else:
        failed["counters"]["engine_failed"] = 1
    assert raw_faults(evidence) == []
    assert [arm for _, arm in void_rules(evidence["arms"], evidence["rounds"])[5]] == ["old"]
    evidence["rounds"][5]["samples"]["new"]["work"] = 7.0
    assert raw_faults(evidence) == ["round 5, arm new: work is 7.0, but 6.0 in round 0"]


LIMITS: list[tuple[Data, Data, str]] = [
    ({"steal_ticks": 1, "cpu_ticks": 100}, {"cpu_ticks": 99}, "steal"),
    ({"probe_bytes_per_ns": 46.0}, {"probe_bytes_per_ns": 45.9}, "bandwidth_probe"),
    ({"ns": 1000, "run_delay_ns": 30}, {"run_delay_ns": 31}, "run_queue"),
    ({"run_delay_ns": None}, {"run_delay_ns": 10**9}, "run_queue"),
    ({"resident": 0.25}, {"resident": 0.24}, "cache"),
    ({"resident": 0.75}, {"resident": 0.76}, "cache"),
    ({"resident": 0.5}, {"resident": None}, "cache"),
    ({"counters": {}, "wall_ns": 1}, {"counters": {"idle_cpu_ns": 1}}, "idle_engine"),
    ({"counters": {"idle_cpu_ns": 10}, "wall_ns": 1000}, {"counters": {"idle_cpu_ns": 11}}, "idle_engine"),
    ({"counters": {"asked_bytes": 7, "device_bytes": 7}}, {"counters": {"asked_bytes": 7}}, "device_bytes"),
    ({"counters": {"engine_failed": 0}}, {"counters": {"engine_failed": 2}}, "engine_failed"),
    ({"digest": "d"}, {"digest": "e"}, "output"),
]


@pytest.mark.parametrize(("allowed", "beyond", "rule"), LIMITS)
def test_a_round_is_void_beyond_a_limit_and_not_at_it(allowed: Data, beyond: Data, rule: str) -> None:
    sample: Data = {
        "ns": 1000,
        "wall_ns": 1000,
        "run_delay_ns": 0,
        "resident": 0.5,
        "digest": "d",
        "counters": {},
    }
    quiet: Data = {"steal_ticks": 0, "cpu_ticks": 100, "probe_bytes_per_ns": 50.0}
    arm = {"name": "a", "resident": [0.25, 0.75], "expected_digest": "d"}

    def rules(change: Data) -> list[tuple[str, str]]:
        of_round = {key: value for key, value in change.items() if key in quiet}
        of_sample = {key: value for key, value in change.items() if key not in quiet}
        rounds = [{**quiet, "samples": {"a": sample}} for _ in range(2)]
        rounds.append({**quiet, **of_round, "samples": {"a": {**sample, **of_sample}}})
        *others, last = void_rules([arm], rounds)
        assert others == [[], []]
        return last

    whole_round = rule in ("steal", "bandwidth_probe")
    assert rules(allowed) == []
    assert rules({**allowed, **beyond}) == [(rule, "" if whole_round else "a")]
