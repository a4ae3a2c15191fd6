"""The second opinion: edited results are caught, and it stands on its own."""

from __future__ import annotations

import ast
import itertools
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import harness.check as module
from harness import check_cells, registry
from harness.check import check
from harness.check_records import misplaced
from harness.errors import ResultsError
from harness.kinds import VERDICTS
from harness.results import load
from harness.verdict import combine, place
from tests.harness.make_sample import SAMPLE_DIR

Data = dict[str, Any]
Edit = Callable[[Data], None]
Edited = Callable[[Edit], Path]
Checked = Callable[[Edit], Data]


def record(data: Data, check_id: str) -> Data:
    found: Data = next(item for item in data["checks"] if item["id"] == check_id)
    return found


def evidence(data: Data, check_id: str) -> Data:
    found: Data = record(data, check_id)["cells"][0]["evidence"]
    return found


def verdicts(found: Data) -> dict[str, str | None]:
    return {row["id"]: row["verdict"] for claim in found["claims"] for row in claim["checks"]}


def problems(found: Data) -> str:
    return "\n".join(f"{item['check']}: {item['problem']}" for item in found["problems"])


def set_aside(data: Data, interrupted: bool) -> Data:
    """An earlier record of 6.hint, as --resume leaves it."""
    now = record(data, "6.hint")
    for item in data["checks"]:
        item["seq"] += 1
    cell = now["cells"][0]
    evidence_before = {**cell["evidence"], "interrupted": interrupted}
    before: Data = {**now, "seq": 0, "cells": [{**cell, "evidence": evidence_before}]}
    data["interrupted"] = [before]
    return before


@pytest.fixture
def checked(edited: Edited) -> Checked:
    """Checks an edited copy of the sample results."""
    return lambda edit: check(edited(edit))


def test_output_is_that_of_the_design() -> None:
    found = check(SAMPLE_DIR)
    assert [claim["id"] for claim in found["claims"]] == [
        *"12345678",
        "end_to_end",
        "quality",
        "parity",
    ]
    assert set(found["claims"][0]) == {"id", "verdict", "checks"}
    assert found["claims"][1]["checks"][0] == {
        "id": "2.l1.simulated",
        "kind": "simulated",
        "verdict": "SUPPORTED",
        "value": 7.68,
        "low": None,
        "high": None,
        "unit": "ratio",
        "paper": 7.29,
        "beyond": False,
    }
    assert found["problems"] == []


def test_derives_what_was_recorded(sample_data: Data) -> None:
    found = check(SAMPLE_DIR)
    rows = {row["id"]: row for claim in found["claims"] for row in claim["checks"]}
    for item in sample_data["checks"]:
        row = rows[item["id"]]
        assert row["verdict"] == item["verdict"]
        for key in ("value", "low", "high"):
            assert row[key] == (None if item[key] is None else pytest.approx(item[key], rel=1e-12))
    assert {claim["id"]: claim["verdict"] for claim in found["claims"]} == {
        claim["id"]: claim["verdict"] for claim in sample_data["claims"]
    }


PARTS = sorted(path.stem for path in Path(module.__file__).parent.glob("check_*.py"))


@pytest.mark.parametrize("name", ["check", *PARTS])
def test_source_imports_no_judge(name: str) -> None:
    path = Path(module.__file__).with_name(f"{name}.py")
    allowed = {"harness.errors", *(f"harness.{part}" for part in PARTS)}
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            found.add(node.module or "")
    assert {name for name in found if name.split(".")[0] == "harness"} <= allowed
    assert "statistics" not in found


def test_importing_it_loads_no_judge() -> None:
    code = "import sys, harness.check; print(*sorted(m for m in sys.modules if m.startswith('harness.')))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd()
    )
    own = ["harness.check", *(f"harness.{part}" for part in PARTS), "harness.errors"]
    assert done.stdout.split() == own


def test_limits_are_repeated_and_equal() -> None:
    assert check_cells.DEFAULT_GUARD == registry.DEFAULT_GUARD


