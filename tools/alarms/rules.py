"""How the rounds of every timed check with a target come to be: arms, rounds, cells that share them.

Targets, guards and confidence are those of claims.toml. What a module of claims/ decides itself, arms and
rounds, stands here once more; a test holds it against the modules. Where a figure divides by what a model
predicts from other arms, one arm stands for the prediction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from harness.registry import Check, Registry
from harness.statistics import DEFAULT_ROUNDS, MIN_ROUNDS

DIRECT_ROUNDS: Final = 40
COLD_ROUNDS: Final = 240


@dataclass(frozen=True)
class Run:
    """One paired run. material: what is run against itself in its place. arms: with the A/A arm. rounds:
    valid ones wanted. cells: of the check that look at these rounds, each with a subject of its own.
    control: the side of the figure that runs twice. positive: one arm is a positive control. roof: the figure
    is a share of the roof.
    """

    material: str
    arms: int
    rounds: int
    cells: int = 1
    control: Literal["subject", "reference"] = "reference"
    positive: bool = False
    roof: bool = False


@dataclass(frozen=True)
class Rule:
    """The paired runs of a check in some profiles."""

    check: str
    profiles: tuple[str, ...]
    runs: tuple[Run, ...]


_QUICK, _FULL, _PAPER = ("quick",), ("full",), ("paper",)
_ALL: Final = (*_QUICK, *_FULL, *_PAPER)
_SMOKE_TOO: Final = ("smoke", *_ALL)
_LARGE: Final = (*_FULL, *_PAPER)
_BOTH: Final = ("tiles", "tiles, 1 thread")
_DECODE: Final = ("decode", "decode, 1 thread")
_COLD: Final = Run("cold", 4, MIN_ROUNDS, cells=2)
_DIRECT: Final = Run("direct", 4, MIN_ROUNDS, cells=2)


def _engines(rounds: int, first_arms: int) -> tuple[Run, ...]:
    """Two engines of ours and others, then llama.cpp beside vLLM in three forms."""
    first = Run("decode", first_arms, rounds, control="subject")
    return (first, *[Run("decode", 3, rounds, control="subject")] * 3)


RULES: Final = (
    Rule("1.time", _ALL, (Run("decode", 3, MIN_ROUNDS),) * 3),
    Rule("2.time", _ALL, tuple(Run(name, 3, DEFAULT_ROUNDS) for name in _BOTH for _ in range(3))),
    Rule("3.speed", _SMOKE_TOO, (Run("tiles, 1 thread", 3, DEFAULT_ROUNDS),)),
    Rule(
        "3.roof",
        _SMOKE_TOO,
        tuple(Run(name, 2, DEFAULT_ROUNDS, control="subject", roof=True) for name in _BOTH),
    ),
    Rule("0.regime", _SMOKE_TOO, (Run("tiles", 3, DEFAULT_ROUNDS),)),
    Rule("5.stream_time", _ALL, (Run("cold", 3, MIN_ROUNDS, control="subject"),) * 2),
    Rule("6.time", _ALL, (Run("direct", 4, DIRECT_ROUNDS, positive=True),)),
    Rule("6.time_mapping", _LARGE, (Run("cold", 4, COLD_ROUNDS, positive=True),)),
    Rule("6.expert_walk", (*_QUICK, *_FULL), (Run("decode", 3, DEFAULT_ROUNDS),) * 4),
    Rule("6.expert_walk", _PAPER, (Run("decode", 3, MIN_ROUNDS),) * 4),
    Rule("7.time", _ALL, tuple(Run(name, 3, DEFAULT_ROUNDS) for name in _DECODE)),
    Rule("7.overlap_sync", _ALL, (Run("direct", 5, MIN_ROUNDS),) * 7),
    Rule("7.overlap_staged", _ALL, (Run("direct", 5, MIN_ROUNDS, control="subject"),) * 7),
    Rule("7.overlap_gain", _ALL, (Run("direct", 5, MIN_ROUNDS),) * 4),
    Rule("7.overlap_wash", _ALL, (Run("direct", 4, MIN_ROUNDS),) * 2),
    Rule("8.time", _ALL, (_COLD, _COLD, _COLD, _DIRECT)),
    Rule("8.time_64mb", _ALL, (_COLD, _COLD, _COLD, _DIRECT)),
    Rule("8.time_grid", _LARGE, (*[_COLD] * 13, _DIRECT)),
    Rule("8.streaming", _ALL, (_DIRECT,)),
    Rule("e2e.ranking", _QUICK, _engines(MIN_ROUNDS, 4)),
    Rule("e2e.ranking", _LARGE, _engines(DEFAULT_ROUNDS, 3)),
    Rule("e2e.bytes_ranking", _QUICK, _engines(MIN_ROUNDS, 4)),
    Rule("e2e.bytes_ranking", _LARGE, _engines(DEFAULT_ROUNDS, 3)),
    Rule("e2e.same_moe", _QUICK, (Run("decode", 3, MIN_ROUNDS, control="subject"),)),
    Rule("e2e.same_moe", _LARGE, (Run("decode", 3, DEFAULT_ROUNDS, control="subject"),)),
)


def judged(registry: Registry) -> Iterator[Check]:
    """The timed checks that have a target in at least one cell: those that can raise an alarm."""
    for check in registry.checks:
        if "timed" in check.kinds and any(cell.target is not None for cell in check.cells):
            yield check
