"""By what factor a timed figure moved between two runs: an estimate and an interval from the rounds of both.

The rounds of two runs are two independent samples x (base) and y (new) of positive figures. On logarithms the
estimate is that of Hodges and Lehmann: the median of all n m differences log y[j] - log x[i]. Its interval
comes from inverting the Mann-Whitney test (Hollander, Wolfe and Chicken, Nonparametric Statistical Methods,
section 4.3). Let D(1) <= ... <= D(n m) be the ordered differences. If log y is distributed as log x + t, then
the number of differences below t is the Mann-Whitney statistic U without a shift, and
    P(t < D(k)) = P(U <= k - 1) = P(t > D(n m + 1 - k)),
so [D(k), D(n m + 1 - k)] holds t with a probability of at least 1 - 2 P(U <= k - 1), whatever the
distribution; ties make it larger. P(U = u) is the coefficient of q^u in the Gaussian binomial coefficient
(n + m over n), divided by the ordinary one: whole numbers, no approximation.

What is assumed is a pure shift: both runs scatter alike on the logarithmic scale. With four times the
scatter in one run, intervals of 95 % hold in 88 % to 95 % of cases, by distribution
(tests/harness/test_shift.py). And rounds of one run say nothing of what differs from run to run, so that
whoever judges asks for a margin.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness.errors import EvidenceError
from harness.statistics import median


@dataclass(frozen=True)
class Shift:
    """New over base. low, high: None when there are too few rounds for an interval at that confidence."""

    ratio: float
    low: float | None
    high: float | None
    confidence: float
    base_rounds: int
    new_rounds: int


@functools.cache
def mann_whitney_counts(n: int, m: int) -> tuple[int, ...]:
    """How many of the (n + m over n) arrangements of two samples give U = 0, 1, ..., n m."""
    counts = [1] + [0] * (n * m)
    for i in range(1, m + 1):
        # Times (1 - q^(n + i)), then divided by (1 - q^i).
        for u in range(n * m, n + i - 1, -1):
            counts[u] -= counts[u - n - i]
        for u in range(i, n * m + 1):
            counts[u] += counts[u - i]
    return tuple(counts)


def shift_rank(n: int, m: int, confidence: float) -> int:
    """The largest k >= 1 with 2 P(U <= k - 1) <= 1 - confidence, or 0 when n and m are too small."""
    alpha, arrangements = 1.0 - confidence, math.comb(n + m, n)
    tail, k = 0, 0
    for u, count in enumerate(mann_whitney_counts(n, m)[: (n * m + 1) // 2]):
        tail += count
        if 2 * tail / arrangements > alpha:
            break
        k = u + 1
    return k


def shift(base: Sequence[float], new: Sequence[float], confidence: float) -> Shift:
    """The factor from the figures of the base rounds to those of the new rounds.

    Raises:
        EvidenceError: a run without rounds, or a figure that is not a positive number.
    """
    if not base or not new:
        raise EvidenceError(f"shift: {len(base)} and {len(new)} rounds, allowed: at least one each")
    for value in (*base, *new):
        if not (value > 0 and math.isfinite(value)):
            raise EvidenceError(f"shift: found the figure {value}, allowed: finite and above 0")
    logs = [math.log(value) for value in base]
    differences = sorted(math.log(value) - log for value in new for log in logs)
    k = shift_rank(len(base), len(new), confidence)
    low = math.exp(differences[k - 1]) if k else None
    high = math.exp(differences[-k]) if k else None
    return Shift(math.exp(median(differences)), low, high, confidence, len(base), len(new))
