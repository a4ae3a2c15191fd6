"""The part of the second opinion that reads paired runs. Like harness/check.py it shares no code with the
judges.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from harness.check_samples import middle, raw_faults, void_rules, whole

_RELATIVE_ERROR: Final = 1e-9


@dataclass(frozen=True)
class TimedFinding:
    """Figure and interval that the rounds give; `doubts`: every reason why they decide nothing."""

    value: float | None
    low: float | None
    high: float | None
    doubts: tuple[str, ...]


def same(stored: float | None, derived: float | None) -> bool:
    """Whether two numbers agree to a relative 1e-9, or neither is there."""
    if stored is None or derived is None:
        return stored is derived
    return math.isclose(stored, derived, rel_tol=_RELATIVE_ERROR)


def timed_finding(
    evidence: Mapping[str, Any],
    summary: Mapping[str, Any] | None,
    guard: float,
    cell_count: int,
    report: Callable[[str], None],
    positive: tuple[str, float] | None = None,
) -> TimedFinding:
    """Judges a paired run anew.

    Args:
        evidence, summary: as stored. guard: g of the A/A rule. cell_count: m of the confidence 1 - 0.05 / m.
        report: called with every disagreement between the file and its raw material.
        positive: name and margin of the positive control.
    """
    faults = raw_faults(evidence)
    for fault in faults:
        report(fault)
    if not whole(evidence):
        return TimedFinding(None, None, None, tuple(faults))
    voids = void_rules(evidence["arms"], evidence["rounds"])
    for one, found in zip(evidence["rounds"], voids, strict=True):
        stored = sorted((void["rule"], void["arm"] or "") for void in one["void"])
        if stored != sorted(found):
            report(f"round {one['seq']}: void is {stored}, its raw material gives {sorted(found)}")
    valid = [one for one, found in zip(evidence["rounds"], voids, strict=True) if not found]
    try:
        logs = [math.log(_figure(evidence, one)) for one in valid]
    except (ValueError, KeyError, TypeError, ZeroDivisionError) as error:
        report(f"the figure cannot be computed: {error!r}")
        return TimedFinding(None, None, None, ("no figure",))
    alpha = Fraction(1, 20 * cell_count)
    interval = _interval(logs, alpha)
    control = _control(evidence, valid, alpha)
    halves = None
    if len(logs) >= 2:
        halves = [math.exp(middle(logs[: len(logs) // 2])), math.exp(middle(logs[(len(logs) + 1) // 2 :]))]
    wrong, over = _roof_faults(evidence), _over_roof(evidence, valid)
    # A run that says itself that its roof is void is honest; one that passes over it is not.
    for fault in (*wrong, *([] if (summary or {}).get("reasons") else over)):
        report(fault)
    doubts = (
        *faults,
        *_doubts(evidence, voids, logs, interval, control, halves, math.log1p(guard)),
        *_positive_doubts(evidence, valid, alpha, positive),
        *wrong,
        *over,
        *_probe_over_roof(evidence, valid),
    )
    value = math.exp(middle(logs)) if logs else None
    low, high = (None, None) if interval is None else interval
    derived = {
        "value": value,
        "low": low,
        "high": high,
        "confidence": float(1 - alpha),
        "valid": len(valid),
        "void": len(voids) - len(valid),
        "share": _share(evidence, valid, evidence["figure"]["subject"]["arm"]),
        "a_a": control,
        "halves": halves,
    }
    _compare_summary(summary, derived, report)
    return TimedFinding(value, low, high, doubts)


def _compare_summary(
    summary: Mapping[str, Any] | None, derived: Mapping[str, Any], report: Callable[[str], None]
) -> None:
    if summary is None:
        report("no summary of the rounds")
        return
    for key, value in derived.items():
        stored = summary[key]
        ends = zip(stored, value, strict=True) if isinstance(value, list) and stored else [(stored, value)]
        if not all(same(one, other) for one, other in ends):
            report(f"summary.{key} is {stored}, the rounds give {value}")


def _roof(evidence: Mapping[str, Any]) -> float:
    return float(
        max(pattern["bytes"] / ns for pattern in evidence["roof"]["patterns"] for ns in pattern["ns"])
    )


def _measure(sample: Mapping[str, Any], measure: str) -> float:
    counters = sample["counters"]
    if measure == "computing":
        return float((sample["ns"] - counters["io_wait_ns"]) / sample["work"])
    if measure == "reading":
        return float(counters["read_ns"] / sample["work"])
    above, below = {"time": ("ns", "work"), "speed": ("work", "ns"), "bandwidth": ("bytes", "ns")}[measure]
    return float(sample[above] / sample[below])


def _side(one: Mapping[str, Any], side: Mapping[str, Any]) -> float:
    return _measure(one["samples"][side["arm"]], side["measure"])


def _longest(one: Mapping[str, Any], paths: Mapping[str, Any]) -> float:
    """What a model predicts: the longest path through computing and reading."""
    compute, read = _side(one, paths["compute"]), _side(one, paths["read"])
    return max(float(share[0] * compute + share[1] * read) for share in paths["terms"])


def _figure(evidence: Mapping[str, Any], one: Mapping[str, Any]) -> float:
    figure = evidence["figure"]
    value, reference = figure["scale"] * _side(one, figure["subject"]), figure["reference"]
    if reference == "roof":
        value /= _roof(evidence)
    elif reference is not None:
        value /= _longest(one, reference) if "terms" in reference else _side(one, reference)
    expected = figure.get("expected")
    if expected is not None:
        value *= _longest(one, expected["below"]) / _longest(one, expected["above"])
    return float(value)


def _interval(logs: Sequence[float], alpha: Fraction) -> list[float] | None:
    """Sign-test interval, in whole numbers: the outermost ranks whose two tails hold at most alpha of 2^n
    signs.
    """
    n, signs, rank = len(logs), 0, 0
    while True:
        signs += math.comb(n, rank)
        if 2 * signs > alpha * 2**n:
            break
        rank += 1
    if rank == 0:
        return None
    ordered = sorted(logs)
    return [math.exp(ordered[rank - 1]), math.exp(ordered[-rank])]


def _control(
    evidence: Mapping[str, Any], valid: Sequence[Mapping[str, Any]], alpha: Fraction
) -> list[float] | None:
    names = {arm["name"] for arm in evidence["arms"]}
    for arm in evidence["arms"]:
        if arm["control_of"] in names:
            pairs = [(one["samples"][arm["name"]], one["samples"][arm["control_of"]]) for one in valid]
            return _interval([math.log(_measure(x, "time") / _measure(y, "time")) for x, y in pairs], alpha)
    return None


def _positive_doubts(
    evidence: Mapping[str, Any],
    valid: Sequence[Mapping[str, Any]],
    alpha: Fraction,
    positive: tuple[str, float] | None,
) -> list[str]:
    """A control that should help and cannot be seen to."""
    if positive is None:
        return []
    name, margin = positive
    reference = evidence["figure"]["reference"]
    if (
        not isinstance(reference, Mapping)
        or "arm" not in reference
        or all(arm["name"] != name for arm in evidence["arms"])
    ):
        return ["no positive control"]
    pairs = [(one["samples"][reference["arm"]], one["samples"][name]) for one in valid]
    interval = _interval([math.log(_measure(x, "time") / _measure(y, "time")) for x, y in pairs], alpha)
    return [] if interval is not None and interval[0] > 1 + margin else [f"{name} does not gain"]


def _doubts(
    evidence: Mapping[str, Any],
    voids: Sequence[Sequence[tuple[str, str]]],
    logs: Sequence[float],
    interval: Sequence[float] | None,
    control: Sequence[float] | None,
    halves: Sequence[float] | None,
    guard: float,
) -> list[str]:
    """Why a paired run decides nothing, whatever its figure."""
    doubts = []
    void_count = len([found for found in voids if found])
    if evidence["interrupted"]:
        doubts.append("interrupted")
    if len(logs) < 12 or interval is None:
        doubts.append("too few valid rounds")
    if 3 * void_count > len(voids):
        doubts.append("more than a third of the rounds void")
    blamed = [arm for found in voids for arm in {arm for _, arm in found if arm}]
    for arm in set(blamed):
        if _tail(blamed.count(arm), len(blamed), Fraction(1, len(evidence["arms"]))) < Fraction(1, 100):
            doubts.append(f"voids fall on {arm}")
    for twin in evidence["arms"]:
        pair = (twin["name"], twin["control_of"])
        both = len([arm for arm in blamed if arm in pair])
        if twin["control_of"] is None or not both:
            continue
        if _tail(both, len(blamed), Fraction(2, max(2, len(evidence["arms"])))) < Fraction(1, 100):
            doubts.append(f"voids fall on {pair[1]} and its twin")
    if control is None or max(abs(math.log(end)) for end in control) > guard * (1 + _RELATIVE_ERROR):
        doubts.append("the A/A control fails")
    if halves is None or abs(math.log(halves[0] / halves[1])) > guard * (1 + _RELATIVE_ERROR):
        doubts.append("the halves disagree")
    return doubts


def _tail(successes: int, n: int, p: Fraction) -> Fraction:
    return 1 - sum((math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(successes)), Fraction(0))


def _share(evidence: Mapping[str, Any], valid: Sequence[Mapping[str, Any]], arm: str) -> float | None:
    if evidence["roof"] is None or not valid:
        return None
    return middle([_measure(one["samples"][arm], "bandwidth") for one in valid]) / _roof(evidence)


def _probe_over_roof(evidence: Mapping[str, Any], valid: Sequence[Mapping[str, Any]]) -> list[str]:
    """A roof that the read probes beat was measured on a busier machine."""
    if evidence["roof"] is None or not valid:
        return []
    share = middle([one["probe_bytes_per_ns"] for one in valid]) / _roof(evidence)
    return [f"the median probe is {share:.3f} of the roof, above 1.03"] if share > 1.03 else []


def _roof_faults(evidence: Mapping[str, Any]) -> list[str]:
    if evidence["roof"] is None or same(evidence["roof"]["bytes_per_ns"], _roof(evidence)):
        return []
    return [f"roof is {evidence['roof']['bytes_per_ns']}, its patterns give {_roof(evidence)}"]


def _over_roof(evidence: Mapping[str, Any], valid: Sequence[Mapping[str, Any]]) -> list[str]:
    if evidence["roof"] is None:
        return []
    faults = []
    for arm in evidence["arms"]:
        share = _share(evidence, valid, arm["name"])
        if share is not None and share > 1.03:
            faults.append(
                f"arm {arm['name']}: bandwidth is {share:.3f} of the roof, above 1.03: the roof is void"
            )
    return faults