def test_precedence_is_that_of_the_verdict_rules() -> None:
    for size in range(1, len(VERDICTS) + 1):
        for found in itertools.permutations(VERDICTS, size):
            assert module._worst(found) == combine(found)
    assert module._worst([None, "SUPPORTED"]) == "SUPPORTED"
    assert module._worst([None]) is None


# --- edited results ---


def test_flipped_verdict_of_a_check(checked: Checked) -> None:
    found = checked(lambda data: record(data, "6.hint").update(verdict="SUPPORTED"))
    assert "6.hint: verdict is SUPPORTED, the raw material gives REFUTED" in problems(found)
    assert verdicts(found)["6.hint"] == "REFUTED"


def test_verdict_flipped_everywhere(checked: Checked) -> None:
    def flip(data: Data) -> None:
        record(data, "6.hint").update(verdict="SUPPORTED")
        record(data, "6.hint")["cells"][0].update(verdict="SUPPORTED")
        next(claim for claim in data["claims"] if claim["id"] == "6").update(verdict="SUPPORTED")

    found = checked(flip)
    assert verdicts(found)["6.hint"] == "REFUTED"
    assert next(claim["verdict"] for claim in found["claims"] if claim["id"] == "6") == "REFUTED"
    assert "claim 6: verdict is SUPPORTED, its checks give REFUTED" in problems(found)


def test_flipped_verdict_of_a_claim_alone(checked: Checked) -> None:
    found = checked(lambda data: data["claims"][3].update(verdict="SUPPORTED"))
    assert "claim 4: verdict is SUPPORTED, its checks give NOT MEASURABLE HERE" in problems(found)


@pytest.mark.parametrize("key", ["value", "low", "high"])
def test_figure_that_the_rounds_do_not_give(checked: Checked, key: str) -> None:
    def shift(data: Data) -> None:
        for holder in (record(data, "6.hint"), record(data, "6.hint")["cells"][0]):
            holder[key] *= 0.9

    assert f"6.hint: {key} is" in problems(checked(shift))


def test_summary_that_the_rounds_do_not_give(checked: Checked) -> None:
    def shift(data: Data) -> None:
        record(data, "8.readahead")["cells"][0]["summary"].update(a_a=[0.99, 1.01], void=0, confidence=0.9)

    text = problems(checked(shift))
    for key in ("a_a", "void", "confidence"):
        assert f"8.readahead: summary.{key} is" in text


def test_exact_value_that_the_observations_do_not_give(checked: Checked) -> None:
    found = checked(lambda data: evidence(data, "2.l1.simulated")["observations"].update(tiled=4_000_000))
    assert "2.l1.simulated: value is 7.68, the raw material gives 2.4576" in problems(found)
    assert verdicts(found)["2.l1.simulated"] == "REFUTED"


@pytest.mark.parametrize("drop", [[0], [5], [6, 7, 8, 9, 10, 11], [23]])
def test_dropped_rounds(checked: Checked, drop: list[int]) -> None:
    def cut(data: Data) -> None:
        rounds = evidence(data, "6.hint")["rounds"]
        rounds[:] = [one for one in rounds if one["seq"] not in drop]

    found = checked(cut)
    text = problems(found)
    assert "6.hint: rounds are missing or repeated" in text or "rounds are not whole blocks of 6" in text
    assert verdicts(found)["6.hint"] == "INCONCLUSIVE"


def test_dropped_rounds_with_new_numbers(checked: Checked) -> None:
    def cut(data: Data) -> None:
        rounds = evidence(data, "6.hint")["rounds"]
        rounds[:] = rounds[:4] + rounds[10:]
        for seq, one in enumerate(rounds):
            one["seq"] = seq

    found = checked(cut)
    assert "6.hint: rounds 0 to 5 are not in balanced order" in problems(found)
    assert verdicts(found)["6.hint"] == "INCONCLUSIVE"


