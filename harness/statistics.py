"""Statistics of paired rounds: medians with distribution-free intervals and the rules that make a figure
count.

The interval is the sign-test interval for a median (Conover, Practical Nonparametric Statistics, section
3.2): with n independent values and X ~ Binomial(n, 1/2), P(x[k] <= median <= x[n+1-k]) >= 1 - 2 P(X <= k -
1), whatever the distribution. It is computed on log ratios; the median and its ends keep their place under
exp, so it holds for ratios.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from harness.errors import EvidenceError
from harness.rounds import Side, Timed

MIN_ROUNDS: Final = 12
DEFAULT_ROUNDS: Final = 20
MAX_VOID_SHARE: Final = (1, 3)
"""As a fraction, so that exactly a third is exact."""
ONE_ARM_P: Final = 0.01
ROOF_LIMIT: Final = 1.03


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the two middle ones. Raises EvidenceError when there is none."""
    if not values:
        raise EvidenceError("median: no values")
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2.0


def sign_rank(n: int, confidence: float) -> int:
    """The largest k >= 1 with 2 P(Bin(n, 1/2) <= k - 1) <= 1 - confidence, or 0 when n is too small."""
    alpha = 1.0 - confidence
    tail, k = 0.0, 0
    for successes in range(n // 2 + 1):
        tail += math.comb(n, successes) * 0.5**n
        if 2.0 * tail > alpha:
            break
        k = successes + 1
    return k


def sign_interval(values: Sequence[float], confidence: float) -> tuple[float, float] | None:
    """Interval for the median of `values` with at least that confidence; None for too few values."""
    k = sign_rank(len(values), confidence)
    if k == 0:
        return None
    ordered = sorted(values)
    return ordered[k - 1], ordered[len(ordered) - k]


def binomial_tail(successes: int, n: int, p: float) -> float:
    """P(Bin(n, p) >= successes)."""
    return math.fsum(math.comb(n, i) * p**i * (1.0 - p) ** (n - i) for i in range(successes, n + 1))


@dataclass(frozen=True)
class TimedSummary:
    """What the rounds of a paired run give. `reasons`: why the figure cannot decide anything; empty when it
    can.

    value, low, high: median figure and interval (None when there are no rounds, or too few). a_a: interval of
    the control ratio. halves: median figure of the first and second half of the valid rounds. share: of the
    roof.
    """

    value: float | None
    low: float | None
    high: float | None
    confidence: float
    a_a: tuple[float, float] | None
    halves: tuple[float, float] | None
    valid: int
    void: int
    share: float | None
    reasons: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As stored in results.json."""
        return {
            "value": self.value,
            "low": self.low,
            "high": self.high,
            "confidence": self.confidence,
            "a_a": None if self.a_a is None else list(self.a_a),
            "halves": None if self.halves is None else list(self.halves),
            "valid": self.valid,
            "void": self.void,
            "share": self.share,
            "reasons": list(self.reasons),
        }


def figures(timed: Timed) -> list[float]:
    """The figure of every valid round, in time order."""
    return [timed.figure.of(one.samples, timed.roof) for one in timed.rounds if not one.void]


@dataclass(frozen=True)
class PositiveControl:
    """An arm that is known to help, and by how much more than the figure's reference it must at least."""

    arm: str
    margin: float


def summarise(
    timed: Timed, confidence: float, guard: float, positive: PositiveControl | None = None
) -> TimedSummary:
    """Applies every rule of evidence to a paired run.

    Args:
        timed: the run; its void rounds are marked already.
        confidence: of the interval, 1 - 0.05 / m for a check of m cells.
        guard: g; the A/A interval must lie inside [1 / (1 + g), 1 + g] and the halves agree within g.
        positive: its gain must lie above 1 + margin: where nothing can be seen to help, "no benefit" says
            nothing.
    """
    values = figures(timed)
    valid, void = len(values), len(timed.rounds) - len(values)
    reasons = []
    if timed.interrupted:
        reasons.append("the run was interrupted")
    if valid < MIN_ROUNDS:
        reasons.append(f"{valid} valid rounds, fewer than {MIN_ROUNDS}")
    if MAX_VOID_SHARE[1] * void > MAX_VOID_SHARE[0] * len(timed.rounds):
        rules = Counter(item.rule for one in timed.rounds for item in one.void)
        causes = ", ".join(f"{rule} {count}" for rule, count in sorted(rules.items()))
        reasons.append(f"{void} of {len(timed.rounds)} rounds void, more than a third ({causes})")
    reasons += _one_sided_voids(timed)
    interval = _log_interval(values, confidence)
    if valid and interval is None:
        reasons.append(f"{valid} valid rounds give no interval at confidence {confidence:.4f}")
    a_a = _control_interval(timed, confidence)
    reasons += _control_faults(timed, a_a, guard)
    reasons += _positive_faults(timed, confidence, positive)
    halves = None
    if valid >= 2:
        halves = _log_median(values[: valid // 2]), _log_median(values[valid - valid // 2 :])
        if not within(halves[1] / halves[0], guard):
            reasons.append(
                f"medians of the two halves differ by more than {guard:.1%}: {halves[0]:.4g}, {halves[1]:.4g}"
            )
    share, roof_faults = _roof_share(timed)
    reasons += roof_faults
    low, high = interval if interval is not None else (None, None)
    value = _log_median(values) if values else None
    return TimedSummary(value, low, high, confidence, a_a, halves, valid, void, share, tuple(reasons))


def within(ratio: float, guard: float) -> bool:
    """Whether a ratio lies inside [1 / (1 + g), 1 + g]."""
    return 1.0 / (1.0 + guard) <= ratio <= 1.0 + guard


def _log_median(values: Sequence[float]) -> float:
    return math.exp(median([math.log(value) for value in values]))


def _log_interval(values: Sequence[float], confidence: float) -> tuple[float, float] | None:
    interval = sign_interval([math.log(value) for value in values], confidence)
    return None if interval is None else (math.exp(interval[0]), math.exp(interval[1]))


def _control_interval(timed: Timed, confidence: float) -> tuple[float, float] | None:
    control = next((arm for arm in timed.arms if arm.control_of is not None), None)
    if control is None or control.control_of is None:
        return None
    ratios = []
    for one in timed.rounds:
        if not one.void:
            twin, original = one.samples[control.name].sample, one.samples[control.control_of].sample
            ratios.append((twin.ns / twin.work) / (original.ns / original.work))
    return _log_interval(ratios, confidence)


def _control_faults(timed: Timed, a_a: tuple[float, float] | None, guard: float) -> list[str]:
    if all(arm.control_of is None for arm in timed.arms):
        return ["no A/A control arm"]
    if a_a is not None and not (within(a_a[0], guard) and within(a_a[1], guard)):
        return [
            f"A/A interval [{a_a[0]:.4f}, {a_a[1]:.4f}], allowed [{1 / (1 + guard):.4f}, {1 + guard:.4f}]"
        ]
    return []


def _positive_faults(timed: Timed, confidence: float, positive: PositiveControl | None) -> list[str]:
    if positive is None:
        return []
    reference = timed.figure.reference
    if not isinstance(reference, Side) or positive.arm not in {arm.name for arm in timed.arms}:
        return [f"no positive control: {positive.arm}, against the reference of the figure"]
    gains = []
    for one in timed.rounds:
        if not one.void:
            plain, helped = one.samples[reference.arm].sample, one.samples[positive.arm].sample
            gains.append((plain.ns / plain.work) / (helped.ns / helped.work))
    interval = _log_interval(gains, confidence)
    if interval is not None and interval[0] > 1.0 + positive.margin:
        return []
    found = "no interval" if interval is None else f"[{interval[0]:.4f}, {interval[1]:.4f}]"
    return [
        f"the positive control {positive.arm} gains {found}, needed above {1.0 + positive.margin:.4g}: "
        "a benefit could not have been seen"
    ]


def _one_sided_voids(timed: Timed) -> list[str]:
    blamed = [
        arm for one in timed.rounds for arm in sorted({void.arm for void in one.void if void.arm is not None})
    ]
    reasons = []
    for arm in timed.arms:
        count = blamed.count(arm.name)
        p = binomial_tail(count, len(blamed), 1.0 / len(timed.arms))
        if count and p < ONE_ARM_P:
            reasons.append(f"voids fall on one arm: {arm.name}, {count} of {len(blamed)} (p = {p:.2g})")
        if arm.control_of is None:
            continue
        # An arm and its twin do the same work: a fault of that work is spread over both.
        count += blamed.count(arm.control_of)
        p = binomial_tail(count, len(blamed), 2.0 / len(timed.arms))
        if count and p < ONE_ARM_P:
            reasons.append(
                f"voids fall on one arm and its A/A twin: {arm.control_of}, "
                f"{count} of {len(blamed)} (p = {p:.2g})"
            )
    return reasons


def _roof_share(timed: Timed) -> tuple[float | None, list[str]]:
    if timed.roof is None:
        return None, []
    valid = [one for one in timed.rounds if not one.void]
    shares = {}
    for arm in timed.arms:
        rates = [one.samples[arm.name].sample.bytes / one.samples[arm.name].sample.ns for one in valid]
        if rates:
            shares[arm.name] = median(rates) / timed.roof.bytes_per_ns
    faults = [
        f"roof void: {name} reads at {share:.3f} of it, above {ROOF_LIMIT}"
        for name, share in shares.items()
        if share > ROOF_LIMIT
    ]
    probes = [one.probe_bytes_per_ns for one in valid]
    if probes and median(probes) > ROOF_LIMIT * timed.roof.bytes_per_ns:
        faults.append(
            f"roof void: the median probe of the valid rounds reads {median(probes):.4g} bytes per ns, "
            f"above {ROOF_LIMIT} of its {timed.roof.bytes_per_ns:.4g}"
        )
    return shares.get(timed.figure.subject.arm), faults
