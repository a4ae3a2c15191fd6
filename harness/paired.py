"""The paired runner: arms interleaved in balanced seeded order, with an A/A control arm, round by round.

A round runs every arm once. Blocks of rounds follow a Williams square (E. J. Williams, 1949): within a block
every arm is equally often at every position and follows every other arm equally often, so that a drift or a
trace that one arm leaves for the next falls on all alike.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from harness import counters
from harness.errors import EvidenceError
from harness.reductions import Scalar
from harness.rounds import ArmInfo, Figure, Placed, Roof, Round, Sample, Timed
from harness.statistics import DEFAULT_ROUNDS
from harness.voids import mark_voids

CONTROL_SUFFIX: Final = " (A/A)"
MAX_NS_SHARE: Final = 1.01
CLOCK_SLACK_NS: Final = 10_000
"""An arm cannot have worked longer than the clock around it ran, but for the resolution of the two clocks."""


@dataclass(frozen=True)
class Arm:
    """One thing to be timed.

    run: does the work once and returns its sample. expected_digest: of a right output. resident: the cache
    precondition, the share of the file's pages in memory before the run as [low, high]; None = not looked at.
    """

    name: str
    run: Callable[[], Sample]
    expected_digest: str
    description: str = ""
    resident: tuple[float, float] | None = None


def alike(arms: Sequence[Arm]) -> list[Arm]:
    """The same arms, all of which must give the output of the first: a wrong one may repeat itself."""
    return [replace(arm, expected_digest=arms[0].expected_digest) for arm in arms]


@dataclass(frozen=True)
class Probes:
    """What is read beside the arms; replaced in tests.

    bandwidth: a read probe of about 50 ms, bytes per ns. steal: stolen and all ticks since boot of the CPUs
    that work. run_delay_ns: of the calling thread, for arms that do not report their workers' delay; None
    where the kernel keeps none. clock_ns: CLOCK_MONOTONIC.
    """

    bandwidth: Callable[[], float]
    steal: Callable[[], tuple[int, int]] = counters.steal_ticks
    run_delay_ns: Callable[[], int | None] = counters.run_delay_ns
    clock_ns: Callable[[], int] = time.monotonic_ns


Progress = Callable[[Timed, int], None]
"""Called before the first run of an arm and after every round, never within one, with the rounds so far and
how many there will be. What it sees does not change how many are run: that follows from void rounds alone.
"""


def balanced_block(count: int, rng: random.Random) -> list[tuple[int, ...]]:
    """Orders of one block for `count` arms: a Williams square, rows and arms shuffled; twice as long for odd
    counts.
    """
    zigzag = [0]
    for step in range(1, count):
        zigzag.append((step + 1) // 2 if step % 2 else count - step // 2)
    rows = [[(start + offset) % count for offset in zigzag] for start in range(count)]
    if count % 2:
        rows += [row[::-1] for row in rows]
    names = list(range(count))
    rng.shuffle(names)
    rng.shuffle(rows)
    return [tuple(names[item] for item in row) for row in rows]


def run_pairs(
    arms: Sequence[Arm],
    figure: Figure,
    probes: Probes,
    *,
    control_of: str,
    control: Arm | None = None,
    seed: int,
    rounds: int = DEFAULT_ROUNDS,
    warmups: int = 1,
    roof: Roof | None = None,
    inputs: Mapping[str, Scalar | bool | None] | None = None,
    progress: Progress | None = None,
) -> Timed:
    """Times arms against each other.

    Whole blocks are run until `rounds` rounds are valid, at most half as many again as planned. How long it
    goes on depends on void rounds alone, never on the figure. KeyboardInterrupt ends it: the rounds already
    whole are kept and the run is marked interrupted.

    Args:
        arms: two or more, or one when `figure` has the roof or nothing as its reference.
        figure: what a round contributes.
        control_of: the arm that is run a second time per round as the A/A control.
        control: what stands for it there, when that must be another thing of the same kind: a fresh copy of
            its file.
        seed: of the order.
        rounds: valid rounds wanted.
        warmups: runs of every arm before the first round, not recorded.
        roof: read-only bandwidth with the same threads, when a figure or the limit on shares needs it.
        inputs: what was fixed: model, threads, options.
        progress: told between rounds how far the run is.

    Raises:
        EvidenceError: names of arms are not distinct, or the figure or control names an arm that does not
        exist.
    """
    named = {arm.name: arm for arm in arms}
    if len(named) != len(arms):
        raise EvidenceError(f"arms: names {[arm.name for arm in arms]} are not distinct")
    for name in (control_of, *figure.arms):
        if name not in named:
            raise EvidenceError(f"arms: no arm {name!r}; there are {', '.join(named)}")
    original = named[control_of]
    twin = replace(
        control or original,
        name=control_of + CONTROL_SUFFIX,
        description=f"repeats {control_of}" if control is None else f"{control.name}, as {control_of}",
    )
    everyone = [*arms, twin]
    infos = tuple(
        ArmInfo(
            arm.name, arm.description, control_of if arm is twin else None, arm.expected_digest, arm.resident
        )
        for arm in everyone
    )
    rng = random.Random(seed)
    block = len(balanced_block(len(everyone), random.Random(0)))
    planned = math.ceil(rounds / block) * block
    limit = planned + math.ceil(planned / 2 / block) * block
    done: list[Round] = []
    interrupted = False

    def so_far() -> Timed:
        marked = mark_voids(infos, done)
        return Timed(figure, seed, rounds, interrupted, infos, marked, roof, dict(inputs or {}))

    def expected() -> int:
        """How many rounds there will be: more than planned where too few of those are valid."""
        enough = _valid(infos, done) >= rounds or len(done) == limit
        if len(done) % block == 0 and len(done) >= planned and enough:
            return len(done)
        return planned if len(done) < planned else limit

    try:
        if progress is not None:
            progress(so_far(), expected())
        for _ in range(warmups):
            for arm in everyone:
                arm.run()
        while len(done) < limit and _valid(infos, done) < rounds:
            for order in balanced_block(len(everyone), rng):
                done.append(_one_round(len(done), [everyone[index] for index in order], probes))
                if progress is not None:
                    progress(so_far(), expected())
    except KeyboardInterrupt:
        interrupted = True
    return so_far()


def _valid(arms: Sequence[ArmInfo], rounds: Sequence[Round]) -> int:
    return sum(not one.void for one in mark_voids(arms, rounds))


def _one_round(seq: int, arms: Sequence[Arm], probes: Probes) -> Round:
    start_ns = probes.clock_ns()
    before = probes.steal()
    bandwidth = probes.bandwidth()
    samples = {arm.name: _one_sample(arm, probes) for arm in arms}
    steal_ticks, cpu_ticks = _ticks_since(before, probes.steal())
    return Round(
        seq=seq,
        order=tuple(arm.name for arm in arms),
        start_ns=start_ns,
        end_ns=probes.clock_ns(),
        steal_ticks=steal_ticks,
        cpu_ticks=cpu_ticks,
        probe_bytes_per_ns=bandwidth,
        samples=samples,
    )


def _ticks_since(before: tuple[int, int], after: tuple[int, int]) -> tuple[int, int]:
    """Stolen and all ticks of a round. Counts that ran backwards, as when a CPU went away, tell nothing of
    it: one tick, stolen, which voids it.
    """
    stolen, ticks = after[0] - before[0], after[1] - before[1]
    return (stolen, ticks) if min(stolen, ticks) >= 0 else (1, 1)


def _one_sample(arm: Arm, probes: Probes) -> Placed:
    delay = probes.run_delay_ns()
    start_ns = probes.clock_ns()
    sample = arm.run()
    wall_ns = probes.clock_ns() - start_ns
    own_delay = counters.waited_ns(delay, probes.run_delay_ns())
    if sample.ns > MAX_NS_SHARE * wall_ns + CLOCK_SLACK_NS:
        raise EvidenceError(f"arm {arm.name}: measured {sample.ns} ns inside {wall_ns} ns of wall time")
    run_delay_ns = own_delay if sample.run_delay_ns is None else sample.run_delay_ns
    return Placed(start_ns, max(wall_ns, 1), run_delay_ns, sample)
