"""A run against its base: losses, gains and what is neither."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from harness.kinds import Target
from harness.registry import parse_registry
from harness.results import FILE_NAME
from harness.shift import shift
from reports.compare import Comparison, base_view, compare, view
from reports.compare.base import Move, Worse, worse_direction
from tests.reports.made_runs import Made, machine

NOW = datetime(2026, 6, 1, tzinfo=UTC)
NEXT = "2026-01-02T00:00:00Z"
Find = Callable[..., Comparison]


@pytest.fixture
def against(tmp_path: Path) -> Find:
    """Compares a made-up run with its base; `edit` changes results.json of the new run."""

    def find(
        base: Made, edit: Callable[[dict[str, Any]], object] | None = None, **changes: Any
    ) -> Comparison:
        new = dataclasses.replace(base, **{"seed": 2, "created": NEXT, **changes})
        place = tmp_path / str(len(list(tmp_path.iterdir())))
        folders = [base.write(place / "base"), new.write(place / "new")]
        if edit is not None:
            path = folders[1] / FILE_NAME
            data = json.loads(path.read_text(encoding="utf-8"))
            edit(data)
            path.write_text(json.dumps(data), encoding="utf-8")
        return compare(folders, based=True, now=NOW)

    return find


def moves(found: Comparison) -> dict[str, Move]:
    """Moves by check and cell."""
    return {move.row.label: move for move in found.moves}


def outcomes(found: Comparison) -> dict[str, str]:
    """Outcomes of what moved."""
    return {
        label: move.outcome
        for label, move in moves(found).items()
        if move.outcome in ("loss", "gain", "moved")
    }


def test_the_same_build_twice_shows_nothing(against: Find) -> None:
    found = against(Made())
    assert outcomes(found) == {} and found.losses == () and found.changes == ()
    assert base_view.sentence(found) == "Against the base, no figure is a confirmed loss: 0 of 9 moved."
    # Figures with an interval are shown though they did not move.
    short, full = base_view.moves_table(found, all_of_them=False), base_view.moves_table(found)
    assert len(short.rows) == 6 and all(row.muted and "\u00a0to\u00a0" in row.cells[3] for row in short.rows)
    assert len(full.rows) == len(found.moves)
    assert base_view.left_out(found) == "3 figures without rounds are the same"
    assert not base_view.changes_table(found).rows


def test_a_loss_is_confirmed_with_its_interval(against: Find) -> None:
    found = against(Made(), speedup=8.1)
    assert outcomes(found) == {"3.speedup": "loss"}
    move = found.losses[0]
    assert move.shift is not None and move.shift.low is not None and move.shift.high is not None
    assert move.shift.low < 0.9 < move.shift.high < 1 / 1.03
    assert (move.worse, move.reason) == ("lower", "lower, which is worse, by more than 3%")
    assert move.base.verdict == move.new.verdict == "SUPPORTED"
    assert base_view.sentence(found) == "Against the base, 1 of 9 figures is a confirmed loss: 3.speedup."


def test_the_interval_is_that_of_the_rounds_of_both(against: Find) -> None:
    found = against(Made(), speedup=8.1)
    figures = []
    for run in found.runs:
        record = run.results.record("3.speedup")
        assert record is not None
        rounds = record["cells"][0]["evidence"]["rounds"]
        ns = [(one["samples"]["old"]["ns"], one["samples"]["new"]["ns"]) for one in rounds if not one["void"]]
        figures.append([old / new for old, new in ns])
    # Six timed figures have an interval: each at 1 - 0.05 / 6.
    expected = shift(figures[0], figures[1], 1 - 0.05 / 6)
    found_shift = moves(found)["3.speedup"].shift
    assert found_shift is not None
    assert dataclasses.astuple(found_shift) == pytest.approx(dataclasses.astuple(expected))
    assert sum(1 for move in found.moves if move.shift is not None) == 6


def test_swapping_the_runs_turns_losses_into_gains(against: Find) -> None:
    there = against(Made(), speedup=8.1)
    back = against(Made(speedup=8.1, seed=2), seed=1, speedup=9.0)
    assert outcomes(back) == {"3.speedup": "gain"}
    one, other = moves(there)["3.speedup"].shift, moves(back)["3.speedup"].shift
    assert one is not None and other is not None and one.low is not None and other.high is not None
    assert one.low == pytest.approx(1 / other.high)


def test_a_movement_within_the_guard_is_no_loss(against: Find) -> None:
    found = against(Made(), speedup=8.84)
    assert outcomes(found) == {"3.speedup": "moved"}
    assert moves(found)["3.speedup"].reason == "lower, which is worse, but within 3%"
    assert found.losses == ()


def test_a_small_movement_over_the_edge_of_the_target_is_a_loss(against: Find) -> None:
    # 7.time wants at least 1.05.
    found = against(Made(time=1.06), time=1.04)
    assert outcomes(found) == {"7.time, 1 thread": "loss", "7.time, all threads": "loss"}
    assert moves(found)["7.time, 1 thread"].reason == "lower, which is worse, and out of its target"
    assert [change.id for change in found.changes] == ["7.time"]
    assert outcomes(against(Made(time=1.04, seed=2), seed=1, time=1.06)) == {
        "7.time, 1 thread": "gain",
        "7.time, all threads": "gain",
    }


def test_higher_is_worse_where_the_target_has_no_lower_end(against: Find) -> None:
    # 6.hint wants at most 1.03.
    assert outcomes(against(Made(), hint=1.06)) == {"6.hint": "loss"}
    assert outcomes(against(Made(hint=1.06, seed=2), seed=1, hint=1.0)) == {"6.hint": "gain"}
    assert outcomes(against(Made(), hint=0.9)) == {"6.hint": "gain"}


def test_two_ends_have_a_worse_side_only_outside(against: Find) -> None:
    # 3.roof wants 0.6 to 1.03.
    assert outcomes(against(Made(roof=0.8), roof=0.7)) == {"3.roof": "moved"}
    assert outcomes(against(Made(roof=0.8), roof=0.5)) == {"3.roof": "loss"}
    assert outcomes(against(Made(roof=0.5, seed=2), seed=1, roof=0.7)) == {"3.roof": "gain"}
    assert outcomes(against(Made(roof=0.5), roof=0.4)) == {"3.roof": "loss"}


@pytest.mark.parametrize(
    ("target", "value", "worse"),
    [
        (None, 1.0, "neither"),
        ((1.03, math.inf), 0.5, "lower"),
        ((1.03, math.inf), 2.0, "lower"),
        ((-math.inf, 1.03), 2.0, "higher"),
        ((-math.inf, 1.03), 0.5, "higher"),
        ((0.9, 1.1), 1.0, "neither"),
        ((0.9, 1.1), 0.8, "lower"),
        ((0.9, 1.1), 1.2, "higher"),
    ],
)
def test_the_target_says_which_direction_is_worse(target: Target | None, value: float, worse: Worse) -> None:
    assert worse_direction(target, value) == worse


def test_what_was_inconclusive_is_shown_and_no_loss(against: Find) -> None:
    found = against(Made(), speedup=6.0, noise=0.05)
    move = moves(found)["3.speedup"]
    assert move.new.verdict == "INCONCLUSIVE" and move.shift is not None and move.shift.high is not None
    assert move.shift.high < 1 / 1.03
    assert move.outcome == "moved" and move.reason.startswith("INCONCLUSIVE in the new run: ")
    assert found.losses == ()
    assert {change.id for change in found.changes} >= {"claim 3", "3.speedup"}


def test_what_the_checker_disagrees_with_is_no_loss(against: Find) -> None:
    def flip(data: dict[str, Any]) -> None:
        record = next(item for item in data["checks"] if item["id"] == "3.speedup")
        record["cells"][0]["high"] = record["high"] = 99.0

    found = against(Made(), flip, speedup=8.1)
    assert outcomes(found) == {"3.speedup": "moved"}
    assert moves(found)["3.speedup"].reason == "the separate checker disagrees about the new run"


def test_exact_figures_have_no_interval_and_lose_with_their_verdict(against: Find) -> None:
    found = against(Made(), differing=2)
    assert outcomes(found) == {"3.agreement, q4_0, AVX2": "loss", "3.agreement, q8_0, AVX2": "loss"}
    assert found.losses[0].shift is None and found.losses[0].ratio is None
    found = against(Made(), misses=(9_830_400, 1_380_000))
    assert outcomes(found) == {"2.l1.simulated": "moved"}
    assert moves(found)["2.l1.simulated"].ratio == pytest.approx(1_280_000 / 1_380_000)
    assert outcomes(against(Made(differing=1, seed=2), seed=1, differing=0)) == {
        "3.agreement, q4_0, AVX2": "gain",
        "3.agreement, q8_0, AVX2": "gain",
    }


def test_other_conditions_are_not_compared(against: Find) -> None:
    found = against(Made(), speedup=8.1, options={"threads": 1, "isa": "avx2"})
    move = moves(found)["3.speedup"]
    # The share among the inputs differs from run to run: a fraction is measured, not set.
    assert (move.outcome, move.reason) == ("not compared", "measured under other conditions: threads")
    assert move.shift is None and found.losses == ()


def test_other_tiers_are_not_compared(against: Find) -> None:
    found = against(Made(tier="native"), tier="500 MB/s emulated", speedup=8.1)
    assert "3.speedup" not in moves(found) and found.losses == ()
    assert "3.speedup" in {item.check_id for item in found.refused}


def test_a_figure_that_is_computed_otherwise_is_not_compared(against: Find) -> None:
    def scaled(data: dict[str, Any]) -> None:
        record = next(item for item in data["checks"] if item["id"] == "3.speedup")
        record["cells"][0]["evidence"]["figure"]["scale"] = 2.0

    assert moves(against(Made(), scaled))["3.speedup"].reason == "measured under other conditions: figure"


def test_what_only_one_run_measured_is_not_compared(against: Find) -> None:
    found = moves(against(Made(hardware=7.0), hardware=None))
    assert found["2.l1.hardware"].outcome == "not compared"
    assert found["2.l1.hardware"].reason.startswith("not measured in the new run: this machine has no such")
    found = moves(against(Made(without=("3.speedup",)), without=()))
    assert found["3.speedup"].reason == "not measured in the base: not run"
    assert "2.dtlb.hardware" not in found


def test_what_did_not_run_has_not_changed_its_verdict(against: Find) -> None:
    cut = ("3.speedup", "3.agreement")
    found = against(Made(), without=cut, speedup=8.1)
    assert found.changes == ()
    assert found.claim_verdicts("3") == {"A": "SUPPORTED", "B": None}
    row = next(row for row in view.claim_rows(found) if row.label == "3")
    assert [badge.word for badge in row.badges] == ["SUPPORTED", "NOT RUN"]
    assert not row.differs


def test_nothing_in_common(against: Find) -> None:
    everything = tuple(check.id for check in parse_registry(Made().claims).checks)
    found = against(Made(), without=everything)
    assert base_view.sentence(found) == "Nothing was measured alike in the base and in the new run."
    assert base_view.forest(found) is None and found.losses == ()


def test_too_few_rounds_are_not_compared(against: Find) -> None:
    def void(data: dict[str, Any]) -> None:
        record = next(item for item in data["checks"] if item["id"] == "3.speedup")
        for one in record["cells"][0]["evidence"]["rounds"][:3]:
            one["void"] = [{"rule": "steal", "arm": None}]

    assert moves(against(Made(), void))["3.speedup"].reason == "12 and 9 valid rounds, fewer than 12"


def test_a_figure_without_a_target_is_neither_loss_nor_gain(against: Find) -> None:
    text = Made().claims.replace("target = [0.6, 1.03]\n", "", 1)
    found = against(Made(claims=text), roof=0.4)
    assert outcomes(found) == {"3.roof": "moved"}
    assert moves(found)["3.roof"].reason == "no target: neither direction is worse"


def test_json_of_a_base(against: Find) -> None:
    found = against(Made(), speedup=8.1).to_json()
    assert found["base"] == "A" and found["confirmed_losses"] == ["3.speedup"]
    move = next(item for item in found["moves"] if item["check"] == "3.speedup")
    assert (move["outcome"], move["worse"], move["kind"]) == ("loss", "lower", "timed")
    assert move["low"] < move["ratio"] < move["high"] and move["confidence"] == pytest.approx(1 - 0.05 / 6)
    assert found["verdict_changes"] == [] and "differences" not in found
    json.dumps(found, allow_nan=False)


def test_machines_of_one_kind_may_be_the_same(against: Find) -> None:
    found = against(Made(machine=machine(load__average_1m=0.1)), machine=machine(load__average_1m=3.0))
    assert found.based and not any("load" in mark.text for mark in found.marks)
