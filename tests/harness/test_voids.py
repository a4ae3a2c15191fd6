"""The limits of the void rules, one tick inside and one outside."""

from __future__ import annotations

import dataclasses

import pytest

from harness.paired import run_pairs
from harness.rounds import FAILED_COUNTER, IDLE_CPU_COUNTER, Figure, Round, Side, Timed
from harness.voids import mark_voids
from tests.harness.fake import FakeMachine


@pytest.fixture
def timed() -> Timed:
    machine = FakeMachine(1)
    arm = machine.arm("a", 100e6, resident=0.5, wanted=(0.4, 0.6))
    return run_pairs(
        [arm], Figure(Side("a", "speed"), None), machine.probes(), control_of="a", seed=1, rounds=4
    )


def rules(timed: Timed, **changes: object) -> list[tuple[str, str | None]]:
    """Voids of the second round after a change to it."""
    rounds = list(timed.rounds)
    rounds[1] = dataclasses.replace(rounds[1], **changes)  # type: ignore[arg-type]
    marked = mark_voids(timed.arms, rounds)
    assert not any(one.void for index, one in enumerate(marked) if index != 1)
    return [(void.rule, void.arm) for void in marked[1].void]


def with_sample(one: Round, **changes: object) -> dict[str, object]:
    placed = one.samples["a"]
    sample = dataclasses.replace(placed.sample, **changes)  # type: ignore[arg-type]
    return {"samples": {**one.samples, "a": dataclasses.replace(placed, sample=sample)}}


@pytest.mark.parametrize(("stolen", "void"), [(0, False), (1, False), (2, True)])
def test_steal(timed: Timed, stolen: int, void: bool) -> None:
    assert rules(timed, steal_ticks=stolen, cpu_ticks=100) == ([("steal", None)] if void else [])


def test_no_ticks_is_no_steal(timed: Timed) -> None:
    assert rules(timed, steal_ticks=0, cpu_ticks=0) == []


@pytest.mark.parametrize(("share", "void"), [(0.93, False), (0.92, False), (0.91, True)])
def test_probe_against_the_median_of_the_run(timed: Timed, share: float, void: bool) -> None:
    level = [dataclasses.replace(one, probe_bytes_per_ns=40.0) for one in timed.rounds]
    changed = rules(dataclasses.replace(timed, rounds=tuple(level)), probe_bytes_per_ns=40.0 * share)
    assert changed == ([("bandwidth_probe", None)] if void else [])


@pytest.mark.parametrize(("delay_ns", "void"), [(3_000_000, False), (3_000_001, True)])
def test_run_queue_delay(timed: Timed, delay_ns: int, void: bool) -> None:
    placed = timed.rounds[1].samples["a"]
    sample = dataclasses.replace(placed.sample, ns=100_000_000)
    delayed = dataclasses.replace(placed, run_delay_ns=delay_ns, sample=sample)
    samples = {**timed.rounds[1].samples, "a": delayed}
    assert rules(timed, samples=samples) == ([("run_queue", "a")] if void else [])


def test_no_run_queue_delay_is_no_rule(timed: Timed) -> None:
    unknown = dataclasses.replace(timed.rounds[1].samples["a"], run_delay_ns=None)
    assert rules(timed, samples={**timed.rounds[1].samples, "a": unknown}) == []


@pytest.mark.parametrize(
    ("resident", "void"), [(0.4, False), (0.6, False), (0.39, True), (0.61, True), (None, True)]
)
def test_cache_precondition(timed: Timed, resident: float | None, void: bool) -> None:
    assert rules(timed, **with_sample(timed.rounds[1], resident=resident)) == (
        [("cache", "a")] if void else []
    )


def test_wrong_output(timed: Timed) -> None:
    assert rules(timed, **with_sample(timed.rounds[1], digest="wrong")) == [("output", "a")]


@pytest.mark.parametrize(
    ("counters", "wall_ns", "void"),
    [
        ({IDLE_CPU_COUNTER: 1_000_000}, 100_000_000, False),
        ({IDLE_CPU_COUNTER: 1_000_001}, 100_000_000, True),
        ({}, 50, False),
    ],
)
def test_an_idle_engine_that_works(timed: Timed, counters: dict[str, int], wall_ns: int, void: bool) -> None:
    placed = timed.rounds[1].samples["a"]
    sample = dataclasses.replace(placed.sample, counters={**placed.sample.counters, **counters})
    placed = dataclasses.replace(placed, wall_ns=wall_ns, run_delay_ns=0, sample=sample)
    found = rules(timed, samples={**timed.rounds[1].samples, "a": placed})
    assert found == ([("idle_engine", "a")] if void else [])


def test_an_engine_that_failed_is_not_called_wrong(timed: Timed) -> None:
    counters = {**timed.rounds[1].samples["a"].sample.counters, FAILED_COUNTER: 1}
    found = rules(timed, **with_sample(timed.rounds[1], counters=counters, digest="none"))
    assert found == [("engine_failed", "a")]


def test_every_rule_that_breaks_is_named(timed: Timed) -> None:
    found = rules(
        timed, steal_ticks=50, cpu_ticks=100, **with_sample(timed.rounds[1], digest="wrong", resident=1.0)
    )
    assert found == [("steal", None), ("output", "a"), ("cache", "a")]


def test_no_rounds() -> None:
    assert mark_voids((), ()) == ()


@pytest.mark.parametrize(
    ("counters", "void"),
    [
        ({"asked_bytes": 4096, "device_bytes": 4096}, False),
        ({"asked_bytes": 4096, "device_bytes": 8192}, True),
        ({"asked_bytes": 4096}, True),
        ({"device_bytes": 4096}, False),
    ],
)
def test_bytes_that_nobody_asked_for(timed: Timed, counters: dict[str, int], void: bool) -> None:
    changed = with_sample(timed.rounds[1], counters=counters)
    assert rules(timed, **changed) == ([("device_bytes", "a")] if void else [])
