"""The part of the second opinion that looks at the raw rounds of a paired run: whether they are all there, in
the order that their seed gives, one after the other, with bytes that add up; and which of them are void. Like
harness/check.py it shares no code with the judges.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

_STREAMS: Final = {
    f"{stream}_bytes" for stream in ("attention", "dense", "expert", "router", "head", "embedding")
}
_STEADY: Final = ("work", "bytes")


def middle(values: Sequence[float]) -> float:
    """Median."""
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def missing_numbers(numbers: Sequence[int]) -> list[int]:
    """The first ten numbers that are not there although a greater one is."""
    found, last = set(numbers), max(numbers, default=-1)
    absent = (number for number in range(last + 1) if number not in found)
    return list(itertools.islice(absent, 10))


def raw_faults(evidence: Mapping[str, Any]) -> list[str]:
    """What a paired run does not leave behind in arms, rounds, samples, and the number of rounds."""
    faults = [*_control_faults(evidence), *_round_faults(evidence), *_sample_faults(evidence)]
    if whole(evidence):
        faults += [*_order_faults(evidence), *_steady_faults(evidence), *_stop_faults(evidence)]
    return faults


def whole(evidence: Mapping[str, Any]) -> bool:
    """Whether every round holds a sample of every arm."""
    arms = {arm["name"] for arm in evidence["arms"]}
    return all(set(one["samples"]) == arms for one in evidence["rounds"])


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
        valid = void_rules(evidence["arms"], rounds[:count]).count([])
        return bool(valid >= wanted)

    ends = range(planned * block, min(limit, len(rounds) + block), block)
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
        missing = missing_numbers(numbers)
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


def _order_faults(evidence: Mapping[str, Any]) -> list[str]:
    """Orders that are not those of the seed: rounds taken out and numbered anew, or another seed."""
    arms = [arm["name"] for arm in evidence["arms"]]
    for one, places in zip(evidence["rounds"], _orders(evidence["seed"], len(arms)), strict=False):
        wanted = [arms[place] for place in places]
        if one["order"] != wanted:
            return [
                f"round {one['seq']}: order is {one['order']}, the seed {evidence['seed']} gives {wanted}"
            ]
    return []


def _orders(seed: int, count: int) -> Iterator[list[int]]:
    """The order of `count` arms in round after round: Williams squares (for odd counts with their mirror
    images) whose arms and rows are shuffled by a generator of that seed.
    """
    rng = random.Random(seed)
    while True:
        names, rows = list(range(count)), list(range(count if count % 2 == 0 else 2 * count))
        rng.shuffle(names)
        rng.shuffle(rows)
        for row in rows:
            line = [(row + (place + 1) // 2 * (1 if place % 2 else -1)) % count for place in range(count)]
            yield [names[item] for item in (line if row < count else reversed(line))]


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


def _steady_faults(evidence: Mapping[str, Any]) -> list[str]:
    """Arms that do not do the same in every round. An arm repeats one thing, and its twin repeats the arm:
    where the output is right, work, bytes and what is counted are the same each time.
    """
    faults = []
    first: dict[str, tuple[int, Mapping[str, Any]]] = {}
    for one in evidence["rounds"]:
        for arm in evidence["arms"]:
            name, sample = arm["name"], one["samples"][arm["name"]]
            if sample["counters"].get("engine_failed") or sample["digest"] != arm["expected_digest"]:
                continue
            seq, reference = first.setdefault(arm["control_of"] or name, (one["seq"], sample))
            where = f"round {one['seq']}, arm {name}"
            for key in _STEADY:
                if sample[key] != reference[key]:
                    faults.append(f"{where}: {key} is {sample[key]}, but {reference[key]} in round {seq}")
            if sample["counters"].keys() != reference["counters"].keys():
                differ = sorted(sample["counters"].keys() ^ reference["counters"].keys())
                faults.append(f"{where}: counters {differ} are not those of round {seq}")
            if (sample["run_delay_ns"] is None) is not (reference["run_delay_ns"] is None):
                faults.append(f"{where}: run_delay_ns is {sample['run_delay_ns']}, unlike in round {seq}")
    return faults


def void_rules(
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
