"""Small texts for the tests of this folder; or `python -m tests.architectures.texts FOLDER`: its tokens."""

from __future__ import annotations

import random
import sys
from pathlib import Path

from architectures.prepared import Prepared, prepare
from architectures.stories import SEPARATOR

WORDS = (
    "the",
    "a",
    "cat",
    "dog",
    "king",
    "queen",
    "saw",
    "heard",
    "lost",
    "found",
    "small",
    "old",
    "red",
    "tree",
)


def stories(count: int, seed: int = 0) -> list[str]:
    """Short sentences of common words, all different."""
    rng = random.Random(seed)
    return [f"Story {i}: " + " ".join(rng.choices(WORDS, k=rng.randint(20, 60))) + "." for i in range(count)]


def write_text(path: Path, count: int = 60, seed: int = 0) -> Path:
    """A file of separated stories."""
    path.write_text(f"\n{SEPARATOR}\n".join(stories(count, seed)))
    return path


def small_data(folder: Path, vocab: int = 300) -> Prepared:
    """Prepared tokens of about 2,500 words."""
    return prepare([write_text(folder / "text.txt")], folder / "tokens", vocab)


if __name__ == "__main__":
    small_data(Path(sys.argv[1]))
