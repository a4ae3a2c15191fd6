"""Edits of the sample results, each with what the second opinion must say of it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

Data = dict[str, Any]
TIMED: Final = "6.hint"
"""The check that most edits spoil: three arms, 24 rounds, REFUTED."""


def record(data: Data, check_id: str = TIMED) -> Data:
    found: Data = next(item for item in data["checks"] if item["id"] == check_id)
    return found


def cell(data: Data, check_id: str = TIMED) -> Data:
    found: Data = record(data, check_id)["cells"][0]
    return found


def evidence(data: Data, check_id: str = TIMED) -> Data:
    found: Data = cell(data, check_id)["evidence"]
    return found


def rounds(data: Data) -> list[Data]:
    found: list[Data] = evidence(data)["rounds"]
    return found


def sample(data: Data, number: int, arm: str = "hint") -> Data:
    found: Data = rounds(data)[number]["samples"][arm]
    return found


def renumber(items: list[Data]) -> None:
    for seq, item in enumerate(items):
        item["seq"] = seq


@dataclass(frozen=True)
class Edit:
    """says: a part of what is reported. turns: the verdict of TIMED, as derived from the edited data."""

    apply: Callable[[Data], None]
    says: str
    turns: str = "REFUTED"


def both(data: Data, **change: Any) -> None:
    record(data).update(change)
    cell(data).update(change)


def flip_everywhere(data: Data) -> None:
    both(data, verdict="SUPPORTED")
    next(claim for claim in data["claims"] if claim["id"] == "6").update(verdict="SUPPORTED")


def drop_block(data: Data) -> None:
    """A balanced block taken out of the middle, the rest numbered anew: none seems to be missing."""
    del rounds(data)[6:12]
    renumber(rounds(data))
    evidence(data)["rounds_wanted"] = 12


def drop_pair(data: Data) -> None:
    for one in rounds(data):
        for place in (one["samples"], one["order"]):
            place.pop("hint") if isinstance(place, dict) else place.remove("hint")


def swap_rounds(data: Data) -> None:
    for key in ("samples", "order", "start_ns", "end_ns"):
        one, other = rounds(data)[4], rounds(data)[5]
        one[key], other[key] = other[key], one[key]


def swap_order(data: Data) -> None:
    order = rounds(data)[7]["order"]
    order[0], order[1] = order[1], order[0]


def remove_control(data: Data) -> None:
    evidence(data)["arms"].pop()
    for one in rounds(data):
        one["samples"].pop("no hint (A/A)")
        one["order"].remove("no hint (A/A)")


def replace_control(data: Data) -> None:
    """The samples of the original in the place of its twin: an A/A ratio of exactly 1."""
    for one in rounds(data):
        twin, original = one["samples"]["no hint (A/A)"], one["samples"]["no hint"]
        twin.update({key: original[key] for key in ("ns", "wall_ns")})


def relabel_control(data: Data) -> None:
    evidence(data)["arms"][2].update(control_of="hint")


def lower_roof(data: Data) -> None:
    roof = evidence(data, "3.roof")["roof"]
    for pattern in roof["patterns"]:
        pattern["bytes"] //= 2
    roof["bytes_per_ns"] /= 2


def swap_evidence(data: Data) -> None:
    one, other = cell(data, "3.speedup"), cell(data)
    for key in ("evidence", "summary"):
        one[key], other[key] = other[key], one[key]


def hide_wait(data: Data) -> None:
    """A void round made valid by taking the account away that voided it."""
    for arm in ("no hint", "no hint (A/A)"):
        sample(data, 3, arm)["run_delay_ns"] = None
    rounds(data)[3]["void"] = []


def widen_target(data: Data) -> None:
    data["registry"]["text"] = data["registry"]["text"].replace("[-inf, 1.03]", "[-inf, 1.3]")
    cell(data)["target"] = [None, 1.3]
    flip_everywhere(data)


def duplicate(data: Data) -> None:
    """The second record would be another try of which the better one is kept."""
    data["checks"].append({**copy.deepcopy(record(data, "7.path")), "seq": len(data["checks"])})


def remove(data: Data) -> None:
    """A refuted record taken away, as if only others had been asked for."""
    data["checks"].remove(record(data))
    data["run"]["options"]["only"] = ["7"]
    next(claim for claim in data["claims"] if claim["id"] == "6").update(verdict="INCONCLUSIVE")


def backwards(data: Data) -> None:
    sample(data, 9)["counters"]["dense_bytes"] = sample(data, 8)["counters"]["dense_bytes"] - 1_000_000


def less_traffic(data: Data) -> None:
    """Bytes and counter agree, and disagree with the rounds beside them."""
    sample(data, 9)["bytes"] = sample(data, 9)["counters"]["dense_bytes"] = 250_000_000


BROKEN = "INCONCLUSIVE"
EDITS: Final[Mapping[str, Edit]] = {
    "verdict of the check": Edit(
        lambda data: record(data).update(verdict="SUPPORTED"), "verdict is SUPPORTED"
    ),
    "verdict of the cell": Edit(lambda data: cell(data).update(verdict="SUPPORTED"), "verdict is SUPPORTED"),
    "verdict of the claim": Edit(
        lambda data: data["claims"][5].update(verdict="SUPPORTED"), "claim 6: verdict is SUPPORTED"
    ),
    "verdict everywhere": Edit(flip_everywhere, "the raw material gives REFUTED"),
    "value": Edit(lambda data: both(data, value=1.01), "value is 1.01, the raw material gives"),
    "low": Edit(lambda data: both(data, low=1.0), "low is 1.0, the raw material gives"),
    "high": Edit(lambda data: both(data, high=1.02), "high is 1.02, the raw material gives"),
    "median of the summary": Edit(lambda data: cell(data)["summary"].update(value=1.01), "summary.value is"),
    "exact observation": Edit(
        lambda data: evidence(data, "7.path")["observations"].update(delayed_bytes=6 * 2**20), "value is 1.33"
    ),
    "first round dropped": Edit(lambda data: rounds(data).pop(0), "rounds are missing", BROKEN),
    "last round dropped": Edit(lambda data: rounds(data).pop(), "not whole blocks of 6", BROKEN),
    "last block dropped": Edit(
        lambda data: evidence(data).update(rounds=rounds(data)[:18]), "but the stop rule goes on", BROKEN
    ),
    "block dropped and numbered anew": Edit(drop_block, "the seed 61 gives", BROKEN),
    "one arm dropped": Edit(drop_pair, "order or samples do not hold every arm once", BROKEN),
    "one sample dropped": Edit(
        lambda data: rounds(data)[2]["samples"].pop("hint"), "do not hold every arm once", BROKEN
    ),
    "order of two arms swapped": Edit(swap_order, "ran outside its place in the order", BROKEN),
    "two rounds swapped": Edit(swap_rounds, "starts before round", BROKEN),
    "number of a round": Edit(lambda data: rounds(data)[5].update(seq=50), "rounds are missing", BROKEN),
    "enormous number of a round": Edit(
        lambda data: rounds(data)[5].update(seq=10**17), "missing [5, 24", BROKEN
    ),
    "numbers of two records": Edit(
        lambda data: (record(data).update(seq=9), record(data, "7.law").update(seq=8)), "do not ascend"
    ),
    "number left out": Edit(
        lambda data: data["checks"][-1].update(seq=40), "records are missing: sequence numbers [13, 14"
    ),
    "rounds overlap": Edit(
        lambda data: rounds(data)[4].update(start_ns=rounds(data)[3]["end_ns"] - 1),
        "round 4 starts before round 3 ends",
        BROKEN,
    ),
    "records overlap": Edit(
        lambda data: record(data, "7.path").update(started_ns=record(data, "7.law")["finished_ns"] - 1),
        "starts before 7.law ends",
    ),
    "round before its record": Edit(
        lambda data: rounds(data)[0].update(start_ns=1), "round 0 lies outside its record", BROKEN
    ),
    "sample before its round": Edit(
        lambda data: sample(data, 0).update(start_ns=1), "ran outside its place in the order", BROKEN
    ),
    "record ends before it begins": Edit(
        lambda data: record(data, "7.path").update(finished_ns=0), "finished_ns lies before started_ns"
    ),
    "time longer than the clock around it": Edit(
        lambda data: sample(data, 1).update(ns=10**9), "1000000000 ns measured inside", BROKEN
    ),
    "bytes that counters do not give": Edit(
        lambda data: sample(data, 1).update(bytes=1), "its counters add up to", BROKEN
    ),
    "counter goes backwards": Edit(backwards, "its counters add up to 299000000", BROKEN),
    "bytes unlike the other rounds": Edit(
        less_traffic, "bytes is 250000000, but 300000000 in round 0", BROKEN
    ),
    "work unlike the other rounds": Edit(
        lambda data: sample(data, 1).update(work=9.0), "work is 9.0, but 8.0 in round 0", BROKEN
    ),
    "counter taken away": Edit(
        lambda data: sample(data, 1)["counters"].pop("tokens"), "counters ['tokens'] are not those", BROKEN
    ),
    "roof lowered": Edit(lower_roof, "bandwidth is 1.570 of the roof, above 1.03"),
    "roof unlike its patterns": Edit(
        lambda data: evidence(data, "3.roof")["roof"].update(bytes_per_ns=50.0), "roof is 50.0"
    ),
    "control removed": Edit(remove_control, "A/A controls are []", BROKEN),
    "control copied from the original": Edit(replace_control, "summary.a_a is", BROKEN),
    "control of another arm": Edit(relabel_control, "summary.a_a is", BROKEN),
    "seed": Edit(lambda data: evidence(data).update(seed=62), "the seed 62 gives", BROKEN),
    "rounds wanted": Edit(
        lambda data: evidence(data).update(rounds_wanted=12), "the stop rule ends at 18", BROKEN
    ),
    "smaller profile": Edit(
        lambda data: data["run"].update(profile="smoke"), "recorded, but not part of profile smoke"
    ),
    "larger profile": Edit(
        lambda data: data["run"].update(profile="full"), "recorded, but not part of profile full"
    ),
    "target of the record": Edit(
        lambda data: cell(data).update(target=[None, 1.3]), "target is [None, 1.3], declared [None, 1.03]"
    ),
    "target everywhere": Edit(widen_target, "registry.sha256 is not the hash of registry.text", "SUPPORTED"),
    "hash of the registry": Edit(
        lambda data: data["registry"].update(sha256="0" * 64), "registry.sha256 is not the hash"
    ),
    "cache precondition": Edit(
        lambda data: evidence(data)["arms"][1].update(resident=[0.0, 0.1]), "'cache', 'hint'", BROKEN
    ),
    "expected output": Edit(
        lambda data: evidence(data)["arms"][0].update(expected_digest="0"), "the arm it repeats has", BROKEN
    ),
    "machine replaced": Edit(
        lambda data: data["machine"]["after"]["cpu"].update(model="Faster CPU"),
        "machine: cpu.model is 'Example 2-core CPU' before the run and 'Faster CPU' after it",
    ),
    "kernel replaced": Edit(
        lambda data: data["machine"]["after"].update(kernel=[]), "machine: kernel.release is '6.1.0'"
    ),
    "check recorded twice": Edit(duplicate, "7.path: recorded twice"),
    "check not declared": Edit(
        lambda data: data["checks"][-1].update(id="8.other"), "8.other: not declared in claims.toml"
    ),
    "record removed": Edit(remove, "records are missing: sequence numbers [8]", BROKEN),
    "void mark removed": Edit(
        lambda data: rounds(data)[3].update(void=[]), "round 3: void is [], its raw material gives"
    ),
    "void mark added": Edit(
        lambda data: rounds(data)[0].update(void=[{"rule": "steal", "arm": None}]),
        "round 0: void is [('steal', '')], its raw material gives []",
    ),
    "void mark removed with its cause": Edit(hide_wait, "run_delay_ns is None, unlike in round 0", BROKEN),
    "reasons removed": Edit(
        lambda data: cell(data, "8.readahead")["summary"].update(reasons=[]), "summary.reasons is []"
    ),
    "kind of the record": Edit(
        lambda data: record(data).update(kind="counted"), "kind counted does not count for this check", BROKEN
    ),
    "kind of exact evidence": Edit(
        lambda data: evidence(data, "7.path").update(kind="derived"),
        "evidence is derived, the check is counted",
    ),
    "evidence of two checks swapped": Edit(swap_evidence, "lies outside its record", BROKEN),
    "evidence taken away": Edit(
        lambda data: cell(data).update(evidence=None),
        "the raw material gives NOT MEASURABLE HERE",
        "NOT MEASURABLE HERE",
    ),
    "beyond": Edit(lambda data: record(data).update(beyond=True), "beyond is True, declared False"),
    "claim of the record": Edit(lambda data: record(data).update(claim="7"), "claim is '7', declared '6'"),
    "paper's figure": Edit(
        lambda data: cell(data, "2.l1.simulated").update(paper=7.68), "paper is 7.68, declared 7.29"
    ),
    "title of a claim": Edit(lambda data: data["claims"][0].update(title="x"), "claim 1: title is 'x'"),
}