def test_dropped_arm(checked: Checked) -> None:
    found = checked(lambda data: evidence(data, "6.hint")["rounds"][2]["samples"].pop("hint"))
    assert "round 2: order or samples do not hold every arm once" in problems(found)
    assert verdicts(found)["6.hint"] == "INCONCLUSIVE"


def test_rounds_out_of_time(checked: Checked) -> None:
    def swap(data: Data) -> None:
        rounds = evidence(data, "6.hint")["rounds"]
        rounds[3]["samples"], rounds[9]["samples"] = rounds[9]["samples"], rounds[3]["samples"]

    assert "ran outside its place in the order" in problems(checked(swap))

    def overlap(data: Data) -> None:
        evidence(data, "6.hint")["rounds"][4]["start_ns"] -= 10**9

    found = checked(overlap)
    assert "round 4 starts before round 3 ends" in problems(found)
    assert verdicts(found)["6.hint"] == "INCONCLUSIVE"


def test_bytes_that_counters_do_not_give(checked: Checked) -> None:
    found = checked(lambda data: evidence(data, "6.hint")["rounds"][0]["samples"]["hint"].update(bytes=1))
    assert "round 0, arm hint: bytes is 1, its counters add up to 300000000" in problems(found)


def test_time_longer_than_the_wall(checked: Checked) -> None:
    found = checked(lambda data: evidence(data, "6.hint")["rounds"][0]["samples"]["hint"].update(ns=10**10))
    assert "round 0, arm hint: 10000000000 ns measured inside" in problems(found)


def test_bandwidth_above_the_roof(checked: Checked) -> None:
    def lower(data: Data) -> None:
        roof = evidence(data, "3.roof")["roof"]
        for pattern in roof["patterns"]:
            pattern["bytes"] //= 2
        roof["bytes_per_ns"] /= 2

    found = checked(lower)
    assert "3.roof: arm q4_0q8_gemv_t16_avx2: bandwidth is 1.570 of the roof, above 1.03" in problems(found)
    assert verdicts(found)["3.roof"] == "INCONCLUSIVE"


def test_a_run_that_admits_its_void_roof_is_no_problem(checked: Checked) -> None:
    def lower(data: Data) -> None:
        roof = evidence(data, "3.roof")["roof"]
        for pattern in roof["patterns"]:
            pattern["bytes"] //= 2
        roof["bytes_per_ns"] /= 2
        record = next(one for one in data["checks"] if one["id"] == "3.roof")
        for cell in record["cells"]:
            cell["summary"]["reasons"] = ["roof void"]

    assert "bandwidth is" not in problems(checked(lower))


def test_roof_that_its_patterns_do_not_give(checked: Checked) -> None:
    found = checked(lambda data: evidence(data, "3.roof")["roof"].update(bytes_per_ns=99.0))
    assert "3.roof: roof is 99.0, its patterns give" in problems(found)


def test_void_mark_removed(checked: Checked) -> None:
    found = checked(lambda data: evidence(data, "6.hint")["rounds"][3].update(void=[]))
    assert "6.hint: round 3: void is [], its raw material gives [('run_queue', 'no hint')" in problems(found)


def test_void_mark_added(checked: Checked) -> None:
    found = checked(
        lambda data: evidence(data, "6.hint")["rounds"][0].update(void=[{"rule": "steal", "arm": None}])
    )
    assert "6.hint: round 0: void is [('steal', '')], its raw material gives []" in problems(found)


def test_registry_text_edited(checked: Checked) -> None:
    def widen(data: Data) -> None:
        data["registry"]["text"] = data["registry"]["text"].replace(
            "target = [-inf, 1.03]", "target = [-inf, 2.0]"
        )

    text = problems(checked(widen))
    assert "None: registry.sha256 is not the hash of registry.text\n" in text
    assert "6.hint: target is [None, 1.03], declared [None, 2.0]" in text


