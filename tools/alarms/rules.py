"""How the rounds of every timed check with a target come to be: arms, rounds, cells that share them.

Targets, guards, confidence and rounds are those of claims.toml. What a module of claims/ decides itself, the
arms, stands here once more. Where a figure divides by what a model predicts from other arms, one arm stands
for the prediction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

from harness.registry import Check, Registry


@dataclass(frozen=True)
class Run:
    """One paired run. material: what is run against itself in its place. arms: with the A/A arm. cells: of
    the check that look at these rounds, each with a subject of its own. control: the side of the figure that
    runs twice. positive: one arm is a positive control. roof: the figure is a share of the roof. rounds:
    valid ones wanted, see `rules`.
    """

    material: str
    arms: int
    cells: int = 1
    control: Literal["subject", "reference"] = "reference"
    positive: bool = False
    roof: bool = False
    rounds: int = 0


@dataclass(frozen=True)
class Rule:
    """The paired runs of a check in some profiles. Of two such profiles the rounds may differ in number."""

    check: str
    profiles: tuple[str, ...]
    runs: tuple[Run, ...]


_QUICK: Final = ("quick",)
_LARGE: Final = ("full", "paper")
_ALL: Final = (*_QUICK, *_LARGE)
_SMOKE_TOO: Final = ("smoke", *_ALL)
_BOTH: Final = ("tiles", "tiles, 1 thread")
_DECODE: Final = ("decode", "decode, 1 thread")
_COLD: Final = Run("cold", 4, cells=2)
_DIRECT: Final = Run("direct", 4, cells=2)


def _engines(first_arms: int) -> tuple[Run, ...]:
    """Two engines of ours and others, then llama.cpp beside vLLM in three forms."""
    first = Run("decode", first_arms, control="subject")
    return (first, *[Run("decode", 3, control="subject")] * 3)


ARRANGED: Final = (
    Rule("1.time", _ALL, (Run("decode", 3),) * 3),
    Rule("2.time", _ALL, tuple(Run(name, 3) for name in _BOTH for _ in range(3))),
    Rule("3.speed", _SMOKE_TOO, (Run("tiles, 1 thread", 3),)),
    Rule(
        "3.roof",
        _SMOKE_TOO,
        tuple(Run(name, 2, control="subject", roof=True) for name in _BOTH),
    ),
    Rule("0.regime", _SMOKE_TOO, (Run("tiles", 3),)),
    Rule("5.stream_time", _ALL, (Run("cold", 3, control="subject"),) * 2),
    Rule("6.time", _ALL, (Run("direct", 4, positive=True),)),
    Rule("6.time_mapping", _LARGE, (Run("cold", 4, positive=True),)),
    Rule("6.expert_walk", _ALL, (Run("decode", 3),) * 4),
    Rule("7.time", _ALL, tuple(Run(name, 3) for name in _DECODE)),
    Rule("7.overlap_sync", _ALL, (Run("direct", 5),) * 7),
    Rule("7.overlap_staged", _ALL, (Run("direct", 5, control="subject"),) * 7),
    Rule("7.overlap_gain", _ALL, (Run("direct", 5),) * 4),
    Rule("7.overlap_wash", _ALL, (Run("direct", 4),) * 2),
    Rule("8.time", _ALL, (_COLD, _COLD, _COLD, _DIRECT)),
    Rule("8.time_64mb", _ALL, (_COLD, _COLD, _COLD, _DIRECT)),
    Rule("8.time_grid", _LARGE, (*[_COLD] * 13, _DIRECT)),
    Rule("8.streaming", _ALL, (_DIRECT,)),
    Rule("e2e.ranking", _QUICK, _engines(4)),
    Rule("e2e.ranking", _LARGE, _engines(3)),
    Rule("e2e.bytes_ranking", _QUICK, _engines(4)),
    Rule("e2e.bytes_ranking", _LARGE, _engines(3)),
    Rule("e2e.same_moe", _ALL, (Run("decode", 3, control="subject"),)),
)


def rules(registry: Registry) -> list[Rule]:
    """ARRANGED with the rounds that the registry declares: a rule for each number of them."""
    found = []
    for arranged in ARRANGED:
        cells = registry.check(arranged.check).cells
        declared = next(cell.rounds for cell in cells if cell.target is not None) or {}
        for wanted in dict.fromkeys(declared[profile] for profile in arranged.profiles):
            profiles = tuple(profile for profile in arranged.profiles if declared[profile] == wanted)
            runs = tuple(replace(run, rounds=wanted) for run in arranged.runs)
            found.append(Rule(arranged.check, profiles, runs))
    return found


def judged(registry: Registry) -> Iterator[Check]:
    """The timed checks that have a target in at least one cell: those that can raise an alarm."""
    for check in registry.checks:
        if "timed" in check.kinds and any(cell.target is not None for cell in check.cells):
            yield check
