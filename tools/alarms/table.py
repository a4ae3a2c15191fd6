"""The table of false alarms and power, and where it stands in the documents."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.registry import Check, Registry
from harness.results import write_atomically
from tools.alarms.outcomes import EFFECT, RUNS, WANTED_POWER, Bootstrap, Simulated, ends
from tools.alarms.rules import RULES, Rule
from tools.alarms.stored import Store
from tools.docs.markdown import code, table

ALARM_RATE: Final = 0.05
BOUND: Final = 0.01
PAGE: Final = Path("docs/develop/alarms.md")
BEGIN, END = "<!-- table: python -m tools.alarms false --write -->", "<!-- end of the table -->"


@dataclass(frozen=True)
class Row:
    """A rule and what its runs came to.

    alarms: runs out of `runs` that decide although the truth lies on an end of the target. equal: runs with a
    wrong verdict on equal arms. quiet_runs: those from quiet rounds, which `decided` (the share whose
    controls hold), `power` (at EFFECT) and `smallest` are of; None: no rounds are quiet, or no effect up to
    100 %.
    """

    rule: Rule
    runs: int
    alarms: int
    equal: int
    quiet_runs: int
    decided: float | None
    power: float | None
    smallest: float | None

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


def rows(store: Store, registry: Registry, runs: int = RUNS, rules: Sequence[Rule] = RULES) -> Iterator[Row]:
    """The rows of all rules, one after another."""
    bootstrap = Bootstrap(store, runs)
    pairs = [(rule, registry.check(rule.check)) for rule in rules]
    for rule, check in pairs:
        yield row(bootstrap.simulate(rule, check, pairs), check)


def row(found: Simulated, check: Check) -> Row:
    """What runs of a rule came to, replayed or live."""
    targets = list(dict.fromkeys(cell.target for cell in check.cells if cell.target is not None))
    places = [(target, end) for target in targets for end in ends(target, found.rule.runs[0])]
    powers = [found.power(target, end, EFFECT) for target, end in places]
    smallest = [found.smallest_effect(target, end) for target, end in places]
    quiet = [one for cell in found.quiet_cells for one in cell]
    known = [power for power in powers if power is not None]
    effects = [effect for effect in smallest if effect is not None]
    return Row(
        rule=found.rule,
        runs=len(found.intervals),
        alarms=max(found.alarms(target, end) for target, end in places),
        equal=0 if found.rule.runs[0].roof else max(found.wrong_if_equal(target) for target in targets),
        quiet_runs=sum(found.quiet),
        decided=sum(one.decides for one in quiet) / len(quiet) if quiet else None,
        power=min(known) if known else None,
        smallest=max(effects) if len(effects) == len(places) else None,
    )


def text(found: Sequence[Row]) -> str:
    """The rows as Markdown."""
    heads = (
        "Check",
        "Profiles",
        "Arms x rounds",
        "Cells",
        "Alarms at an end",
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
        code(row.rule.check),
        ", ".join(row.rule.profiles),
        ", ".join(shapes),
        str(sum(run.cells for run in runs)),
        f"{row.alarms} of {row.runs}",
        f"{row.equal} of {row.runs}",
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
