"""The interval of a factor between two runs: exact against enumeration and scipy, coverage by simulation."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from harness.errors import EvidenceError
from harness.shift import mann_whitney_counts, shift, shift_rank

FIGURES = st.lists(st.floats(0.01, 100.0), min_size=4, max_size=25)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 4), (3, 2), (4, 4), (5, 3)])
def test_counts_are_those_of_every_arrangement(n: int, m: int) -> None:
    found = Counter(
        sum(1 for x in base for y in set(range(n + m)) - set(base) if y < x)
        for base in itertools.combinations(range(n + m), n)
    )
    assert mann_whitney_counts(n, m) == tuple(found[u] for u in range(n * m + 1))


@pytest.mark.parametrize(("n", "m"), [(12, 12), (12, 20), (20, 20), (7, 31)])
def test_ranks_are_the_largest_that_the_exact_test_allows(n: int, m: int) -> None:
    for confidence in (0.95, 1 - 0.05 / 6, 1 - 0.05 / 80):
        k = shift_rank(n, m, confidence)
        assert k == shift_rank(m, n, confidence) > 0

        def p(u: int) -> float:
            """The two-sided p of scipy's exact test with u pairs below."""
            base, new = [float(i) for i in range(n)], [-1.0] * m
            # Sample values with exactly u pairs (x, y), y > x: whole rows of pairs, then a part of one.
            full, rest = divmod(u, n)
            new = [n + 1.0 + j for j in range(full)] + ([rest - 0.5] if rest else [])
            new += [-1.0 - j for j in range(m - len(new))]
            return float(stats.mannwhitneyu(new, base, alternative="two-sided", method="exact").pvalue)

        assert p(k - 1) <= 1 - confidence < p(k)


def test_too_few_rounds_have_an_estimate_and_no_interval() -> None:
    found = shift([1.0, 1.0], [2.0, 2.0], 0.95)
    assert found.ratio == pytest.approx(2.0)
    assert (found.low, found.high) == (None, None)
    assert shift_rank(2, 2, 0.95) == 0 and shift_rank(4, 4, 0.95) == 1


@given(FIGURES, FIGURES)
def test_swapping_the_runs_inverts_everything(base: list[float], new: list[float]) -> None:
    there, back = shift(base, new, 0.95), shift(new, base, 0.95)
    assert back.ratio == pytest.approx(1 / there.ratio)
    if there.low is None or there.high is None:
        assert back.low is None
        return
    assert (back.low, back.high) == (pytest.approx(1 / there.high), pytest.approx(1 / there.low))
    assert there.low <= there.ratio * (1 + 1e-12) and there.ratio <= there.high * (1 + 1e-12)


@given(FIGURES, FIGURES, st.floats(0.1, 10.0), st.randoms(use_true_random=False))
def test_scale_and_order(base: list[float], new: list[float], factor: float, shuffler: random.Random) -> None:
    plain = shift(base, new, 0.95)
    scaled = shift([factor * value for value in base], new, 0.95)
    assert scaled.ratio == pytest.approx(plain.ratio / factor)
    shuffler.shuffle(base)
    shuffler.shuffle(new)
    assert shift(base, new, 0.95) == plain
    wider = shift(base, new, 0.999)
    if plain.low is not None and plain.high is not None and wider.low is not None and wider.high is not None:
        assert wider.low <= plain.low and plain.high <= wider.high


def coverage(draw: Callable[[random.Random], float], scatter: float, confidence: float, runs: int) -> float:
    """Share of simulated pairs of runs (15 and 20 rounds) whose interval holds the true factor, 1.25."""
    rng, held = random.Random(20260824), 0
    for _ in range(runs):
        base = [math.exp(0.02 * draw(rng)) for _ in range(15)]
        new = [1.25 * math.exp(0.02 * scatter * draw(rng)) for _ in range(20)]
        found = shift(base, new, confidence)
        assert found.low is not None and found.high is not None
        held += found.low <= 1.25 <= found.high
    return held / runs


NOISES: dict[str, Callable[[random.Random], float]] = {
    "normal": lambda rng: rng.gauss(0.0, 1.0),
    "heavy tails": lambda rng: rng.gauss(0.0, 1.0) / max(rng.random(), 1e-3),
    "slow rounds": lambda rng: rng.expovariate(1.0) - math.log(2.0),
    "two modes": lambda rng: rng.choice((-1.0, 1.0)) + 0.1 * rng.gauss(0.0, 1.0),
}


@pytest.mark.parametrize("noise", NOISES)
def test_coverage_whatever_the_distribution(noise: str) -> None:
    # 600 runs: three standard errors below 0.95 are 0.923, below 0.9975 they are 0.991.
    assert coverage(NOISES[noise], 1.0, 0.95, 600) >= 0.923
    assert coverage(NOISES[noise], 1.0, 1 - 0.05 / 20, 600) >= 0.991


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("scatter", [0.25, 4.0])
def test_unequal_scatter_costs_as_much_coverage_as_is_said(noise: str, scatter: float) -> None:
    assert 0.86 <= coverage(NOISES[noise], scatter, 0.95, 400) <= 0.97


def test_a_real_change_is_found() -> None:
    rng = random.Random(7)
    base = [math.exp(0.02 * rng.gauss(0.0, 1.0)) for _ in range(20)]
    new = [0.9 * math.exp(0.02 * rng.gauss(0.0, 1.0)) for _ in range(20)]
    found = shift(base, new, 1 - 0.05 / 40)
    assert found.high is not None and found.high < 1 / 1.03
    assert (found.confidence, found.base_rounds, found.new_rounds) == (1 - 0.05 / 40, 20, 20)


@pytest.mark.parametrize("bad", [[], [0.0, 1.0], [-1.0], [math.inf], [math.nan]])
def test_what_is_not_a_figure_is_refused(bad: list[float]) -> None:
    with pytest.raises(EvidenceError, match="shift: "):
        shift([1.0, 2.0], bad, 0.95)
