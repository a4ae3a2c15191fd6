"""The paired runner on a made-up machine: order, control, voids, interruption."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import EvidenceError
from harness.paired import Arm, Probes, alike, balanced_block, run_pairs
from harness.rounds import Figure, Sample, Side, Timed
from tests.harness.fake import FakeMachine

FIGURE = Figure(Side("new", "speed"), Side("old", "speed"))


@given(st.integers(2, 9), st.integers(0, 2**32))
def test_block_is_balanced_in_position_and_in_succession(count: int, seed: int) -> None:
    block = balanced_block(count, random.Random(seed))
    repeats = 1 if count % 2 == 0 else 2
    assert len(block) == repeats * count
    places = Counter((position, arm) for order in block for position, arm in enumerate(order))
    assert set(places.values()) == {repeats} and len(places) == count * count
    followers = Counter(pair for order in block for pair in itertools.pairwise(order))
    assert set(followers.values()) == {repeats} and len(followers) == count * (count - 1)


def test_seeds_give_their_own_orders_again() -> None:
    assert balanced_block(4, random.Random(1)) == balanced_block(4, random.Random(1))
    assert len({tuple(balanced_block(4, random.Random(seed))) for seed in range(20)}) > 10


def test_seeds_shuffle_rounds_as_well_as_names() -> None:
    found = set()
    for seed in range(20):
        block = balanced_block(4, random.Random(seed))
        found.add(tuple(tuple(block[0].index(arm) for arm in order) for order in block))
    assert len(found) > 1


def run(
    machine: FakeMachine, seed: int = 1, rounds: int = 12, probes: Probes | None = None, **options: object
) -> Timed:
    old, new = machine.arm("old", 50e6, **options), machine.arm("new", 40e6, **options)  # type: ignore[arg-type]
    return run_pairs(
        [old, new], FIGURE, probes or machine.probes(), control_of="old", seed=seed, rounds=rounds
    )


def test_every_round_runs_every_arm_and_the_control_once_in_time_order() -> None:
    timed = run(FakeMachine(1))
    assert [arm.name for arm in timed.arms] == ["old", "new", "old (A/A)"]
    assert [arm.control_of for arm in timed.arms] == [None, None, "old"]
    assert [one.seq for one in timed.rounds] == list(range(12))
    clock = 0
    for one in timed.rounds:
        assert sorted(one.order) == sorted(one.samples) == ["new", "old", "old (A/A)"]
        assert one.start_ns >= clock
        clock = one.start_ns
        for name in one.order:
            assert one.samples[name].start_ns >= clock
            clock = one.samples[name].start_ns + one.samples[name].wall_ns
        assert one.end_ns >= clock
        clock = one.end_ns
    assert not any(one.void for one in timed.rounds)


def test_the_same_seed_gives_the_same_run_and_another_seed_another_order() -> None:
    assert run(FakeMachine(1)) == run(FakeMachine(1))
    assert [one.order for one in run(FakeMachine(1)).rounds] != [
        one.order for one in run(FakeMachine(1), seed=2).rounds
    ]


@pytest.mark.parametrize(("rounds", "run_rounds"), [(12, 12), (13, 18), (20, 24)])
def test_whole_blocks_are_run(rounds: int, run_rounds: int) -> None:
    assert len(run(FakeMachine(1), rounds=rounds).rounds) == run_rounds


def test_void_rounds_are_kept_and_made_up_for() -> None:
    timed = run(
        FakeMachine(1, {2: "steal", 5: "bandwidth_probe", 7: ("output", "new"), 8: ("run_queue", "new")})
    )
    assert len(timed.rounds) == 18
    voids = {one.seq: [(void.rule, void.arm) for void in one.void] for one in timed.rounds if one.void}
    assert voids == {
        2: [("steal", None)],
        5: [("bandwidth_probe", None)],
        7: [("output", "new")],
        8: [("run_queue", "new")],
    }


def test_a_round_in_which_a_cpu_went_away_is_void() -> None:
    timed = run(FakeMachine(1, {4: "unplugged"}))
    (lost,) = (one for one in timed.rounds if one.void)
    assert (lost.seq, lost.steal_ticks, lost.cpu_ticks) == (4, 1, 1)
    assert [void.rule for void in lost.void] == ["steal"]


def test_a_machine_that_never_settles_ends_after_half_as_many_again() -> None:
    timed = run(FakeMachine(1, dict.fromkeys(range(100), "steal")))
    assert len(timed.rounds) == 18
    assert all(one.void for one in timed.rounds)


def test_how_long_it_runs_does_not_depend_on_the_figure() -> None:
    for gain in (0.5, 1.0, 3.0):
        machine = FakeMachine(1)
        arms = [machine.arm("old", 50e6), machine.arm("new", 50e6 / gain)]
        assert (
            len(run_pairs(arms, FIGURE, machine.probes(), control_of="old", seed=1, rounds=12).rounds) == 12
        )


def test_cache_precondition_voids() -> None:
    machine = FakeMachine(1)
    old = machine.arm("old", 50e6, resident=0.5, wanted=(0.0, 0.01))
    timed = run_pairs(
        [old, machine.arm("new", 40e6)], FIGURE, machine.probes(), control_of="old", seed=1, rounds=12
    )
    assert {(void.rule, void.arm) for one in timed.rounds for void in one.void} == {
        ("cache", "old"),
        ("cache", "old (A/A)"),
    }


def test_warmups_are_not_recorded() -> None:
    machine = FakeMachine(1)
    calls: list[int] = []
    arm = machine.arm("a", 1e6)

    def counted() -> Sample:
        calls.append(1)
        return arm.run()

    counted_arm = dataclasses.replace(arm, run=counted)
    timed = run_pairs(
        [counted_arm],
        Figure(Side("a", "speed"), None),
        machine.probes(),
        control_of="a",
        seed=1,
        rounds=4,
        warmups=3,
    )
    assert len(timed.rounds) == 4
    assert len(calls) == 2 * 4 + 2 * 3


@pytest.mark.parametrize("stop_at", [0, 1, 7, 20])
def test_interruption_keeps_the_whole_rounds(stop_at: int) -> None:
    machine = FakeMachine(1)
    runs: list[int] = []
    plain = machine.arm("new", 40e6)

    def stopping() -> Sample:
        if len(runs) == stop_at + 1:  # One run is the warm-up.
            raise KeyboardInterrupt
        runs.append(1)
        return plain.run()

    arms = [machine.arm("old", 50e6), dataclasses.replace(plain, run=stopping)]
    timed = run_pairs(arms, FIGURE, machine.probes(), control_of="old", seed=1, rounds=24)
    assert timed.interrupted
    assert len(timed.rounds) == stop_at
    assert all(len(one.samples) == 3 for one in timed.rounds)


def test_interruption_during_warmup_keeps_nothing_and_is_marked() -> None:
    def stop() -> Sample:
        raise KeyboardInterrupt

    machine = FakeMachine(1)
    timed = run_pairs(
        [Arm("a", stop, "x")], Figure(Side("a", "speed"), None), machine.probes(), control_of="a", seed=1
    )
    assert timed.interrupted and timed.rounds == ()


def test_progress_tells_the_rounds_so_far_and_how_many_there_will_be() -> None:
    machine = FakeMachine(1, {0: "steal"})
    seen: list[tuple[int, int, int]] = []

    def note(timed: Timed, planned: int) -> None:
        seen.append((len(timed.rounds), planned, sum(not one.void for one in timed.rounds)))

    arms = [machine.arm("old", 50e6), machine.arm("new", 40e6)]
    run_pairs(
        arms,
        FIGURE,
        machine.probes(),
        control_of="old",
        seed=1,
        rounds=12,
        progress=note,
    )
    assert seen[:2] == [(0, 12, 0), (1, 12, 0)]
    assert seen[11:14] == [(11, 12, 10), (12, 18, 11), (13, 18, 12)]
    assert seen[-1] == (18, 18, 17)


def test_progress_is_told_outside_of_rounds_and_changes_nothing() -> None:
    machine = FakeMachine(3)
    arms = [machine.arm("old", 50e6), machine.arm("new", 40e6)]
    told: list[int] = []

    def slow(timed: Timed, planned: int) -> None:
        told.append(machine.now_ns)
        machine.now_ns += 5_000_000

    timed = run_pairs(
        arms,
        FIGURE,
        machine.probes(),
        control_of="old",
        seed=1,
        rounds=12,
        progress=slow,
    )
    assert len(told) == len(timed.rounds) + 1
    for one in timed.rounds:
        assert not any(one.start_ns <= at_ns < one.end_ns for at_ns in told)
    again = FakeMachine(3)
    quiet = run_pairs(
        [again.arm("old", 50e6), again.arm("new", 40e6)],
        FIGURE,
        again.probes(),
        control_of="old",
        seed=1,
        rounds=12,
    )
    for with_it, without in zip(timed.rounds, quiet.rounds, strict=True):
        assert with_it.order == without.order and with_it.end_ns - with_it.start_ns < 200_000_000
        for name in with_it.order:
            assert with_it.samples[name].sample == without.samples[name].sample


def test_the_workers_delay_goes_before_that_of_the_calling_thread() -> None:
    machine = FakeMachine(1)
    delays = itertools.count(0, 5_000_000)
    probes = dataclasses.replace(machine.probes(), run_delay_ns=lambda: next(delays))
    assert not any(one.void for one in run(machine, probes=probes).rounds)
    machine = FakeMachine(1)
    own = [dataclasses.replace(machine.arm(name, 50e6)) for name in ("old", "new")]
    silent = [dataclasses.replace(arm, run=_without_delay(arm)) for arm in own]
    probes = dataclasses.replace(machine.probes(), run_delay_ns=lambda: next(delays))
    timed = run_pairs(silent, FIGURE, probes, control_of="old", seed=1, rounds=12)
    assert all({void.rule for void in one.void} == {"run_queue"} for one in timed.rounds)


def _without_delay(arm: Arm) -> Callable[[], Sample]:
    return lambda: dataclasses.replace(arm.run(), run_delay_ns=None)


def test_bad_arms_are_refused() -> None:
    machine = FakeMachine(1)
    old, new = machine.arm("old", 50e6), machine.arm("new", 40e6)
    with pytest.raises(EvidenceError, match="not distinct"):
        run_pairs([old, old], FIGURE, machine.probes(), control_of="old", seed=1)
    with pytest.raises(EvidenceError, match="no arm 'odl'"):
        run_pairs([old, new], FIGURE, machine.probes(), control_of="odl", seed=1)
    with pytest.raises(EvidenceError, match="no arm 'new'"):
        run_pairs([old], FIGURE, machine.probes(), control_of="old", seed=1)


def test_an_arm_cannot_work_longer_than_time_passed() -> None:
    machine = FakeMachine(1)
    arm = Arm("a", lambda: Sample(1_000_000, 0, "x", run_delay_ns=0), "x")
    with pytest.raises(EvidenceError, match="measured 1000000 ns inside 0 ns"):
        run_pairs([arm], Figure(Side("a", "speed"), None), machine.probes(), control_of="a", seed=1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"ns": 0}, "ns=0"),
        ({"work": 0.0}, "work=0.0"),
        ({"bytes": -1}, "bytes=-1"),
        (
            {"counters": {"dense_bytes": 70, "head_bytes": 20, "kv_bytes": 5}},
            "bytes=100, but its counters add up to 90",
        ),
    ],
)
def test_impossible_samples_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(EvidenceError, match=message):
        Sample(**{"ns": 10, "bytes": 100, "digest": "x", **fields})  # type: ignore[arg-type]


def test_counters_that_add_up_are_taken() -> None:
    counters = {"attention_bytes": 60, "embedding_bytes": 40, "kv_bytes": 5, "tokens": 1}
    assert Sample(10, 100, "x", counters=counters).bytes == 100


def test_another_arm_may_stand_for_the_control() -> None:
    machine = FakeMachine(1)
    old, new, copy = machine.arm("old", 50e6), machine.arm("new", 40e6), machine.arm("copy of old", 80e6)
    timed = run_pairs([old, new], FIGURE, machine.probes(), control_of="old", control=copy, seed=1, rounds=12)
    control = timed.arms[-1]
    assert (control.name, control.control_of) == ("old (A/A)", "old")
    assert control.description == "copy of old, as old"
    for one in timed.rounds:
        assert one.samples["old (A/A)"].sample.ns > 1.2 * one.samples["old"].sample.ns


def test_arms_that_must_agree_are_held_to_the_output_of_the_first() -> None:
    machine = FakeMachine(1)
    first, second = (
        machine.arm("a", 1e6),
        dataclasses.replace(machine.arm("b", 1e6), expected_digest="wrong, always"),
    )
    assert [arm.expected_digest for arm in alike([first, second])] == [first.expected_digest] * 2
    assert [arm.name for arm in alike([first, second])] == ["a", "b"]
