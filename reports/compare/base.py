"""Two runs on one machine: what moved from the base to the new run, and what of it is a confirmed loss.

A timed figure moved by a factor whose interval (harness/shift.py) leaves out 1. All intervals of a comparison
hold together with 95 %: with m timed figures, each has 1 - 0.05 / m (Bonferroni). The rounds of a run say
nothing of what differs from run to run, such as where its memory lay: a movement counts as a loss or a gain
only when its whole interval lies beyond the guard g of the check, by which its own A/A arms may differ, or
when the verdict crossed an end of the target on the way.

Which direction is worse is said by the target alone: lower where it has no upper end, higher where it has no
lower end; with two ends, away from them, once the new figure lies outside; without a target, neither. Of
a figure without rounds, exact or over repetitions, the verdicts say it: it is a loss when SUPPORTED turns to
REFUTED. What was INCONCLUSIVE in either run is neither loss nor gain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from harness.kinds import REFUTED, SUPPORTED, Target, Verdict
from harness.shift import Shift, shift
from harness.statistics import MIN_ROUNDS
from harness.verdict import NOT_RUN
from reports.compare.rows import Entry, Row, other_conditions
from reports.compare.runs import Run, claim_verdict
from reports.rounds import figure_of

Outcome = Literal["loss", "gain", "moved", "not told apart", "not compared"]
Worse = Literal["lower", "higher", "neither"]

FAMILY_ALPHA: Final = 0.05
"""Chance, at most, that any interval of a comparison misses its factor."""


@dataclass(frozen=True)
class Move:
    """What became of a row. ratio: of figures without rounds, new over base; None where it says nothing.

    shift: of timed figures. worse: which direction is, by the target. reason: in words.
    """

    row: Row
    base: Entry
    new: Entry
    outcome: Outcome
    worse: Worse
    ratio: float | None
    shift: Shift | None
    reason: str


@dataclass(frozen=True)
class VerdictChange:
    """A claim or a check with another verdict than in the base."""

    id: str
    title: str
    base: Verdict | None
    new: Verdict | None
    reason: str


def moves(rows: Sequence[Row], base: Run, new: Run) -> tuple[Move, ...]:
    """What became of every row in which both runs say something, in the order of the rows."""
    both = [row for row in rows if base.name in row.entries and new.name in row.entries]
    count = sum(1 for row in both if _has_interval(row, base, new))
    confidence = 1.0 - FAMILY_ALPHA / max(count, 1)
    return tuple(_move(row, base, new, confidence) for row in both if _measured(row))


def worse_direction(target: Target | None, new_value: float) -> Worse:
    """Which direction of a figure its target makes the worse one."""
    if target is None:
        return "neither"
    low, high = target
    if math.isinf(high):
        return "lower"
    if math.isinf(low):
        return "higher"
    if new_value < low:
        return "lower"
    return "higher" if new_value > high else "neither"


def _measured(row: Row) -> bool:
    return any(entry.evidence is not None for entry in row.entries.values())


def _has_interval(row: Row, base: Run, new: Run) -> bool:
    if row.kind != "timed" or _unlike(row, base, new):
        return False
    return not isinstance(_samples(row, base, new), str)


def _unlike(row: Row, base: Run, new: Run) -> str:
    """Why the two sides of a row are not figures of the same thing; "" when they are."""
    mine, others = (row.entries[run.name] for run in (base, new))
    for entry, which in ((mine, "base"), (others, "new run")):
        if entry.evidence is None:
            return f"not measured in the {which}: {entry.reason}"
    different = other_conditions(mine.evidence or {}, others.evidence or {})
    return f"measured under other conditions: {', '.join(different)}" if different else ""


def _samples(row: Row, base: Run, new: Run) -> tuple[list[float], list[float]] | str:
    """The figures of the valid rounds of both runs, or why there is no interval."""
    found: list[list[float]] = []
    for run in (base, new):
        evidence = row.entries[run.name].evidence or {}
        values = [figure_of(one, evidence) for one in evidence["rounds"] if not one["void"]]
        found.append([value for value in values if value is not None])
        if len(found[-1]) < len(values):
            return f"a round of {run.id} gives no positive figure"
    if min(map(len, found)) < MIN_ROUNDS:
        return f"{len(found[0])} and {len(found[1])} valid rounds, fewer than {MIN_ROUNDS}"
    return found[0], found[1]


def _move(row: Row, base: Run, new: Run, confidence: float) -> Move:
    mine, others = row.entries[base.name], row.entries[new.name]
    worse = "neither" if others.value is None else worse_direction(row.cell.target, others.value)
    move = Move(row, mine, others, "not compared", worse, None, None, "")
    if unlike := _unlike(row, base, new):
        return replace(move, reason=unlike)
    if row.kind != "timed":
        if mine.value is None or others.value is None:
            return replace(move, reason="no figure yet")
        return _without_rounds(move, mine.value, others.value)
    samples = _samples(row, base, new)
    if isinstance(samples, str):
        return replace(move, reason=samples)
    return _timed(move, shift(*samples, confidence))


def _turned(move: Move, before: Verdict, after: Verdict) -> bool:
    return move.base.verdict == before and move.new.verdict == after


def _without_rounds(move: Move, base: float, new: float) -> Move:
    ratio = new / base if base else None
    move = replace(move, ratio=ratio)
    if base == new:
        return replace(move, outcome="not told apart", reason="the same figure")
    doubts = _doubts(move)
    if _turned(move, SUPPORTED, REFUTED) and not doubts:
        return replace(move, outcome="loss", reason="the figure left its target")
    if _turned(move, REFUTED, SUPPORTED) and not doubts:
        return replace(move, outcome="gain", reason="the figure came into its target")
    return replace(move, outcome="moved", reason="; ".join(doubts) or "on the same side of its target")


def _doubts(move: Move) -> list[str]:
    """Why a movement is neither a loss nor a gain, whatever its size."""
    found = [
        f"the separate checker disagrees about the {which}"
        for which, entry in (("base", move.base), ("new run", move.new))
        if entry.doubted
    ]
    for which, entry in (("base", move.base), ("new run", move.new)):
        if entry.undecided:
            found.append(f"INCONCLUSIVE in the {which}: {entry.reason}")
        elif not entry.sound:
            found.append(f"its controls did not hold in the {which}: {entry.reason}")
    if move.row.cell.target is None:
        found.append("no target: neither direction is worse")
    return found


def _timed(move: Move, found: Shift) -> Move:
    move = replace(move, shift=found, ratio=found.ratio)
    if found.low is None or found.high is None:
        return replace(move, reason="too few rounds for an interval at this confidence")
    if found.low <= 1.0 <= found.high:
        return replace(move, outcome="not told apart", reason="the interval reaches over 1")
    doubts = _doubts(move)
    if doubts:
        return replace(move, outcome="moved", reason="; ".join(doubts))
    edge = 1.0 + move.row.check.guard
    went = "lower" if found.high < 1.0 else "higher"
    beyond = found.high < 1.0 / edge or found.low > edge
    if went == move.worse:
        if beyond or _turned(move, SUPPORTED, REFUTED):
            how = f"by more than {edge - 1:.0%}" if beyond else "and out of its target"
            return replace(move, outcome="loss", reason=f"{went}, which is worse, {how}")
        return replace(move, outcome="moved", reason=f"{went}, which is worse, but within {edge - 1:.0%}")
    if move.worse != "neither" or _turned(move, REFUTED, SUPPORTED):
        if beyond or _turned(move, REFUTED, SUPPORTED):
            return replace(move, outcome="gain", reason=f"{went}, which is better")
        return replace(move, outcome="moved", reason=f"{went}, which is better, but within {edge - 1:.0%}")
    return replace(move, outcome="moved", reason=f"{went}, inside its target")


def verdict_changes(check_ids: Sequence[str], base: Run, new: Run) -> tuple[VerdictChange, ...]:
    """Claims, then comparable checks, that ran in both and whose verdict is another one."""
    found = []
    for claim in base.results.registry.claims:
        before, after = (claim_verdict(run, claim.id) for run in (base, new))
        if before is not None and after is not None and before != after:
            reason = next(item["reason"] for item in new.results.claims if item["id"] == claim.id)
            found.append(VerdictChange(f"claim {claim.id}", claim.title, before, after, reason))
    for check_id in check_ids:
        (before, said), (after, reason) = (run.results.verdict(check_id) for run in (base, new))
        if before != after and NOT_RUN not in (said, reason):
            title = base.results.registry.check(check_id).statement
            found.append(VerdictChange(check_id, title, before, after, reason))
    return tuple(found)
