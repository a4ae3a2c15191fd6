"""The table of false alarms and power, and where it stands in the documents."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from harness.registry import Check, Registry
from harness.results import write_atomically
from tools.alarms.outcomes import EFFECT, RUNS, WANTED_POWER, Bootstrap, Simulated, ends
from tools.alarms.rules import Rule, Run, rules
from tools.alarms.stored import Store
from tools.docs.markdown import code, table

ALARM_RATE: Final = 0.05
BOUND: Final = 0.01
PAGE: Final = Path("docs/develop/alarms.md")
BEGIN, END = "<!-- table: python -m tools.alarms false --write -->", "<!-- end of the table -->"


@dataclass(frozen=True)
class Row:
    """A rule and what its runs came to.

    alarms: runs out of `runs` that decide although the truth lies on an end of the target; calm_alarms: the
    same out of runs of rounds that no rule voids. missed: runs in which an interval misses the truth, were
    there no controls, the larger number of both. equal: runs with a wrong verdict on equal arms, the larger
    number of both. decided (the share whose controls hold), power (at EFFECT) and smallest (effect that is
    seen often enough) are of the calm runs; None: there are none, or none of EFFECTS is seen. stood_in: they
    are of other rounds than the check's own kind.
    """

    rule: Rule
    runs: int
    alarms: int
    calm_alarms: int | None
    missed: int
    equal: int
    decided: float | None
    power: float | None
    smallest: float | None
    stood_in: bool

    @property
    def worst(self) -> int:
        """The larger number of alarms."""
        return max(self.alarms, self.calm_alarms or 0)

    @property
    def sees(self) -> bool | None:
        """Whether EFFECT is seen often enough; None: unknown."""
        return None if self.power is None else self.power >= WANTED_POWER


def most_alarms(runs: int = RUNS, rate: float = ALARM_RATE, bound: float = BOUND) -> int:
    """The most alarms that a check with that rate raises in so many runs, but with a probability of at most
    `bound`: the quantile of the binomial distribution.
    """
    below = 0.0
    for alarms in range(runs + 1):
        below += math.comb(runs, alarms) * rate**alarms * (1 - rate) ** (runs - alarms)
        if below >= 1 - bound:
            return alarms
    return runs


def rows(
    store: Store, registry: Registry, runs: int = RUNS, only: Sequence[Rule] | None = None
) -> Iterator[Row]:
    """The rows of all rules, in their order, made by as many processes as there are processors.

    Raises ValueError when a material has no rounds.
    """
    pairs = [(rule, registry.check(rule.check)) for rule in (rules(registry) if only is None else only)]
    groups: dict[Run, list[tuple[Rule, Check]]] = {}
    for rule, check in pairs:  # what is arranged alike is replayed once
        groups.setdefault(rule.runs[0], []).append((rule, check))
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        made = pool.map(partial(_rows, store, runs), groups.values())
        found = {(one.rule.check, one.rule.profiles): one for group in made for one in group}
    yield from (found[rule.check, rule.profiles] for rule, _ in pairs)


def _rows(store: Store, runs: int, pairs: Sequence[tuple[Rule, Check]]) -> list[Row]:
    stored, quiet = Bootstrap(store, pairs, runs), Bootstrap(store, pairs, runs, calm_only=True)
    found = []
    for rule, check in pairs:
        simulated = stored.simulate(rule, check)
        if simulated is None:
            missing = ", ".join({run.material for run in rule.runs})
            raise ValueError(f"{rule.check}: {missing}: no stored rounds")
        found.append(row(simulated, quiet.simulate(rule, check), check))
    return found


def row(found: Simulated, calm: Simulated | None, check: Check) -> Row:
    """What runs of a rule came to. calm: those of rounds that no rule voids."""
    targets = list(dict.fromkeys(cell.target for cell in check.cells if cell.target is not None))
    first = found.rule.runs[0]
    places = [(target, end) for target in targets for end in ends(target, first)]
    both = [found] if calm is None else [found, calm]
    effects = [] if calm is None else [calm.smallest_effect(target, end) for target, end in places]
    seen = [effect for effect in effects if effect is not None]
    return Row(
        rule=found.rule,
        runs=len(found.intervals),
        alarms=max(found.alarms(target, end) for target, end in places),
        calm_alarms=None if calm is None else max(calm.alarms(target, end) for target, end in places),
        missed=max(one.missed for one in both),
        equal=0 if first.roof else max(one.wrong_if_equal(target) for one in both for target in targets),
        decided=None if calm is None else calm.decided,
        power=None if calm is None else min(calm.power(target, end, EFFECT) for target, end in places),
        smallest=max(seen) if len(seen) == len(places) else None,
        stood_in=calm is not None and calm.stood_in,
    )


def text(found: Sequence[Row]) -> str:
    """The rows as Markdown; all of as many runs."""
    heads = (
        "Check",
        "Profiles",
        "Arms x rounds",
        "Cells",
        f"Alarms of {found[0].runs}",
        "of calm rounds",
        "Without controls",
        "Wrong on equal arms",
        "Controls hold",
        f"Sees {EFFECT:.0%}",
        f"Seen with {WANTED_POWER:.0%}",
    )
    return table(heads, (_cells(row) for row in found))


def _cells(row: Row) -> tuple[str, ...]:
    runs = row.rule.runs
    shapes = dict.fromkeys(f"{run.arms} x {run.rounds}" for run in runs)
    said = "" if row.sees is not False else " (too few)"
    return (
        code(row.rule.check) + (" *" if row.stood_in else ""),
        ", ".join(row.rule.profiles),
        ", ".join(shapes),
        str(sum(run.cells for run in runs)),
        str(row.alarms),
        "-" if row.calm_alarms is None else str(row.calm_alarms),
        str(row.missed),
        str(row.equal),
        _share(row.decided),
        _share(row.power) + said,
        "-" if row.smallest is None else f"{row.smallest:.1%}",
    )


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def put(page: Path, made: str) -> None:
    """Replaces the table of a page. Raises ValueError when its marks are missing."""
    content = page.read_text(encoding="utf-8")
    if content.count(BEGIN) != 1 or content.count(END) != 1:
        raise ValueError(f"{page}: the marks of the table are missing: {BEGIN} and {END}")
    before, after = content.split(BEGIN)[0], content.split(END)[1]
    write_atomically(page, f"{before}{BEGIN}\n\n{made}\n{END}{after}")