def test_target_of_a_record_edited(checked: Checked) -> None:
    def widen(data: Data) -> None:
        cell = record(data, "6.hint")["cells"][0]
        cell.update(target=[None, 2.0], verdict="SUPPORTED")
        record(data, "6.hint").update(verdict="SUPPORTED")

    found = checked(widen)
    assert "6.hint: target is [None, 2.0], declared [None, 1.03]" in problems(found)
    assert verdicts(found)["6.hint"] == "REFUTED"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"paper": 8.0}, "2.l1.simulated: paper is 8.0, declared 7.29"),
        ({"unit": "times"}, "2.l1.simulated: unit is 'times', declared 'ratio'"),
        ({"beyond": True}, "2.l1.simulated: beyond is True, declared False"),
        ({"claim": "1"}, "2.l1.simulated: claim is '1', declared '2'"),
        ({"kind": "hardware"}, "2.l1.simulated: kind hardware does not count for this check"),
    ],
)
def test_declared_fields_edited(checked: Checked, change: Data, text: str) -> None:
    found = checked(lambda data: record(data, "2.l1.simulated").update(change))
    assert text in problems(found)


def test_removed_record_of_a_finished_run(checked: Checked) -> None:
    def remove(data: Data) -> None:
        data["checks"] = [item for item in data["checks"] if item["id"] != "6.hint"]
        data["claims"][5].update(verdict="INCONCLUSIVE")

    found = checked(remove)
    assert problems(found) == (
        "None: records are missing: sequence numbers [8]\n"
        "6.hint: no record, though the run is finished and the check belongs to its profile"
    )
    assert verdicts(found)["6.hint"] == "INCONCLUSIVE"


def test_checks_left_out_on_purpose_are_no_problem(checked: Checked) -> None:
    def only(data: Data) -> None:
        data["checks"] = [item for item in data["checks"] if item["id"] != "6.hint"]
        for seq, item in enumerate(data["checks"]):
            item["seq"] = seq
        data["claims"][5].update(verdict="INCONCLUSIVE")
        data["run"]["options"]["only"] = "7"

    assert problems(checked(only)) == ""


def test_removed_and_renamed_cells(checked: Checked) -> None:
    found = checked(lambda data: record(data, "7.law")["cells"].pop(1))
    assert "7.law: cells are" in problems(found)
    assert verdicts(found)["7.law"] == "INCONCLUSIVE"


def test_cells_take_what_they_do_not_say_from_their_check() -> None:
    check = {"unit": "ms", "paper": 7, "target": [0, 1], "repetitions": 5, "rounds": {"quick": 12}}
    whole = check_cells.declared_cells(check)
    assert whole == [{"label": "", **check}]
    assert check_cells.declared_cells({"unit": "ms"}) == [
        {"label": "", "unit": "ms", "paper": None, "target": None, "repetitions": None, "rounds": {}}
    ]
    own = {"label": "x", "unit": "GB", "paper": 3, "target": [2, 3], "repetitions": 8, "rounds": {"full": 40}}
    cells = check_cells.declared_cells({**check, "cells": [own, {"label": "y"}]})
    # What the paper says it says of a cell.
    assert cells == [own, {"label": "y", **check, "paper": None}]
    assert check_cells.declared_cells({"unit": "ms", "cells": [{"label": "y"}]})[0]["rounds"] == {}


def test_evidence_of_another_kind(checked: Checked) -> None:
    found = checked(lambda data: evidence(data, "7.traffic").update(kind="derived"))
    assert "7.traffic: evidence is derived, the check is counted" in problems(found)
    assert verdicts(found)["7.traffic"] == "INCONCLUSIVE"


def test_unknown_and_repeated_records(checked: Checked) -> None:
    def spoil(data: Data) -> None:
        data["checks"].append(dict(data["checks"][0], id="1.more", seq=90))
        data["checks"].append(dict(data["checks"][0], seq=91))

    text = problems(checked(spoil))
    assert "1.more: not declared in claims.toml" in text
    assert "1.resident: recorded twice" in text


