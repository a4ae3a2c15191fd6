"""Whether another engine computes the same function: its logits beside ours, token by token, on the same
context.

Both engines round activations to 8 bits, each in its own way, so that logits differ a little, and near ties
may fall the other way. How much that rounding does is measured on our engine alone: its logits with 8-bit
activations against its logits with f32 activations and keys and values. From it follow two rules;
`difference` is that of the two engines over our `TOP` largest logits of a position, less its median, since
softmax ignores a shift:

1. The median over all positions of the root mean square of `difference` is at most `NOISE_FACTOR` times what
   the rounding does to ours, at least `LEAST_SHARE` and at most `LARGEST_SHARE` of the spread (the standard
   deviation over the vocabulary). An engine with other weights or another graph is at about the spread
   itself.
2. Where the greedy choices differ, both gaps (the logit of an engine's own choice less that of the other's)
   are at most twice the largest |difference| over the other ids of that position. The two ids that compete
   are left out: with them the rule could not fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from baselines.llamacpp import LlamaCpp
from claims.turns import Course
from engine.session import Session
from harness.statistics import median

TOP: Final = 32
NOISE_FACTOR: Final = 3.0
LEAST_SHARE: Final = 0.02
LARGEST_SHARE: Final = 0.5

EXACT: Final[dict[str, int]] = {"q8_activations": 0, "kv_f32": 1}
"""Options of a session that rounds no activations."""

Logits = NDArray[np.float32]


@dataclass(frozen=True)
class Divergence:
    """Where the greedy choices differ. position: tokens after the prompt that were fed before it.

    ours, theirs: the choices. our_logits, their_logits: of (ours, theirs), in this order.
    """

    position: int
    ours: int
    theirs: int
    our_logits: tuple[float, float]
    their_logits: tuple[float, float]
    tolerance: float

    @property
    def our_gap(self) -> float:
        """By how much our engine prefers its choice."""
        return self.our_logits[0] - self.our_logits[1]

    @property
    def their_gap(self) -> float:
        """By how much the other engine prefers its choice."""
        return self.their_logits[1] - self.their_logits[0]

    @property
    def near_tie(self) -> bool:
        """Whether rounding explains it."""
        return max(self.our_gap, self.their_gap) <= self.tolerance

    def to_json(self) -> dict[str, Any]:
        """As printed by `cflow bench --json`."""
        gaps = {"our_gap": self.our_gap, "their_gap": self.their_gap, "near_tie": self.near_tie}
        return {**asdict(self), **gaps}


@dataclass(frozen=True)
class Position:
    """One position: root mean squares of the difference of the engines and of our own rounding, and the
    spread.
    """

    difference: float
    rounding: float
    spread: float
    divergence: Divergence | None


@dataclass(frozen=True)
class Agreement:
    """All positions of a course, the one after the prompt first."""

    positions: tuple[Position, ...]

    @property
    def divergences(self) -> tuple[Divergence, ...]:
        """In order of position."""
        return tuple(one.divergence for one in self.positions if one.divergence is not None)

    @property
    def tokens_equal(self) -> bool:
        """Whether every greedy choice is the same."""
        return not self.divergences

    @property
    def difference(self) -> float:
        """Median over the positions."""
        return median([one.difference for one in self.positions])

    @property
    def limit(self) -> float:
        """The largest `difference` that 8-bit activations explain."""
        rounding = median([one.rounding for one in self.positions])
        spread = median([one.spread for one in self.positions])
        return min(max(NOISE_FACTOR * rounding, LEAST_SHARE * spread), LARGEST_SHARE * spread)

    def fault(self) -> str | None:
        """Why the other engine computes something else; None when it does not."""
        if not self.difference <= self.limit:  # NaN is a fault, too
            return (
                f"logits differ by {self.difference:.3g} (median over {len(self.positions)} positions); "
                f"rounding of activations explains {self.limit:.3g}"
            )
        wrong = next((one for one in self.divergences if not one.near_tie), None)
        if wrong is None:
            return None
        return (
            f"after {wrong.position} tokens ours is {wrong.ours}, theirs {wrong.theirs}, no near tie: "
            f"logits {wrong.our_logits[0]:.4g}, {wrong.our_logits[1]:.4g} here, {wrong.their_logits[0]:.4g}, "
            f"{wrong.their_logits[1]:.4g} there, tolerance {wrong.tolerance:.3g}"
        )

    def to_json(self) -> dict[str, Any]:
        """As printed by `cflow bench --json`."""
        first = self.divergences[0].to_json() if self.divergences else None
        return {
            "positions": len(self.positions),
            "tokens_equal": self.tokens_equal,
            "divergences": len(self.divergences),
            "first_divergence": first,
            "logit_difference": self.difference,
            "logit_difference_limit": self.limit,
            "fault": self.fault(),
        }


def compare(
    course: Course, session: Session, exact: Session, baselines: Sequence[LlamaCpp]
) -> list[Agreement]:
    """Feeds the course to all engines, and to ours without rounding: a session with `EXACT` options.

    One agreement per baseline, in their order.
    """
    positions: list[list[Position]] = [[] for _ in baselines]
    session.reset()
    exact.reset()
    for baseline in baselines:
        baseline.reset()
    for index, fed in enumerate([course.prompt, *((token,) for token in course.tokens)]):
        our, plain = session.decode(fed), exact.decode(fed)
        top = largest(our)
        for baseline, found in zip(baselines, positions, strict=True):
            answer = baseline.decode(fed, logits_of=[int(token) for token in top])
            baseline.rest()  # or its threads spin beside ours
            their_top = np.array(answer.logits)
            found.append(compare_position(index, our, plain, top, their_top, *answer.top[0]))
    return [Agreement(tuple(found)) for found in positions]


def largest(logits: Logits) -> NDArray[np.intp]:
    """Ids of the `TOP` largest logits, the largest first; the lower id of equal ones."""
    return np.argsort(-logits, kind="stable")[:TOP]


def compare_position(
    index: int,
    our: Logits,
    plain: Logits,
    top: NDArray[np.intp],
    their_top: NDArray[np.float64],
    choice: int,
    choice_logit: float,
) -> Position:
    """One position, `index` tokens after the prompt.

    our, plain: our logits with and without rounding, float32 [vocab]. top: ids of our largest. their_top: the
    other engine's logits of these. choice, choice_logit: its greedy choice.
    """
    ours = int(top[0])
    competing = (top == ours) | (top == choice)
    difference = _centred(their_top - our[top])
    others = difference[~competing] if not competing.all() else difference
    divergence = None
    if choice != ours:
        divergence = Divergence(
            position=index,
            ours=ours,
            theirs=choice,
            our_logits=(float(our[ours]), float(our[choice])),
            their_logits=(float(their_top[0]), choice_logit),
            tolerance=2.0 * float(np.abs(others).max()),
        )
    rounding = _centred(our[top].astype(np.float64) - plain[top])
    return Position(_rms(others), _rms(rounding), float(our.std()), divergence)


def _centred(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values - np.median(values)


def _rms(values: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(values**2)))
