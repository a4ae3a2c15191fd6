"""Several machines: where they disagree, and what goes with it. An association, never a cause."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeGuard

from harness.kinds import INCONCLUSIVE, REFUTED, SUPPORTED
from reports.compare.facts import FACTS, Value, differ
from reports.compare.rows import Entry, Row
from reports.compare.runs import Run

What = Literal["opposite verdicts", "decided on some", "measurable on some", "figures apart"]

Groups = tuple[tuple[str, ...], ...]
"""Runs by letter, those that agree together."""

_EXACT: Final = 1e-9
"""Exact figures that agree to this relative difference are the same."""


@dataclass(frozen=True)
class GoesWith:
    """A fact that divides the runs as a difference does, with its value by run."""

    fact: str
    values: Mapping[str, Value]


@dataclass(frozen=True)
class Difference:
    """A row on which runs disagree.

    groups: runs that agree, one group per verdict or per set of overlapping intervals. left_out: runs that
    say nothing here. unknown: facts that might divide the runs alike, but some run does not record.
    """

    row: Row
    what: What
    groups: Groups
    left_out: tuple[str, ...]
    goes_with: tuple[GoesWith, ...]
    unknown: tuple[str, ...]


def differing_facts(runs: Sequence[Run]) -> tuple[str, ...]:
    """Facts in which at least two runs differ, in the order of FACTS."""
    pairs = list(itertools.combinations(runs, 2))
    return tuple(
        fact.name
        for fact in FACTS
        if any(differ(fact.name, one.facts[fact.name], other.facts[fact.name]) for one, other in pairs)
    )


def difference(row: Row, runs: Sequence[Run]) -> Difference | None:
    """How the runs disagree on a row; None when they do not, or when fewer than two say something."""
    said = {name: entry for name, entry in row.entries.items() if not entry.absent}
    verdicts: dict[str | None, list[str]] = {}
    for name, entry in said.items():
        verdicts.setdefault(entry.verdict, []).append(name)
    what: What
    if len(verdicts) > 1:
        groups = tuple(tuple(names) for names in verdicts.values())
        what = _what(verdicts)
    else:
        said = {name: entry for name, entry in said.items() if entry.sound}
        groups, what = _apart(said), "figures apart"
    if len(groups) < 2:
        return None
    left_out = tuple(run.name for run in runs if run.name not in said)
    inside = [run for run in runs if run.name in said]
    known, unknown = _goes_with(groups, inside)
    return Difference(row, what, groups, left_out, known, unknown)


def _what(verdicts: Mapping[str | None, object]) -> What:
    if SUPPORTED in verdicts and REFUTED in verdicts:
        return "opposite verdicts"
    decided = SUPPORTED in verdicts or REFUTED in verdicts
    return "decided on some" if INCONCLUSIVE in verdicts and decided else "measurable on some"


def _ends(entry: Entry) -> tuple[float, float]:
    assert entry.value is not None
    if entry.low is None or entry.high is None:
        slack = _EXACT * abs(entry.value)
        return entry.value - slack, entry.value + slack
    return entry.low, entry.high


def _apart(said: Mapping[str, Entry]) -> Groups:
    """Runs whose intervals overlap, directly or through others, together; ordered from low to high."""
    groups: list[list[str]] = []
    reach = 0.0
    for name in sorted(said, key=lambda name: _ends(said[name])):
        low, high = _ends(said[name])
        if groups and low <= reach:
            groups[-1].append(name)
            reach = max(reach, high)
        else:
            groups.append([name])
            reach = high
    return tuple(tuple(sorted(group)) for group in groups)


def _goes_with(groups: Groups, runs: Sequence[Run]) -> tuple[tuple[GoesWith, ...], tuple[str, ...]]:
    known, unknown = [], []
    for fact in FACTS:
        values = {run.name: run.facts[fact.name] for run in runs}
        told = [[values[name] for name in group if values[name] is not None] for group in groups]
        recorded = sum(map(len, told))
        if recorded == len(values):
            if _divides(fact.name, told):
                known.append(GoesWith(fact.name, values))
        elif recorded and _apart_by(fact.name, told):
            unknown.append(fact.name)
    return tuple(known), tuple(unknown)


def _apart_by(name: str, groups: Sequence[Sequence[Value]]) -> bool:
    """Whether no two groups share a value of a fact."""
    pairs = itertools.combinations(groups, 2)
    return all(differ(name, one, other) for mine, others in pairs for one in mine for other in others)


def _divides(name: str, groups: Sequence[Sequence[Value]]) -> bool:
    """Whether a fact divides the runs as the groups do: the same value within each group and another one in
    every other; or numbers, each group on a stretch of its own.
    """
    if not _apart_by(name, groups):
        return False
    if all(not differ(name, group[0], value) for group in groups for value in group):
        return True
    numbers = [[value for value in group if _is_number(value)] for group in groups]
    if any(len(found) < len(group) for found, group in zip(numbers, groups, strict=True)):
        return False
    ends = sorted((min(found), max(found)) for found in numbers)
    return all(before[1] < after[0] for before, after in itertools.pairwise(ends))


def _is_number(value: Value) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
