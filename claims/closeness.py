"""How close another engine's logits are to ours where its weights have a format of their own: shown, not
judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from claims.turns import Course
from engine.session import Session
from harness.statistics import median

Likely = Sequence[tuple[int, float]]
"""The most likely next tokens as (id, log probability), the first the greedy choice."""


@dataclass(frozen=True)
class Closeness:
    """Over the positions after the prompt. difference: median of the root mean square of the difference of
    logits, over the other engine's most likely tokens, less its median, since softmax ignores a shift.
    spread: median of the standard deviation of our logits over the vocabulary. same_choice: positions with
    the same greedy token.
    """

    positions: int
    same_choice: int
    difference: float
    spread: float

    def to_json(self) -> dict[str, float]:
        """As printed by `cflow bench --json`."""
        return asdict(self)


def closeness(course: Course, session: Session, likely: Sequence[Likely]) -> Closeness:
    """Our logits along the course beside `likely`, one entry for each token of the course, in order."""
    session.reset()
    differences, spreads, same = [], [], 0
    fed = (course.prompt, *((token,) for token in course.tokens[:-1]))
    for tokens, theirs in zip(fed, likely, strict=True):
        ours = session.decode(tokens)
        ids = [token for token, _ in theirs]
        apart = np.array([value for _, value in theirs]) - ours[ids].astype(np.float64)
        apart -= np.median(apart)
        differences.append(float(np.sqrt(np.mean(apart**2))))
        spreads.append(float(ours.std()))
        same += int(np.argmax(ours)) == ids[0]
    return Closeness(len(likely), same, median(differences), median(spreads))
