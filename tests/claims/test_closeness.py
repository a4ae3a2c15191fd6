"""How close another engine's logits are, on made-up logits."""

from __future__ import annotations

import numpy as np
import pytest

from claims.closeness import closeness
from claims.turns import Course

LOGITS = np.array([[3.0, 1.0, 0.0, -4.0], [0.0, 2.0, 1.0, -3.0]], np.float32)


class MadeUpSession:
    """Gives one row of logits after another."""

    def __init__(self) -> None:
        self.fed: list[tuple[int, ...]] = []

    def reset(self) -> None:
        self.fed.clear()

    def decode(self, tokens: tuple[int, ...]) -> np.ndarray:
        self.fed.append(tuple(tokens))
        return LOGITS[len(self.fed) - 1]


def likely(row: np.ndarray, shift: float) -> list[tuple[int, float]]:
    return [(int(token), float(row[token]) + shift) for token in np.argsort(-row)[:3]]


def test_a_shift_is_no_difference_and_an_error_is_one() -> None:
    session, course = MadeUpSession(), Course((5, 6), (7, 8), (8, 9))
    same = closeness(course, session, [likely(LOGITS[0], -3.0), likely(LOGITS[1], 4.0)])
    assert session.fed == [(5, 6), (7,)]
    assert (same.positions, same.same_choice, same.difference) == (2, 2, 0.0)
    assert same.spread == pytest.approx(np.median(LOGITS.std(axis=1)))
    other = [[(1, 9.0), (0, 3.0), (2, 0.0)], likely(LOGITS[1], 0.0)]
    found = closeness(course, session, other)
    assert found.same_choice == 1
    assert found.difference == pytest.approx(np.sqrt(64 / 3) / 2)  # median of that and 0
