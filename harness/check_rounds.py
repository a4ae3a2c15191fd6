"""The part of the second opinion that reads paired runs. Like harness/check.py it shares no code with the
judges.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

_STREAMS: Final = {
    f"{stream}_bytes" for stream in ("attention", "dense", "expert", "router", "head", "embedding")
}
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
    return math.isclose(stored, derived, rel_tol=_RELATIVE_ERROR, abs_tol=1e-300)


def middle(values: Sequence[float]) -> float:
    """Median."""
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


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
    faults = [*_control_faults(evidence), *_round_faults(evidence), *_sample_faults(evidence)]
    for fault in faults:
        report(fault)
    if any(set(one["samples"]) != {arm["name"] for arm in evidence["arms"]} for one in evidence["rounds"]):
        return TimedFinding(None, None, None, tuple(faults))
    for fault in _stop_faults(evidence):
        report(fault)
        faults.append(fault)
    voids = _voids(evidence["arms"], evidence["rounds"])
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


def _control_faults(evidence: Mapping[str, Any]) -> list[str]:
    """An A/A control that is not one: exactly one arm repeats another one under the same conditions."""
    arms = {arm["name"]: arm for arm in evidence["arms"]}
    controls = [arm for arm in evidence["arms"] if arm["control_of"] is not None]
    faults = []
    if len(controls) != 1:
        faults.append(f"A/A controls are {[arm['name'] for arm in controls]}, allowed: exactly one")
    for arm in controls:
        name, original = arm["name"], arms.get(arm["control_of"])
        if original is None or arm["control_of"] == name:
            faults.append(f"arm {name}: control_of is {arm['control_of']!r}, allowed: another arm")
            continue
        for key in ("expected_digest", "resident"):
            if arm[key] != original[key]:
                faults.append(f"arm {name}: {key} is {arm[key]!r}, the arm it repeats has {original[key]!r}")
    return faults


def _block_rounds(evidence: Mapping[str, Any]) -> int:
    """Rounds of a whole balanced block."""
    count = len(evidence["arms"])
    return count if count % 2 == 0 else 2 * count


def _stop_faults(evidence: Mapping[str, Any]) -> list[str]:
    """Rounds that the stop rule does not give: whole blocks until the wanted number is valid, at most half as
    many again as planned. Valid is what the rules said at that moment, with the rounds until then.
    """
    rounds, wanted, block = evidence["rounds"], evidence["rounds_wanted"], _block_rounds(evidence)
    planned = -(-wanted // block)
    limit = (planned + -(-planned // 2)) * block

    def enough(count: int) -> bool:
        valid = _voids(evidence["arms"], rounds[:count]).count([])
        return bool(valid >= wanted)

    ends = range(0, min(limit, len(rounds) + block), block)
    stop = next((count for count in ends if enough(count)), limit)
    if len(rounds) > stop:
        return [f"{len(rounds)} rounds, but {wanted} valid ones were wanted and the stop rule ends at {stop}"]
    if len(rounds) < stop and not evidence["interrupted"]:
        return [f"{len(rounds)} rounds, but the stop rule goes on, and the run was not interrupted"]
    return []


def _round_faults(evidence: Mapping[str, Any]) -> list[str]:
    """Rounds that are missing, out of time, or not in balanced order."""
    arms = [arm["name"] for arm in evidence["arms"]]
    rounds, faults = evidence["rounds"], []
    numbers = [one["seq"] for one in rounds]
    if numbers != list(range(len(rounds))):
        missing = sorted(set(range(max(numbers, default=-1) + 1)) - set(numbers))
        faults.append(f"rounds are missing or repeated: sequence {numbers}, missing {missing}")
    for one in rounds:
        if sorted(one["order"]) != sorted(arms) or sorted(one["samples"]) != sorted(arms):
            faults.append(f"round {one['seq']}: order or samples do not hold every arm once")
    block = _block_rounds(evidence)
    for start in range(0, len(rounds) - block + 1, block):
        orders = [one["order"] for one in rounds[start : start + block]]
        for position, arm in itertools.product(range(len(arms)), arms):
            if [order[position : position + 1] == [arm] for order in orders].count(True) != block // len(
                arms
            ):
                faults.append(f"rounds {start} to {start + block - 1} are not in balanced order")
                break
    if len(rounds) % block and not evidence["interrupted"]:
        faults.append(
            f"{len(rounds)} rounds are not whole blocks of {block}, and the run was not interrupted"
        )
    for before, after in itertools.pairwise(rounds):
        if after["start_ns"] < before["end_ns"]:
            faults.append(f"round {after['seq']} starts before round {before['seq']} ends")
    return faults


def _sample_faults(evidence: Mapping[str, Any]) -> list[str]:
    """Samples out of time order, longer than their wall time, or with bytes that their counters do not add up
    to.
    """
    faults = []
    for one in evidence["rounds"]:
        clock = one["start_ns"]
        for arm in one["order"]:
            sample = one["samples"].get(arm)
            if sample is None:
                continue
            where = f"round {one['seq']}, arm {arm}"
            if sample["start_ns"] < clock or sample["start_ns"] + sample["wall_ns"] > one["end_ns"]:
                faults.append(f"{where}: ran outside its place in the order")
            clock = sample["start_ns"] + sample["wall_ns"]
            if sample["ns"] > 1.01 * sample["wall_ns"] + 10_000:
                faults.append(
                    f"{where}: {sample['ns']} ns measured inside {sample['wall_ns']} ns of wall time"
                )
            streams = [count for counter, count in sample["counters"].items() if counter in _STREAMS]
            if streams and sum(streams) != sample["bytes"]:
                faults.append(f"{where}: bytes is {sample['bytes']}, its counters add up to {sum(streams)}")
    return faults


def _voids(
    arms: Sequence[Mapping[str, Any]], rounds: Sequence[Mapping[str, Any]]
) -> list[list[tuple[str, str]]]:
    """The void rules of every round as (rule, arm), arm "" for the whole round."""
    typical = middle([one["probe_bytes_per_ns"] for one in rounds]) if rounds else 0.0
    out = []
    for one in rounds:
        found = []
        if one["steal_ticks"] * 100 > one["cpu_ticks"]:
            found.append(("steal", ""))
        if one["probe_bytes_per_ns"] < 0.92 * typical:
            found.append(("bandwidth_probe", ""))
        for arm in arms:
            sample, wanted = one["samples"][arm["name"]], arm["resident"]
            if sample["run_delay_ns"] is not None and sample["run_delay_ns"] * 100 > sample["ns"] * 3:
                found.append(("run_queue", arm["name"]))
            if sample["counters"].get("engine_failed", 0) != 0:
                found.append(("engine_failed", arm["name"]))
            elif sample["digest"] != arm["expected_digest"]:
                found.append(("output", arm["name"]))
            if wanted is not None and not (
                sample["resident"] is not None and wanted[0] <= sample["resident"] <= wanted[1]
            ):
                found.append(("cache", arm["name"]))
            if sample["counters"].get("idle_cpu_ns", 0) * 100 > sample["wall_ns"]:
                found.append(("idle_engine", arm["name"]))
            counters = sample["counters"]
            if "asked_bytes" in counters and counters["asked_bytes"] != counters.get("device_bytes"):
                found.append(("device_bytes", arm["name"]))
        out.append(found)
    return out


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
