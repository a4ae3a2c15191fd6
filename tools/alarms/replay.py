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
from tools.alarms.stored import Piece, StoredRound

BLOCK_ROUNDS: Final = 10
"""Rounds of a stretch: one Williams square of the five arms that were collected, one second or more."""
SUBJECT, REFERENCE, POSITIVE = "subject", "reference", "positive control"
POSITIVE_GAIN: Final = 2.0
"""By how much the positive control is faster: far beyond any margin, so that it holds."""
_DIGEST: Final = "same"


def stretch(piece: Piece, count: int, rng: random.Random) -> list[StoredRound]:
    """`count` rounds of a piece, in stretches of BLOCK_ROUNDS; one that would pass the end goes on at the
    beginning.
    """
    drawn: list[StoredRound] = []
    size = len(piece.rounds)
    while len(drawn) < count:
        start = rng.randrange(size)
        drawn += [piece.rounds[(start + step) % size] for step in range(min(BLOCK_ROUNDS, size))]
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


def replay(run: Run, piece: Piece, drawn: Sequence[StoredRound], seed: int, factor: float = 1.0) -> Timed:
    """One paired run.

    Args:
        run: arms, rounds wanted, figure.
        piece: that the rounds are of.
        drawn: at least `most_rounds` of them, see `stretch`.
        seed: of the orders.
        factor: by which the time of the subject is multiplied; 1 = equal arms.
    """
    factors = arm_factors(run, factor)
    original = control_of(run)
    infos = tuple(ArmInfo(name, "", None, _DIGEST, None) for name in factors)
    infos += (ArmInfo(original + CONTROL_SUFFIX, "", original, _DIGEST, None),)
    multiplied = [*factors.values(), factors[original]]
    rng = random.Random(seed)
    rounds: list[Round] = []
    flags: list[bool] = []
    limit = most_rounds(run)
    while len(rounds) < limit and valid_rounds(drawn[: len(rounds)], flags) < run.rounds:
        for order in balanced_block(len(infos), rng):
            stored = drawn[len(rounds)]
            rounds.append(_round(len(rounds), stored, order, infos, multiplied, piece.bytes))
            flags.append(disturbed(stored, run.arms))
    roof = _roof(piece) if run.roof else None
    return Timed(
        figure(run),
        seed,
        run.rounds,
        False,
        infos,
        mark_voids(infos, rounds),
        roof,
        {"material": piece.material},
    )


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


def valid_rounds(rounds: Sequence[StoredRound], flags: Sequence[bool]) -> int:
    """How many rounds count; flags: those that are void by themselves."""
    if not rounds:
        return 0
    least = MIN_PROBE * median([one.probe_bytes_per_ns for one in rounds])
    pairs = zip(rounds, flags, strict=True)
    return sum(not bad and one.probe_bytes_per_ns >= least for one, bad in pairs)


def _round(
    seq: int,
    stored: StoredRound,
    order: Sequence[int],
    infos: Sequence[ArmInfo],
    factors: Sequence[float],
    size: int,
) -> Round:
    samples = {}
    for position, index in enumerate(order):
        factor, delay = factors[index], stored.delay_ns[position]
        ns = max(1, round(stored.ns[position] * factor))
        waited = None if delay is None else round(delay * factor)
        samples[infos[index].name] = Placed(0, ns, waited, Sample(ns, size, _DIGEST, run_delay_ns=waited))
    names = tuple(infos[index].name for index in order)
    steal, ticks = stored.steal_ticks, stored.cpu_ticks
    return Round(seq, names, 0, 0, steal, ticks, stored.probe_bytes_per_ns, samples)


def _roof(piece: Piece) -> Roof:
    ns = 1_000_000_000
    return Roof(piece.threads, (Pattern("stored", round(piece.roof_bytes_per_ns * ns), (ns,)),))
