"""Verdict rules of checks and claims."""

from __future__ import annotations

import dataclasses
import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import EvidenceError
from harness.evidence import Counted, Derived, Evidence
from harness.kinds import INCONCLUSIVE, NOT_MEASURABLE, REFUTED, SUPPORTED, VERDICTS, Verdict
from harness.paired import run_pairs
from harness.reductions import Reduction
from harness.registry import Check, load_registry
from harness.rounds import Figure, Side, Timed
from harness.verdict import (
    NotMeasurable,
    absent_check,
    combine,
    judge_check,
    judge_claim,
    place,
    target_json,
    to_json,
)
from tests.harness.fake import FakeMachine
from tests.harness.make_sample import SAMPLE_DIR

REGISTRY = load_registry(SAMPLE_DIR / "claims.toml")


@pytest.mark.parametrize(
    ("low", "high", "target", "verdict"),
    [
        (1.1, 1.2, (1.0, 1.3), SUPPORTED),
        (1.0, 1.3, (1.0, 1.3), SUPPORTED),
        (0.9, 1.2, (1.0, 1.3), INCONCLUSIVE),
        (1.2, 1.4, (1.0, 1.3), INCONCLUSIVE),
        (0.5, 2.0, (1.0, 1.3), INCONCLUSIVE),
        (0.8, 0.99, (1.0, 1.3), REFUTED),
        (1.31, 1.4, (1.0, 1.3), REFUTED),
        (0.9, 1.0, (1.0, 1.3), INCONCLUSIVE),
        (5.0, 9.0, (5.0, math.inf), SUPPORTED),
        (0.1, 1.03, (-math.inf, 1.03), SUPPORTED),
        (1.04, 1.05, (-math.inf, 1.03), REFUTED),
    ],
)
def test_place(low: float, high: float, target: tuple[float, float], verdict: Verdict) -> None:
    assert place(low, high, target) == verdict


@given(st.floats(-10, 10), st.floats(-10, 10), st.floats(-10, 10))
def test_an_exact_value_is_never_inconclusive(value: float, one: float, other: float) -> None:
    assert place(value, value, (min(one, other), max(one, other))) in (SUPPORTED, REFUTED)


def test_combine_over_every_set_of_verdicts() -> None:
    for size in range(len(VERDICTS) + 1):
        for found in itertools.permutations(VERDICTS, size):
            if REFUTED in found:
                wanted = REFUTED
            elif INCONCLUSIVE in found:
                wanted = INCONCLUSIVE
            elif SUPPORTED in found:
                wanted = SUPPORTED
            else:
                wanted = NOT_MEASURABLE
            assert combine(found) == wanted


def counted(value: float) -> Counted:
    return Counted("made up", {"a": value}, Reduction("value", ("a",)))


def timed(gain: float, noise: float = 0.004) -> Timed:
    machine = FakeMachine(5, noise=noise)
    arms = [machine.arm("old", 50e6), machine.arm("new", 50e6 / gain)]
    figure = Figure(Side("new", "speed"), Side("old", "speed"))
    return run_pairs(arms, figure, machine.probes(), control_of="old", seed=5)


@pytest.mark.parametrize(("value", "verdict"), [(1.0, SUPPORTED), (1.0000001, REFUTED)])
def test_exact_check(value: float, verdict: Verdict) -> None:
    result = judge_check(REGISTRY.check("7.traffic"), {"": counted(value)})
    assert (result.verdict, result.kind) == (verdict, "counted")
    assert (result.cells[0].value, result.cells[0].low, result.cells[0].high) == (value, None, None)


@pytest.mark.parametrize(
    ("gain", "noise", "verdict"),
    [(1.0, 0.004, SUPPORTED), (1.1, 0.004, REFUTED), (1.03, 0.004, INCONCLUSIVE), (1.0, 0.1, INCONCLUSIVE)],
)
def test_timed_check_no_benefit_is_a_target_up_to_the_margin(
    gain: float, noise: float, verdict: Verdict
) -> None:
    result = judge_check(REGISTRY.check("6.hint"), {"": timed(gain, noise)})
    assert result.verdict == verdict
    assert result.reason


def test_a_doubtful_run_never_decides_even_far_outside_the_target() -> None:
    doubtful = dataclasses.replace(timed(3.0), interrupted=True)
    result = judge_check(REGISTRY.check("6.hint"), {"": doubtful})
    assert (result.verdict, result.reason) == (INCONCLUSIVE, "the run was interrupted")
    assert result.cells[0].value == pytest.approx(3.0, rel=0.01)


def test_recorded_check_has_no_verdict() -> None:
    machine = FakeMachine(5)
    figure = Figure(Side("a", "speed"), None)
    run = run_pairs([machine.arm("a", 1e6)], figure, machine.probes(), control_of="a", seed=1)
    result = judge_check(REGISTRY.check("0.regime"), {"": run})
    assert result.verdict is None
    assert result.reason == "recorded, no target"


