"""The part of the second opinion that derives intervals of repetitions. Like harness/check.py it shares no
code with the judges: Student's distribution is integrated here, not summed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

_PANELS = 2000

Triple = tuple[float | None, float | None, float | None]


def interval_of(evidence: Mapping[str, Any], alpha: float) -> Triple | None:
    """Value and ends of a figure with an interval at confidence 1 - alpha; None where `check.py` reduces.

    Nothing observed yet: three times None. Raises what a broken list raises (LookupError, ValueError, ...).
    """
    op, names = evidence["reduction"]["op"], evidence["reduction"]["of"]
    if op not in ("exp_mean", "exp_mean_difference", "count_so_far"):
        return None
    lists = [evidence["observations"][name] for name in names]
    lists = [items if isinstance(items, list) else [items] for items in lists]
    if len(lists) != (1 if op == "exp_mean" else 2):
        raise ValueError(f"{op} of {len(lists)} observations")
    if op == "count_so_far":
        return _count(lists[0], lists[1])
    logs = lists[0]
    if op == "exp_mean_difference":
        logs = [x - y for x, y in zip(lists[0], lists[1], strict=True)]
    return _mean(logs, alpha)


def incomplete(evidence: Mapping[str, Any], declared: object) -> str | None:
    """Why a figure with an interval must not be judged yet; None when it may. declared: runs to wait for.

    Raises ValueError or LookupError for evidence that contradicts itself or what was declared.
    """
    op, names = evidence["reduction"]["op"], evidence["reduction"]["of"]
    if not isinstance(declared, int):
        return "how many runs it takes was not declared"
    if op == "count_so_far":
        if evidence["observations"][names[1]] not in (declared, [declared]):
            raise ValueError(f"planned is {evidence['observations'][names[1]]}, declared {declared}")
        return None
    runs, lost = evidence["observations"]["runs"], evidence["observations"]["diverged"]
    values = [str(name) for name in runs if name not in lost]
    if len(names) == 2:  # a pair is two runs of one seed
        seeds = [name[len(names[0]) + 1 :] for name in values if name.startswith(f"{names[0]}-")]
        values = [seed for seed in seeds if f"{names[1]}-{seed}" in values]
    used = len(evidence["observations"][names[0]])
    sound = isinstance(runs, list) and len(runs) == len(set(runs)) and not set(lost) - set(runs)
    if not sound or used != len(values):
        raise ValueError(f"{used} values of the runs {runs}, diverged {lost}")
    return None if len(runs) == declared else f"{len(runs)} of {declared} runs"


def _count(outcomes: Sequence[float], planned: Sequence[float]) -> Triple:
    if not outcomes:
        return None, None, None
    if [one for one in outcomes if one not in (0, 1)] or len(planned) != 1 or planned[0] < len(outcomes):
        raise ValueError(f"outcomes {list(outcomes)} of {list(planned)}")
    ones = float(list(outcomes).count(1))
    return ones, ones, ones + planned[0] - len(outcomes)


def _mean(logs: Sequence[float], alpha: float) -> Triple:
    n = len(logs)
    if n == 0:
        return None, None, None
    mean = math.fsum(logs) / n
    if n == 1:
        return math.exp(mean), None, None
    # Sums of squares by pairs: no mean in between.
    pairs = math.fsum((logs[i] - logs[j]) ** 2 for i in range(n) for j in range(i))
    half = two_sided(alpha, n - 1) * math.sqrt(pairs / (n - 1)) / n
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def two_sided(alpha: float, freedom: int) -> float:
    """t with P(|T| > t) = alpha. With t = sqrt(n) tan(angle) the density is that of cos(angle)^(n-1)."""
    whole = math.sqrt(math.pi) * math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom + 1) / 2))
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        # The tail, not the middle part: what is small is integrated itself.
        if 2 * _integral(middle, freedom - 1) / whole > alpha:
            low = middle
        else:
            high = middle
    return math.sqrt(freedom) * math.tan((low + high) / 2)


def _integral(start: float, power: int) -> float:
    """Simpson's rule for cos^power from `start` to a right angle."""
    step = (math.pi / 2 - start) / _PANELS
    heights = [max(math.cos(start + i * step), 0.0) ** power for i in range(_PANELS + 1)]
    return (
        step / 3 * (heights[0] + heights[-1] + 4 * math.fsum(heights[1::2]) + 2 * math.fsum(heights[2:-1:2]))
    )
