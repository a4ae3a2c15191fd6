"""A check of "no benefit" counts only where an arm that is known to help can be seen to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.check import check as second_opinion
from harness.check_rounds import timed_finding
from harness.errors import RegistryError
from harness.kinds import INCONCLUSIVE, SUPPORTED, Verdict
from harness.paired import run_pairs
from harness.registry import Check, parse_registry
from harness.results import Recorder, RunInfo
from harness.rounds import Figure, Paths, Side, Timed
from harness.verdict import judge_check
from tests.harness.fake import FakeMachine
from tests.harness.make_sample import MACHINE, SAMPLE_DIR

TEXT = (SAMPLE_DIR / "claims.toml").read_text(encoding="utf-8")
DECLARED = TEXT.replace("margin = 0.03", 'margin = 0.03\npositive_control = "early"', 1)


def measured(gain: float, helper: str = "early", reference: bool = True) -> Timed:
    """A hint that does nothing, beside an arm that is `gain` times as fast."""
    machine = FakeMachine(9)
    arms = [machine.arm("off", 80e6), machine.arm("hint", 80e6), machine.arm(helper, 80e6 / gain)]
    figure = Figure(Side("hint", "speed"), Side("off", "speed") if reference else None)
    return run_pairs(arms, figure, machine.probes(), control_of="off", seed=9)


def both(check: Check, timed: Timed) -> tuple[Verdict | None, str, tuple[str, ...]]:
    """Verdict and reason of the judge, and the doubts of the second opinion."""
    result = judge_check(check, {"": timed})
    summary = result.cells[0].summary
    assert summary is not None and check.positive_control is not None and check.margin is not None
    faults: list[str] = []
    found = timed_finding(
        timed.to_json(),
        summary.to_json(),
        check.guard,
        1,
        faults.append,
        (check.positive_control, check.margin),
    )
    assert faults == []
    return result.verdict, result.reason, found.doubts


@pytest.fixture(scope="module")
def check() -> Check:
    return parse_registry(DECLARED).check("6.hint")


def test_a_control_that_gains_lets_the_figure_count(check: Check) -> None:
    assert both(check, measured(1.2)) == (SUPPORTED, "interval inside the target", ())


@pytest.mark.parametrize("gain", [0.9, 1.0, 1.029])
def test_a_control_that_does_not_gain_decides_nothing(check: Check, gain: float) -> None:
    verdict, reason, doubts = both(check, measured(gain))
    assert verdict == INCONCLUSIVE
    assert "the positive control early gains [" in reason and "needed above 1.03" in reason
    assert doubts == ("early does not gain",)


MODEL = Paths(Side("off", "time"), Side("early", "time"), ((1.0, 0.0),))
AGAINST_A_MODEL = replace(measured(1.2), figure=Figure(Side("hint", "time"), MODEL))


@pytest.mark.parametrize(
    "timed", [measured(1.2, helper="other"), measured(1.2, reference=False), AGAINST_A_MODEL]
)
def test_no_control_decides_nothing(check: Check, timed: Timed) -> None:
    verdict, reason, doubts = both(check, timed)
    assert (verdict, doubts) == (INCONCLUSIVE, ("no positive control",))
    assert "no positive control: early" in reason


@pytest.mark.parametrize(
    ("gain", "guard", "verdict"),
    [(1.2, 0.02, SUPPORTED), (1.0, 0.02, INCONCLUSIVE), (1.2, 1e-6, INCONCLUSIVE)],
)
def test_the_second_opinion_knows_control_and_guard(
    tmp_path: Path, gain: float, guard: float, verdict: Verdict
) -> None:
    registry = parse_registry(DECLARED.replace("guard = 0.02", f"guard = {guard}", 1))
    run = RunInfo("quick", {"only": ["6.hint"]}, None, None, "pytest")
    recorder = Recorder.open(tmp_path, registry, run, {}, MACHINE, clock_ns=lambda: 10**15)
    assert recorder.add("6.hint", measured(gain), started_ns=0, command="pytest")[0] == verdict
    found = second_opinion(tmp_path)
    assert found["problems"] == []
    assert next(claim["verdict"] for claim in found["claims"] if claim["id"] == "6") == verdict


def test_it_is_declared_beside_a_margin(check: Check) -> None:
    assert check.positive_control == "early"
    assert parse_registry(TEXT).check("6.hint").positive_control is None
    without = DECLARED.replace("margin = 0.03\n", "", 1).replace("guard = 0.02\n", "", 1)
    with pytest.raises(
        RegistryError, match=r"6\.hint\]\.positive_control: found 'early', allowed: only beside"
    ):
        parse_registry(without)
