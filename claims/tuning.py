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
_PROMPTS: Final = 2
_PROMPT_GAIN: Final = 1.02
"""What other settings must be worth to a prompt to be loaded for it: less is noise of so few tries."""


@dataclass(frozen=True)
class Settings:
    """What differs between two tries; names as in `LlamaCpp.load`."""

    threads: int
    flash_attention: bool
    poll: int = DEFAULT_POLL


@dataclass(frozen=True)
class Tried:
    """Settings and the best nanoseconds per token over a few repeats, decoding and of the prompt."""

    settings: Settings
    ns_per_token: float
    prompt_ns_per_token: float

    def to_json(self) -> dict[str, Any]:
        """As printed by `cflow bench --json`."""
        speeds = {"ns_per_token": self.ns_per_token, "prompt_ns_per_token": self.prompt_ns_per_token}
        return {**asdict(self.settings), **speeds}


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
    mmap: bool,
    repack: bool = True,
) -> None:
    """Loads the model with these settings, on the first of `cpus`.

    mmap: weights that are not repacked stay in the file's mapping, on its pages; otherwise they are read into
    memory of the C library, on huge pages where `baseline` was made with them.
    """
    baseline.load(
        gguf,
        settings.threads,
        cpus=cpus[: settings.threads],
        flash_attention=settings.flash_attention,
        poll=settings.poll,
        context=context,
        mmap=mmap,
        repack=repack,
    )


def tune(
    baseline: LlamaCpp,
    gguf: Path,
    tries: Sequence[Settings],
    cpus: Sequence[int],
    course: Course,
    *,
    mmap: bool,
) -> list[Tried]:
    """Tries the settings one after another; those that decode fastest come first in the answer."""
    tokens = course.tokens[:_TOKENS]
    # The repeats go on where the last one ended: a long prompt would take more time than all of them.
    context = len(course.prompt) + _REPEATS * len(tokens)
    found = []
    for settings in tries:
        load(baseline, gguf, settings, cpus, context, mmap=mmap)
        prompt_ns = min(_prompt_ns(baseline, course.prompt) for _ in range(_PROMPTS))
        token_ns = min(sum(baseline.follow(tokens).ns) for _ in range(_REPEATS))
        found.append(Tried(settings, token_ns / len(tokens), prompt_ns / len(course.prompt)))
    return sorted(found, key=lambda tried: tried.ns_per_token)


def for_prompts(tried: Sequence[Tried]) -> Settings | None:
    """Settings with which a prompt is faster than with those that decode fastest; None: those serve both.

    One context has one choice of flash attention, and what is best for one token need not be for many.
    """
    best = min(tried, key=lambda one: one.prompt_ns_per_token)
    gain = tried[0].prompt_ns_per_token / best.prompt_ns_per_token
    return best.settings if gain > _PROMPT_GAIN else None


def _prompt_ns(baseline: LlamaCpp, prompt: Sequence[int]) -> int:
    baseline.reset()
    return baseline.decode(prompt).ns