def law(*values: float) -> dict[str, Evidence | NotMeasurable]:
    labels = [cell.label for cell in REGISTRY.check("7.law").cells]
    made = [Derived("law", {"a": value}, Reduction("value", ("a",))) for value in values]
    return dict(zip(labels, made, strict=True))


def test_cells_all_count_and_the_first_that_decides_is_the_headline() -> None:
    result = judge_check(REGISTRY.check("7.law"), law(2.0, 9.0, 4.5))
    assert result.verdict == SUPPORTED and result.headline is result.cells[0]
    result = judge_check(REGISTRY.check("7.law"), law(2.0, 9.0, 4.6))
    assert result.verdict == REFUTED
    assert result.reason == "arch2_4_combined: exact value outside the target"
    assert result.headline.label == "arch2_4_combined"
    written = to_json(result)
    assert (written["value"], written["unit"]) == (4.6, "MiB")


def test_cells_that_cannot_be_measured_do_not_decide() -> None:
    cells = {**law(2.0, 9.0, 4.5), "arch1": NotMeasurable("no room")}
    assert judge_check(REGISTRY.check("7.law"), cells).verdict == SUPPORTED
    nothing = dict.fromkeys(cells, NotMeasurable("no room"))
    result = judge_check(REGISTRY.check("7.law"), nothing)
    assert (result.verdict, result.kind) == (NOT_MEASURABLE, "derived")
    assert result.reason == "no room"
    result = judge_check(REGISTRY.check("7.law"), {**nothing, "arch1": NotMeasurable("no time")})
    assert "arch1: no time" in result.reason and "arch2_4_combined: no room" in result.reason


def test_cells_use_the_corrected_confidence() -> None:
    result = judge_check(REGISTRY.check("7.time"), {"1 thread": timed(1.1), "all threads": timed(1.2)})
    assert [cell.summary.confidence for cell in result.cells if cell.summary] == [0.975, 0.975]


def test_kinds_are_never_mixed_and_must_count() -> None:
    mixed = {**law(2.0, 9.0, 4.5), "arch1": counted(9.0)}
    with pytest.raises(EvidenceError, match="7.law: kinds counted, derived mixed"):
        judge_check(REGISTRY.check("7.law"), mixed)
    with pytest.raises(EvidenceError, match="7.traffic: evidence is derived, kinds that count are counted"):
        judge_check(REGISTRY.check("7.traffic"), {"": Derived("x", {"a": 1}, Reduction("value", ("a",)))})


def test_every_declared_cell_needs_evidence_or_a_reason() -> None:
    cells = law(2.0, 9.0, 4.5)
    del cells["arch1"]
    with pytest.raises(EvidenceError, match="7.law: cells found"):
        judge_check(REGISTRY.check("7.law"), cells)


def test_absent_checks() -> None:
    assert absent_check(REGISTRY.check("7.overlap"), "full") == (NOT_MEASURABLE, "not built yet")
    assert absent_check(REGISTRY.check("2.l1.simulated"), "smoke") == (
        NOT_MEASURABLE,
        "not part of profile smoke",
    )
    assert absent_check(REGISTRY.check("2.l1.simulated"), "quick") == (INCONCLUSIVE, "not run")
    assert absent_check(REGISTRY.check("0.regime"), "quick") == (None, "not run")


def claim_verdict(*checks: tuple[str, bool, Verdict | None]) -> tuple[Verdict, str]:
    plain: Check = REGISTRY.check("7.traffic")
    rows = {
        name: (dataclasses.replace(plain, beyond=beyond), found, f"why {name}")
        for name, beyond, found in checks
    }
    return judge_claim(REGISTRY.claim("7"), rows)


def test_claim_verdict_leaves_out_what_goes_beyond() -> None:
    assert claim_verdict(("a", False, SUPPORTED), ("b", True, REFUTED)) == (SUPPORTED, "a: why a")
    assert claim_verdict(("a", False, SUPPORTED), ("b", False, NOT_MEASURABLE))[0] == SUPPORTED
    assert claim_verdict(("a", False, SUPPORTED), ("b", False, INCONCLUSIVE)) == (INCONCLUSIVE, "b: why b")
    assert claim_verdict(("a", False, INCONCLUSIVE), ("b", False, REFUTED)) == (REFUTED, "b: why b")
    assert claim_verdict(("a", False, NOT_MEASURABLE), ("b", True, SUPPORTED))[0] == NOT_MEASURABLE
    assert claim_verdict(("a", True, SUPPORTED))[0] == NOT_MEASURABLE


def test_claim_that_is_not_built() -> None:
    assert judge_claim(REGISTRY.claim("4"), {}) == (NOT_MEASURABLE, "not built yet")


def test_targets_have_null_for_an_open_end() -> None:
    assert target_json((5.0, math.inf)) == [5.0, None]
    assert target_json((-math.inf, 1.03)) == [None, 1.03]
    assert target_json(None) is None
