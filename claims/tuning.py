"""The settings with which llama.cpp is fastest on a model: it gets the tuning that our engine gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

from baselines.llamacpp import LlamaCpp
from claims.turns import Course

DEFAULT_POLL: Final = 50
_POLLS: Final = (0, DEFAULT_POLL, 100)
_TOKENS: Final = 16
_REPEATS: Final = 3


@dataclass(frozen=True)
class Settings:
    """What differs between two tries; names as in `LlamaCpp.load`."""

    threads: int
    flash_attention: bool
    poll: int = DEFAULT_POLL


@dataclass(frozen=True)
class Tried:
    """Settings and the best nanoseconds per token over a few repeats."""

    settings: Settings
    ns_per_token: float

    def to_json(self) -> dict[str, Any]:
        """As printed by `cflow bench --json`."""
        return {**asdict(self.settings), "ns_per_token": self.ns_per_token}


def candidates(threads: int, sweep: bool) -> list[Settings]:
    """llama.cpp's defaults with flash attention on and off, or every combination with up to `threads`
    threads.
    """
    if not sweep:
        return [Settings(threads, flash) for flash in (True, False)]
    counts = range(threads, 0, -1)
    return [Settings(*one) for one in product(counts, (True, False), _POLLS)]


def load(
    baseline: LlamaCpp,
    gguf: Path,
    settings: Settings,
    cpus: Sequence[int],
    context: int,
    *,
    repack: bool = True,
) -> None:
    """Loads the model with these settings, on the first of `cpus`."""
    baseline.load(
        gguf,
        settings.threads,
        cpus=cpus[: settings.threads],
        flash_attention=settings.flash_attention,
        poll=settings.poll,
        context=context,
        repack=repack,
    )


def tune(
    baseline: LlamaCpp,
    gguf: Path,
    tries: Sequence[Settings],
    cpus: Sequence[int],
    course: Course,
) -> list[Tried]:
    """Tries the settings one after another; fastest first in the answer."""
    tokens = course.tokens[:_TOKENS]
    found = []
    for settings in tries:
        load(baseline, gguf, settings, cpus, course.context)
        best = min(_ns_per_token(baseline, course.prompt, tokens) for _ in range(_REPEATS))
        found.append(Tried(settings, best))
    return sorted(found, key=lambda tried: tried.ns_per_token)


def _ns_per_token(baseline: LlamaCpp, prompt: Sequence[int], tokens: Sequence[int]) -> float:
    baseline.reset()
    baseline.decode(prompt)
    return sum(baseline.follow(tokens).ns) / len(tokens)
