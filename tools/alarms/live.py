"""Runs of equal arms, measured now: each arm does the same work with sessions and memory of its own.

What the bootstrap cannot show, a difference between two things that ought to be the same, shows here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from claims.timing import open_bench, progress_line
from harness.paired import alike, run_pairs
from harness.registry import Registry
from harness.results import write_atomically
from harness.rounds import Timed
from harness.statistics import summarise
from tools.alarms.materials import material
from tools.alarms.outcomes import Interval, Simulated, Strictness
from tools.alarms.replay import arm_factors, control_of, figure, subjects
from tools.alarms.rules import Rule, Run, rules

FORM: Final = 1


def live_run(run: Run, folder: Path, seed: int) -> Timed:
    """One paired run of equal arms. folder: of the models. Raises KeyboardInterrupt, CflowError."""
    kind = material(run.material)
    with open_bench(kind.threads) as bench, ExitStack() as stack:
        make = kind.maker(stack, bench, folder)
        timed = run_pairs(
            alike([make(name) for name in arm_factors(run, 1.0)]),
            figure(run),
            bench.probes(),
            control_of=control_of(run),
            seed=seed,
            rounds=run.rounds,
            roof=bench.roof() if run.roof else None,
            progress=progress_line(run.material),
        )
    if timed.interrupted:
        raise KeyboardInterrupt
    return timed


def rules_of(registry: Registry, profile: str, only: Sequence[str] | None = None) -> list[Rule]:
    """The rules of a profile. A share of the roof compares nothing, and is left out. Raises ValueError."""
    found = [
        rule
        for rule in rules(registry)
        if profile in rule.profiles and not any(run.roof for run in rule.runs)
    ]
    known = [rule.check for rule in found]
    for name in only or ():
        if name not in known:
            raise ValueError(f"no check {name!r} in profile {profile}; there are {', '.join(known)}")
    return [rule for rule in found if not only or rule.check in only]


def cells_of(timed: Timed, run: Run, strict: Strictness) -> list[dict[str, Any]]:
    """What each cell came to, without its positive control: of equal arms none is faster."""
    found = []
    for subject in subjects(run):
        view = Timed(**{**vars(timed), "figure": figure(run, subject)})
        summary = summarise(view, strict.confidence, strict.guard)
        found.append({"low": summary.low, "high": summary.high, "reasons": list(summary.reasons)})
    return found


def repetitions(path: Path, profile: str) -> dict[str, list[list[dict[str, Any]]]]:
    """What a file holds: per check, per repetition, the cells. Raises ValueError for another profile."""
    if not path.exists():
        return {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        form, found, checks = data["form"], data["profile"], data["checks"]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: not a file of live runs: {error!r}") from error
    if (form, found) != (FORM, profile):
        raise ValueError(f"{path}: form {form}, profile {found!r}; wanted {FORM}, {profile!r}")
    return dict(checks)


def go_on(
    path: Path, registry: Registry, wanted: Sequence[Rule], profile: str, times: int, folder: Path, seed: int
) -> Iterator[tuple[Rule, int]]:
    """Measures what the file has not yet, repetition by repetition, and yields what was added.

    The file is written after every check; runs that are arranged alike are measured once a repetition, and
    judged by the rule of each check.
    """
    for repetition in range(times):
        measured: dict[tuple[Run, int], Timed] = {}
        for rule in wanted:
            checks = repetitions(path, profile)
            if len(checks.get(rule.check, [])) > repetition:
                continue
            cells: list[dict[str, Any]] = []
            for index, run in enumerate(rule.runs):
                key = run, rule.runs[:index].count(run)
                if key not in measured:
                    measured[key] = live_run(run, folder, seed + 1000 * repetition + len(measured))
                cells += cells_of(measured[key], run, Strictness.of(registry.check(rule.check), run))
            checks.setdefault(rule.check, []).append(cells)
            write_atomically(
                path, json.dumps({"form": FORM, "profile": profile, "checks": checks}, indent=1) + "\n"
            )
            yield rule, repetition


def outcome(rule: Rule, found: Sequence[Sequence[dict[str, Any]]]) -> Simulated:
    """Live repetitions of a check, to be asked as replayed ones are."""
    runs = tuple(tuple(_interval(cell) for cell in cells) for cells in found)
    return Simulated(rule, runs)


def _interval(cell: dict[str, Any]) -> Interval:
    low, high = cell["low"], cell["high"]
    if low is None or high is None:
        return Interval(0.0, float("inf"), False)
    return Interval(float(low), float(high), not cell["reasons"])
