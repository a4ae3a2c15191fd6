"""Which rounds do not count, from their raw material alone. A void round is void for all arms, kept and
shown.
"""

from __future__ import annotations

import dataclasses
import statistics as stdlib_statistics
from collections.abc import Sequence
from typing import Final

from harness.rounds import ASKED_COUNTER, FAILED_COUNTER, IDLE_CPU_COUNTER, ArmInfo, Round, Void

MAX_RUN_DELAY_PERCENT: Final = 3
"""Run-queue delay over the timed nanoseconds: above it a worker waited for a core."""
MAX_STEAL_PERCENT: Final = 1
"""Stolen ticks over all ticks of the round, on the CPUs that work: above it the host ran somebody else. Whole
numbers keep the limit exact.
"""
MAX_IDLE_CPU_PERCENT: Final = 1
"""Processor time of an engine that should sleep over the wall time of the arm that runs: above it they shared
a core.
"""
MIN_PROBE: Final = 0.92
"""Read probe over the run's median probe: under it a neighbour takes bandwidth."""


def mark_voids(arms: Sequence[ArmInfo], rounds: Sequence[Round]) -> tuple[Round, ...]:
    """The same rounds with `void` set by every rule. The probe is compared with the median over all these
    rounds.
    """
    if not rounds:
        return ()
    typical = stdlib_statistics.median(one.probe_bytes_per_ns for one in rounds)
    return tuple(_marked(one, _voids(arms, one, typical)) for one in rounds)


def _marked(one: Round, void: tuple[Void, ...]) -> Round:
    return one if one.void == void else dataclasses.replace(one, void=void)


def _voids(arms: Sequence[ArmInfo], one: Round, typical: float) -> tuple[Void, ...]:
    found = []
    if 100 * one.steal_ticks > MAX_STEAL_PERCENT * one.cpu_ticks:
        found.append(Void("steal", None))
    if one.probe_bytes_per_ns < MIN_PROBE * typical:
        found.append(Void("bandwidth_probe", None))
    for arm in arms:
        placed = one.samples[arm.name]
        sample = placed.sample
        # Where the kernel keeps no such account the rule is off; the machine's state says so.
        delay_ns = placed.run_delay_ns
        if delay_ns is not None and 100 * delay_ns > MAX_RUN_DELAY_PERCENT * sample.ns:
            found.append(Void("run_queue", arm.name))
        if sample.counters.get(FAILED_COUNTER):
            found.append(Void("engine_failed", arm.name))
        elif sample.digest != arm.expected_digest:
            found.append(Void("output", arm.name))
        if arm.resident is not None and not _inside(sample.resident, arm.resident):
            found.append(Void("cache", arm.name))
        if 100 * sample.counters.get(IDLE_CPU_COUNTER, 0) > MAX_IDLE_CPU_PERCENT * placed.wall_ns:
            found.append(Void("idle_engine", arm.name))
        asked = sample.counters.get(ASKED_COUNTER)
        if asked is not None and sample.counters.get("device_bytes") != asked:
            found.append(Void("device_bytes", arm.name))
    return tuple(found)


def _inside(share: float | None, wanted: tuple[float, float]) -> bool:
    return share is not None and wanted[0] <= share <= wanted[1]