def test_reduction_that_cannot_be_done(checked: Checked) -> None:
    found = checked(lambda data: evidence(data, "7.traffic")["observations"].update(undelayed=[0]))
    assert "7.traffic: reduction ratio of ['delayed', 'undelayed'] fails" in problems(found)
    assert verdicts(found)["7.traffic"] == "INCONCLUSIVE"


def arm(data: Data, name: str) -> Data:
    found: Data = next(item for item in evidence(data, "6.hint")["arms"] if item["name"] == name)
    return found


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        ("no hint (A/A)", {"control_of": "nobody"}, "control_of is 'nobody', allowed: another arm"),
        (
            "no hint (A/A)",
            {"control_of": "no hint (A/A)"},
            "control_of is 'no hint (A/A)', allowed: another arm",
        ),
        (
            "no hint (A/A)",
            {"expected_digest": "0"},
            "expected_digest is '0', the arm it repeats has '5f3c0a9d'",
        ),
        ("no hint (A/A)", {"resident": [0.0, 1.0]}, "resident is [0.0, 1.0], the arm it repeats has None"),
        ("no hint (A/A)", {"control_of": None}, "A/A controls are [], allowed: exactly one"),
        ("hint", {"control_of": "no hint"}, "controls are ['hint', 'no hint (A/A)'], allowed: exactly one"),
    ],
)
def test_control_that_is_none(checked: Checked, name: str, change: Data, text: str) -> None:
    found = checked(lambda data: arm(data, name).update(change))
    assert text in problems(found)
    assert verdicts(found)["6.hint"] == "INCONCLUSIVE"


def test_last_block_of_rounds_dropped(checked: Checked) -> None:
    def cut(data: Data) -> None:
        del evidence(data, "6.hint")["rounds"][18:]

    found = checked(cut)
    assert "6.hint: 18 rounds, but the stop rule goes on, and the run was not interrupted" in problems(found)
    assert verdicts(found)["6.hint"] == "INCONCLUSIVE"


def test_last_block_not_run_after_an_interrupt(checked: Checked) -> None:
    def cut(data: Data) -> None:
        del evidence(data, "6.hint")["rounds"][18:]
        evidence(data, "6.hint")["interrupted"] = True

    found = checked(cut)
    assert "the stop rule" not in problems(found)
    assert verdicts(found)["6.hint"] == "INCONCLUSIVE"


def test_a_run_that_stopped_where_it_pleased(checked: Checked) -> None:
    """As a run that wanted fewer rounds would look: the stop rule alone has nothing to say."""

    def cut(data: Data) -> None:
        del evidence(data, "6.hint")["rounds"][18:]
        evidence(data, "6.hint")["rounds_wanted"] = 12

    found = checked(cut)
    assert "the stop rule" not in problems(found)
    assert "6.hint: rounds_wanted is 12, declared 20" in problems(found)


@pytest.mark.parametrize("interrupted", [False, True])
def test_more_rounds_than_the_stop_rule_gives(checked: Checked, interrupted: bool) -> None:
    found = checked(lambda data: evidence(data, "6.hint").update(rounds_wanted=12, interrupted=interrupted))
    assert "6.hint: 24 rounds, but 12 valid ones were wanted and the stop rule ends at 18" in problems(found)
    assert verdicts(found)["6.hint"] == "INCONCLUSIVE"


def test_record_outside_the_profile(checked: Checked) -> None:
    found = checked(lambda data: data["run"].update(profile="smoke"))
    assert "6.hint: recorded, but not part of profile smoke" in problems(found)


def test_not_measurable_without_a_reason(checked: Checked) -> None:
    def strip(data: Data) -> None:
        record(data, "2.dtlb.hardware").update(reason=" ")
        record(data, "2.dtlb.hardware")["cells"][0].update(reason="")

    text = problems(checked(strip))
    assert "2.dtlb.hardware: NOT MEASURABLE HERE without a reason" in text
    assert "2.dtlb.hardware: no evidence and no reason" in text


