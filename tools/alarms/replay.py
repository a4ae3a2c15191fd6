"""Paired runs out of stored rounds, arranged as harness.paired arranges real ones.

A moving-block bootstrap (H. R. Kuensch, 1989): a run takes stretches of neighbouring rounds of one piece, so
that what neighbouring rounds have in common stays in it. Each position of a round keeps what was measured at
that position; which arm stands there is drawn anew, in the balanced orders of the runner. Arms are equal by
construction. A test holds these runs against those of `harness.paired.run_pairs` over the same rounds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Final

from harness.paired import CONTROL_SUFFIX, balanced_block
from harness.rounds import ArmInfo, Figure, Pattern, Placed, Roof, Round, Sample, Side, Timed
from harness.statistics import median
from harness.voids import MAX_RUN_DELAY_PERCENT, MAX_STEAL_PERCENT, MIN_PROBE, mark_voids
from tools.alarms.rules import Run
from tools.alarms.stored import DIGEST, Piece, StoredRound

BLOCK_ROUNDS: Final = 10
"""Rounds of a stretch: one Williams square of the five arms that were collected, one second or more."""
SUBJECT, REFERENCE, POSITIVE = "subject", "reference", "positive control"
POSITIVE_GAIN: Final = 2.0
"""By how much the positive control is faster: far beyond any margin, so that it holds."""


def stretch(piece: Piece, count: int, rng: random.Random, block: int = BLOCK_ROUNDS) -> list[int]:
    """Indices of `count` rounds of a piece, in stretches of `block`; one that would pass the end goes on at
    the beginning.
    """
    drawn: list[int] = []
    size = len(piece.rounds)
    while len(drawn) < count:
        start = rng.randrange(size)
        drawn += [(start + step) % size for step in range(min(block, size))]
    return drawn[:count]


def most_rounds(run: Run) -> int:
    """How many rounds there can be: half as many again as planned, in whole blocks."""
    block = 2 * run.arms if run.arms % 2 else run.arms
    planned = math.ceil(run.rounds / block) * block
    return planned + math.ceil(planned / 2 / block) * block


def arm_factors(run: Run, factor: float) -> dict[str, float]:
    """Arms without the A/A arm, and what their times are multiplied by; `factor`: of the subject."""
    factors = {SUBJECT: factor}
    if not run.roof:
        factors[REFERENCE] = 1.0
    if run.positive:
        factors[POSITIVE] = 1.0 / POSITIVE_GAIN
    return factors | {f"other {index}": 1.0 for index in range(run.arms - 1 - len(factors))}


def control_of(run: Run) -> str:
    """The arm that runs twice."""
    return SUBJECT if run.control == "subject" else REFERENCE


def replay(run: Run, piece: Piece, drawn: Sequence[int], seed: int, factor: float = 1.0) -> Timed:
    """One paired run.

    Args:
        run: arms, rounds wanted, figure.
        piece: that the rounds are of.
        drawn: indices of at least `most_rounds` of them, see `stretch`.
        seed: of the orders.
        factor: by which the time of the subject is multiplied; 1 = equal arms.
    """
    factors = arm_factors(run, factor)
    original = control_of(run)
    infos = tuple(ArmInfo(name, "", None, DIGEST, None) for name in factors)
    infos += (ArmInfo(original + CONTROL_SUFFIX, "", original, DIGEST, None),)
    multiplied = [*factors.values(), factors[original]]
    rng = random.Random(seed)
    rounds: list[Round] = []
    flags: list[bool] = []
    limit = most_rounds(run)
    while len(rounds) < limit and not _enough(rounds, flags, run.rounds):
        for order in balanced_block(len(infos), rng):
            index = drawn[len(rounds)]
            stored, placed = piece.rounds[index], piece.placed[index]
            samples = {
                infos[arm].name: _slower(placed[position], multiplied[arm])
                for position, arm in enumerate(order)
            }
            names = tuple(samples)
            probe = stored.probe_bytes_per_ns
            seq = len(rounds)
            rounds.append(Round(seq, names, 0, 0, stored.steal_ticks, stored.cpu_ticks, probe, samples))
            flags.append(disturbed(stored, run.arms))
    roof = _roof(piece) if run.roof else None
    marked = mark_voids(infos, rounds)
    return Timed(figure(run), seed, run.rounds, False, infos, marked, roof, {"material": piece.material})


def _slower(placed: Placed, factor: float) -> Placed:
    """The same with its time multiplied, and its wait with it."""
    if factor == 1.0:
        return placed
    sample, waited = placed.sample, placed.run_delay_ns
    delay = None if waited is None else round(waited * factor)
    ns = max(1, round(sample.ns * factor))
    return Placed(0, ns, delay, Sample(ns, sample.bytes, DIGEST, run_delay_ns=delay))


def figure(run: Run, subject: str = SUBJECT) -> Figure:
    """Time over time; of a share of the roof, bandwidth over the roof."""
    if run.roof:
        return Figure(Side(SUBJECT, "bandwidth"), "roof")
    return Figure(Side(subject, "time"), Side(REFERENCE, "time"))


def subjects(run: Run) -> list[str]:
    """The subject of every cell that looks at the rounds."""
    return [SUBJECT, *[f"other {index}" for index in range(run.cells - 1)]]


def disturbed(stored: StoredRound, arms: int) -> bool:
    """Void whatever the other rounds are."""
    if 100 * stored.steal_ticks > MAX_STEAL_PERCENT * stored.cpu_ticks:
        return True
    pairs = zip(stored.ns[:arms], stored.delay_ns[:arms], strict=True)
    return any(delay is not None and 100 * delay > MAX_RUN_DELAY_PERCENT * ns for ns, delay in pairs)


def _enough(rounds: Sequence[Round], flags: Sequence[bool], wanted: int) -> bool:
    """Whether that many rounds count; flags: those that are void by themselves."""
    if len(rounds) - sum(flags) < wanted:  # spares the median of most calls
        return False
    least = MIN_PROBE * median([one.probe_bytes_per_ns for one in rounds])
    pairs = zip(rounds, flags, strict=True)
    return sum(not bad and one.probe_bytes_per_ns >= least for one, bad in pairs) >= wanted


def _roof(piece: Piece) -> Roof:
    ns = 1_000_000_000
    return Roof(piece.threads, (Pattern("stored", round(piece.roof_bytes_per_ns * ns), (ns,)),))
