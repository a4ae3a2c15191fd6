"""Verdicts of the quality claim on series whose answer is known, and on wrong ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from architectures.quality import SEEDS
from architectures.table import SIX
from claims.quality_cells import converged_cell, limits, perplexity_cell, ratio_cell
from claims.quality_series import STORED, Series, read_series
from claims.run import REGISTRY_PATH
from harness.evidence import Derived, Evidence
from harness.kinds import INCONCLUSIVE, REFUTED, SUPPORTED
from harness.registry import load_registry
from harness.verdict import CheckResult, NotMeasurable, judge_check
from tests.claims.made_series import SHIFTS, STEPS, diverge, remove, run_of, series_file

REGISTRY = load_registry(REGISTRY_PATH)
COMBINED, SYNC = "arch2_4_combined", "arch2_4_sync"
JUDGED = ("expert_delay", "delay_cost", "pre_dense", "best", "converged")


def judged(check_id: str, series: Series) -> CheckResult:
    found: Mapping[str, Evidence | NotMeasurable]
    if check_id in ("quality.expert_delay", "quality.delay_cost"):
        found = {"": ratio_cell(series, COMBINED, SYNC)}
    elif check_id == "quality.pre_dense":
        found = {"": ratio_cell(series, "arch4", "arch4_current")}
    elif check_id == "quality.best":
        found = {name: ratio_cell(series, COMBINED, name) for name in SIX if name != COMBINED}
    elif check_id == "quality.converged":
        found = {name: converged_cell(series, name) for name in SEEDS}
    else:
        found = {name: perplexity_cell(series, name) for name in SEEDS}
    return judge_check(REGISTRY.check(check_id), found)


def verdicts(series: Series) -> dict[str, str | None]:
    return {name: judged(f"quality.{name}", series).verdict for name in JUDGED}


def made(tmp_path: Path, **changes: Any) -> Series:
    return read_series(series_file(tmp_path / "q.json", **changes))


def test_what_the_paper_found_is_supported(tmp_path: Path) -> None:
    assert verdicts(made(tmp_path)) == dict.fromkeys(JUDGED, SUPPORTED)


@pytest.mark.parametrize(
    ("shifts", "refuted"),
    [
        ({COMBINED: 0.02}, "expert_delay"),
        ({COMBINED: 0.02}, "delay_cost"),
        ({COMBINED: -0.02}, "expert_delay"),
        # Arms swapped: what helped now harms.
        ({"arch4": SHIFTS["arch4_current"], "arch4_current": SHIFTS["arch4"]}, "pre_dense"),
        ({"arch4": -0.05, "arch4_current": 0.0}, "best"),
        ({"arch1": -0.05}, "best"),
    ],
)
def test_what_is_not_so_is_refuted(tmp_path: Path, shifts: dict[str, float], refuted: str) -> None:
    found = verdicts(made(tmp_path, shifts={**SHIFTS, **shifts}))
    assert found[refuted] == REFUTED
    assert found["converged"] == SUPPORTED


def test_a_gain_beyond_the_margin_is_said_to_be_one(tmp_path: Path) -> None:
    """Not the same within 1 %, which was asked, and no cost either."""
    series = made(tmp_path, shifts={**SHIFTS, COMBINED: -0.02})
    found = judged("quality.expert_delay", series)
    side = "arch2_4_combined has the lower perplexity in 8 of 8 pairs"
    assert (found.verdict, found.reason) == (REFUTED, f"interval outside the target ({side})")
    assert judged("quality.delay_cost", series).verdict == SUPPORTED


def test_a_wide_interval_decides_nothing(tmp_path: Path) -> None:
    found = judged("quality.expert_delay", made(tmp_path, noise=0.03))
    assert found.verdict == INCONCLUSIVE
    assert found.cells[0].low is not None and found.cells[0].low < 0.99


def keep(*runs: tuple[str, int]) -> Any:
    def edit(found: dict[str, Any]) -> None:
        remove(found, *({(run["architecture"], run["seed"]) for run in found["runs"]} - set(runs)))

    return edit


def test_a_series_that_has_begun_names_what_is_there(tmp_path: Path) -> None:
    series = made(tmp_path, edit=keep((COMBINED, 0), (SYNC, 0), (COMBINED, 1)))
    found = judged("quality.expert_delay", series)
    assert found.verdict == INCONCLUSIVE
    assert found.reason == "3 of 16 runs are there"
    assert judged("quality.pre_dense", series).reason == "0 of 10 runs are there"
    assert judged("quality.best", series).verdict == INCONCLUSIVE
    converged = judged("quality.converged", series)
    assert converged.verdict == INCONCLUSIVE
    assert [(cell.value, cell.high) for cell in converged.cells[:3]] == [(0, 6), (0, 7), (None, None)]


@pytest.mark.parametrize("missing", [(SYNC, 7), (COMBINED, 0)])
def test_an_arm_that_lacks_one_run_is_not_judged(tmp_path: Path, missing: tuple[str, int]) -> None:
    series = made(tmp_path, edit=lambda found: remove(found, missing), noise=0.0)
    found = judged("quality.expert_delay", series)
    assert (found.verdict, found.reason) == (INCONCLUSIVE, "15 of 16 runs are there")
    assert judged("quality.pre_dense", series).verdict == SUPPORTED
    best = {cell.label: cell.verdict for cell in judged("quality.best", series).cells}
    assert best[SYNC] == INCONCLUSIVE
    assert best["arch1"] == (INCONCLUSIVE if missing[0] == COMBINED else SUPPORTED)


def test_a_series_with_a_run_that_diverged_is_complete(tmp_path: Path) -> None:
    found = made(tmp_path, edit=lambda data: diverge(run_of(data, SYNC, 3)))
    delay = judged("quality.expert_delay", found)
    assert delay.verdict == SUPPORTED
    evidence = delay.cells[0].evidence
    assert isinstance(evidence, Derived)
    assert evidence.observations["seed"] == [0, 1, 2, 4, 5, 6, 7]


def test_a_verdict_waits_for_all_runs_of_the_series() -> None:
    assert REGISTRY.check("quality.expert_delay").cells[0].repetitions == SEEDS[COMBINED] + SEEDS[SYNC]
    pre_dense = SEEDS["arch4"] + SEEDS["arch4_current"]
    assert REGISTRY.check("quality.pre_dense").cells[0].repetitions == pre_dense
    for cell in REGISTRY.check("quality.best").cells:
        assert cell.repetitions == SEEDS[COMBINED] + SEEDS[cell.label]
    for cell in REGISTRY.check("quality.converged").cells:
        assert cell.repetitions == SEEDS[cell.label]


def test_a_run_that_diverged_refutes(tmp_path: Path) -> None:
    found = made(tmp_path, edit=lambda data: diverge(run_of(data, "arch3", 1)))
    converged = judged("quality.converged", found)
    assert (converged.verdict, converged.headline.label, converged.headline.value) == (REFUTED, "arch3", 1)
    assert judged("quality.best", found).cells[2].verdict is not None


def test_perplexities_stand_beside_the_papers(tmp_path: Path) -> None:
    found = judged("quality.perplexity", made(tmp_path, edit=keep((COMBINED, 0), (COMBINED, 1))))
    assert found.verdict is None
    head = found.cells[0]
    assert head.paper == 6.5 and head.value is not None and 80 < head.value < 85
    assert head.low is not None and head.high is not None and head.low < head.value < head.high
    assert found.cells[1].reason == "no run of arch2_4_sync is complete, 8 are planned"


def test_a_perplexity_carries_the_curve_and_a_text(tmp_path: Path) -> None:
    def edit(found: dict[str, Any]) -> None:
        for seed, last in ((0, 4.2), (1, 4.4), (2, 9.9)):
            run_of(found, "arch3", seed)["validation"] = [[1000, 5.0 + seed], [STEPS, last]]
        diverge(run_of(found, "arch3", 2))
        run_of(found, "arch1", 0)["validation"] = [[500, 6.0], [STEPS, 4.0]]

    evidence = {
        name: perplexity_cell(made(tmp_path, edit=edit), name) for name in ("arch3", "arch1", "arch4_current")
    }
    three, one = evidence["arch3"], evidence["arch1"]
    assert isinstance(three, Derived) and isinstance(one, Derived)
    seen = three.observations
    assert (seen["step"], seen["validation_log_perplexity"]) == ([1000, STEPS], [5.5, pytest.approx(4.3)])
    assert (seen["sample"], seen["sample_words"], seen["sample_words_known"]) == ("A king of arch3 .", 4, 3)
    assert three.inputs["sample prompt"] == "Once upon a time"
    # Steps that all of its runs were validated at.
    assert one.observations["step"] == [STEPS]
    without = perplexity_cell(made(tmp_path, edit=lambda found: found.update(samples=[])), "arch3")
    assert isinstance(without, Derived)
    assert "sample" not in without.observations and "sample prompt" not in without.inputs


def test_targets_are_those_of_the_paper_and_the_margin() -> None:
    margin = REGISTRY.check("quality.expert_delay").target
    assert margin == (pytest.approx(1 / 1.01, abs=1e-6), 1.01)
    best = REGISTRY.check("quality.best")
    assert best.target is not None and best.target[1] == pytest.approx(6.50 / 6.26, abs=1e-4)
    perplexities = {cell.label: cell.paper for cell in REGISTRY.check("quality.perplexity").cells}
    assert list(perplexities) == list(SEEDS)
    for cell in best.cells:
        other = perplexities[cell.label]
        assert other is not None and cell.paper == pytest.approx(6.50 / other, abs=1e-4)


def test_limits_name_the_scale() -> None:
    said = " ".join(limits(read_series(STORED)))
    wanted = "preset tiny (d 128, 2.6 to 5.0 M weights), 2,000 steps, 2.0 M tokens seen in f32"
    for part in (wanted, "d = 512, TinyStories", "not recorded"):
        assert part in said