@pytest.mark.parametrize(
    ("key", "step", "seq"), [("started_ns", 60_000_000_000, 0), ("finished_ns", -59_000_000_000, 23)]
)
def test_rounds_outside_their_record(checked: Checked, key: str, step: int, seq: int) -> None:
    def shift(data: Data) -> None:
        record(data, "6.hint")[key] += step

    found = checked(shift)
    assert f"6.hint: round {seq} lies outside its record" in problems(found)
    assert verdicts(found)["6.hint"] == "INCONCLUSIVE"


def test_record_that_ends_before_it_begins(checked: Checked) -> None:
    found = checked(lambda data: record(data, "7.path").update(started_ns=9, finished_ns=5))
    assert "7.path: finished_ns lies before started_ns" in problems(found)


def test_records_that_overlap(checked: Checked) -> None:
    def early(data: Data) -> None:
        record(data, "7.path")["started_ns"] -= 1

    assert problems(checked(early)) == "7.path: starts before 7.law ends"


@pytest.mark.parametrize(
    ("resumed", "allowed"), [("2026-01-01T00:00:00Z", True), ("2026-01-01T00:00:01Z", False)]
)
def test_clock_may_begin_anew_at_a_resume(checked: Checked, resumed: str, allowed: bool) -> None:
    def early(data: Data) -> None:
        data["run"]["resumed_utc"] = [resumed]
        record(data, "7.path")["started_ns"] -= 1

    assert (problems(checked(early)) == "") is allowed


def test_rounds_of_one_cell_in_another(checked: Checked) -> None:
    def copy_cell(data: Data) -> None:
        first, second = record(data, "7.time")["cells"]
        second.update(evidence=first["evidence"], summary=first["summary"])

    found = checked(copy_cell)
    text = problems(found)
    assert "7.time: cell '1 thread': rounds overlap those of cell 'all threads'" in text
    assert "7.time: cell 'all threads': rounds overlap those of cell '1 thread'" in text
    assert verdicts(found)["7.time"] == "INCONCLUSIVE"


def test_title_and_built_of_a_claim(checked: Checked) -> None:
    text = problems(checked(lambda data: data["claims"][0].update(title="x", built=False)))
    assert "claim 1: title is 'x', declared" in text
    assert "claim 1: built is False, declared True" in text


def test_a_claim_that_is_not_built_has_no_verdict(checked: Checked) -> None:
    def unbuild(data: Data) -> None:
        data["registry"]["text"] = data["registry"]["text"].replace("built = true", "built = false", 1)

    found = checked(unbuild)
    assert found["claims"][0]["checks"][0]["verdict"] == "SUPPORTED"
    assert found["claims"][0]["verdict"] == "NOT MEASURABLE HERE"
    assert "claim 1: verdict is SUPPORTED, its checks give NOT MEASURABLE HERE" in problems(found)


def test_reasons_removed_and_added(checked: Checked) -> None:
    def spoil(data: Data) -> None:
        record(data, "8.readahead")["cells"][0]["summary"].update(reasons=[])
        record(data, "6.hint")["cells"][0]["summary"].update(reasons=["interrupted"])

    text = problems(checked(spoil))
    assert "8.readahead: summary.reasons is [], the raw material gives ['" in text
    assert "6.hint: summary.reasons is ['interrupted'], the raw material gives []" in text


def test_check_of_a_claim_that_is_not_declared(checked: Checked) -> None:
    def rename(data: Data) -> None:
        data["registry"]["text"] = data["registry"]["text"].replace('claim = "7"', 'claim = "9"')

    assert "7.path: claim '9' is not declared in claims.toml" in problems(checked(rename))


@pytest.mark.parametrize("side", ["subject", "reference"])
def test_figure_of_an_arm_that_is_not_there(checked: Checked, side: str) -> None:
    found = checked(lambda data: evidence(data, "6.hint")["figure"][side].update(arm="nobody"))
    assert "6.hint: the figure cannot be computed: KeyError('nobody')" in problems(found)
    assert verdicts(found)["6.hint"] == "INCONCLUSIVE"


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("id = ", "id = 9" + 4999 * "9" + " #", "Exceeds the limit"),
        ("id = ", "x = " + 2000 * "[" + 2000 * "]" + "\nid = ", "nested too deeply"),
        ("built = true", "built = 1", r"claim\[0\]\.built: found 1"),
        ("kinds = ", "kinds = [1] #", r"check\[0\]\.kinds: found \[1\]"),
        ("target = ", "target = [1979-05-27, 2] #", r"check\[\d+\]\.target: found"),
        ("target = ", "target = [nan, 2] #", r"check\[\d+\]\.target: found"),
        ("unit = ", "unit = 7 #", r"check\[0\]\.unit: found 7"),
        ("[[check]]", '[[check]]\nguard = "x"', r"check\[0\]\.guard: found 'x'"),
        ("[[check]]", "[[check]]\nrepetitions = 1.5", r"check\[0\]\.repetitions: found 1.5"),
        ("[[check]]", '[[check]]\npositive_control = "warm"', r"check\[0\]\.margin: missing"),
        ("paper = ", "paper = true #", r"check\[\d+\]\.paper: found True"),
    ],
)
def test_declarations_of_another_type_are_named(edited: Edited, old: str, new: str, fault: str) -> None:
    def spoil(data: Data) -> None:
        data["registry"]["text"] = data["registry"]["text"].replace(old, new, 1)

    with pytest.raises(ResultsError, match=rf"results\.json: \$\.registry\.text: {fault}|{fault}"):
        check(edited(spoil))


LONG = "9" * 60 + "e999"


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        ("NaN", "NaN"),
        ("-Infinity", "-Infinity"),
        ("1e999", "1e999"),
        (LONG, LONG[:40]),
        ("9" * 400, "9" * 40),  # Python reads it, as an integer that no double holds
    ],
)
def test_a_number_that_is_not_finite_is_refused(edited: Edited, number: str, shown: str) -> None:
    folder = edited(lambda data: data["run"].update(command="here"))
    path = folder / "results.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"here"', number), encoding="utf-8")
    with pytest.raises(ResultsError, match=rf"results\.json: .*the number {shown} is not finite"):
        check(folder)


@pytest.mark.parametrize("read", [check, load])
def test_half_of_a_surrogate_pair_is_refused_and_a_whole_one_is_not(
    edited: Edited, read: Callable[[Path], object]
) -> None:
    read(edited(lambda data: data["run"].update(command="\U0001f600")))
    with pytest.raises(ResultsError, match=r"results\.json: .*surrogates not allowed"):
        read(edited(lambda data: data["run"].update(command="\ud83d")))


def test_registry_without_a_key_of_a_check(edited: Edited) -> None:
    def strip(data: Data) -> None:
        data["registry"]["text"] = data["registry"]["text"].replace("budget_s =", "budget =")

    with pytest.raises(ResultsError, match=r"\$\.registry\.text: check\[0\]\.budget_s: missing"):
        check(edited(strip))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda data: data["checks"][0].update(verdict="PASSED"), r"\$\.checks\[0\]\.verdict"),
        (lambda data: data["run"].pop("profile"), r"\$\.run: .profile. is a required property"),
        (lambda data: data["registry"].update(text="[["), r"\$\.registry\.text"),
    ],
)
def test_damage_is_named_by_field(edited: Edited, edit: Edit, message: str) -> None:
    with pytest.raises(ResultsError, match=message):
        check(edited(edit))


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"results\.json: cannot be read"):
        check(tmp_path)


def test_what_was_cut_short_may_be_set_aside_and_nothing_else(checked: Checked) -> None:
    whole = checked(lambda data: None)
    assert checked(lambda data: set_aside(data, True)) == whole

    def after(data: Data) -> None:
        set_aside(data, True)["seq"] = 1000

    finished = checked(lambda data: set_aside(data, False))
    assert problems(finished) == "6.hint: set aside as interrupted, but it was not"
    assert "6.hint: set aside as interrupted, but nothing was measured after it" in problems(checked(after))


def test_claims_that_are_not_declared_are_named(checked: Checked) -> None:
    found = checked(lambda data: data["claims"].pop(0))
    names = [*"2345678", "end_to_end", "quality", "parity"]
    assert f"None: claims are {names}, not those of claims.toml" in problems(found)


def test_the_figure_of_a_record_is_that_of_its_cells(checked: Checked) -> None:
    found = checked(lambda data: record(data, "7.law").update(value=9.5))
    assert "7.law: value is 9.5, the raw material gives 2.0" in problems(found)


def test_what_has_no_record(checked: Checked) -> None:
    shape = """
[[check]]
id = "9.{name}"
claim = "8"
statement = "made up"
metric = "made up"
unit = "ratio"
target = [0, 1]
kinds = ["derived"]
built = {built}
budget_s = {{ {profile} = 1 }}
"""
    texts = [
        shape.format(name="later", built="false", profile="quick"),
        shape.format(name="other", built="true", profile="full"),
        shape.format(name="missing", built="true", profile="quick"),
    ]

    def declare(data: Data) -> None:
        data["registry"]["text"] += "".join(texts)

    found = checked(declare)
    given = {name: verdict for name, verdict in verdicts(found).items() if name.startswith("9.")}
    nowhere = "NOT MEASURABLE HERE"
    assert given == {"9.later": nowhere, "9.other": nowhere, "9.missing": "INCONCLUSIVE"}
    absent = [line for line in problems(found).splitlines() if "no record" in line]
    assert [line.split(":")[0] for line in absent] == ["9.missing"]


ENDS = (-math.inf, 0.5, 1.0, 1.5, 2.0, math.inf)


@pytest.mark.parametrize("target", [(low, high) for low in ENDS for high in ENDS if low <= high])
def test_intervals_are_placed_as_the_judge_places_them(target: tuple[float, float]) -> None:
    for low, high in itertools.combinations_with_replacement((0.4, *ENDS[1:-1], 2.1), 2):
        assert check_cells._placed((low, low, high), target) == place(low, high, target)
        assert check_cells._placed((low, None, None), target) == place(low, low, target)
    assert check_cells._placed((None, None, None), target) == "INCONCLUSIVE"
    assert check_cells._placed((1.0, 1.0, 1.0), None) == "INCONCLUSIVE"


def test_a_record_set_aside_is_older_than_the_one_that_counts(checked: Checked) -> None:
    def at_once(data: Data) -> None:
        before = set_aside(data, interrupted=True)
        before["seq"] = record(data, "6.hint")["seq"]

    assert "6.hint: set aside as interrupted, but nothing was measured after it" in problems(checked(at_once))


def spanning(**cells: list[tuple[int, int]]) -> Data:
    """A record from 0 to 30 whose cells have rounds at these times."""
    rows = [
        {
            "label": label,
            "evidence": {
                "rounds": [
                    {"seq": seq, "start_ns": start, "end_ns": end} for seq, (start, end) in enumerate(spans)
                ]
            },
        }
        for label, spans in cells.items()
    ]
    return {"started_ns": 0, "finished_ns": 30, "cells": rows}


def test_rounds_may_touch_each_other_and_the_ends_of_their_record() -> None:
    assert misplaced(spanning(a=[(0, 10), (20, 30)], b=[(10, 20)])) == {}


def test_rounds_that_overlap_name_each_other() -> None:
    found = misplaced(spanning(a=[(0, 11)], b=[(10, 31)], c=[(12, 13)]))
    assert found == {
        "a": ["rounds overlap those of cell 'b'"],
        "b": [
            "round 0 lies outside its record",
            "rounds overlap those of cell 'a'",
            "rounds overlap those of cell 'c'",
        ],
        "c": ["rounds overlap those of cell 'b'"],
    }
