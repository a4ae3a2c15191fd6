"""Intervals over repetitions, against scipy and the second implementation in harness/check_estimates.py."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from harness.check import check
from harness.check_estimates import incomplete, interval_of, two_sided
from harness.errors import EvidenceError
from harness.estimates import Estimate, estimate, t_interval, t_quantile
from harness.evidence import Counted, Derived
from harness.kinds import INCONCLUSIVE, REFUTED, SUPPORTED, Verdict
from harness.reductions import Observation, Reduction
from harness.registry import Cell, Check, parse_registry
from harness.results import Recorder, RunInfo
from harness.verdict import CheckResult, judge_check
from tests.harness.make_sample import MACHINE, SAMPLE_DIR

LOGS = st.floats(-5, 9, allow_nan=False)
CONFIDENCES = st.sampled_from([0.5, 0.9, 0.95, 0.99, 1 - 0.05 / 7, 0.999])


@settings(max_examples=40)
@given(CONFIDENCES, st.integers(1, 40))
def test_quantiles_are_those_of_scipy(confidence: float, freedom: int) -> None:
    wanted = stats.t.ppf((1 + confidence) / 2, freedom)
    assert t_quantile(confidence, freedom) == pytest.approx(wanted, rel=1e-10)
    assert two_sided(1 - confidence, freedom) == pytest.approx(wanted, rel=1e-10)


@given(st.lists(LOGS, min_size=2, max_size=12, unique=True), CONFIDENCES)
def test_interval_is_that_of_scipy(values: list[float], confidence: float) -> None:
    found = t_interval(values, confidence)
    assert found is not None
    scale = stats.sem(values)
    mean = math.fsum(values) / len(values)
    wanted = stats.t.interval(confidence, len(values) - 1, loc=mean, scale=scale)
    assert found == pytest.approx(wanted, rel=1e-9, abs=1e-9 * max(1.0, scale))


@settings(max_examples=40)
@given(st.lists(st.tuples(LOGS, LOGS), max_size=10), st.integers(1, 7), st.booleans())
def test_two_implementations_agree(pairs: list[tuple[float, float]], cells: int, paired: bool) -> None:
    observations = of_pairs(pairs)
    reduction = Reduction("exp_mean_difference", ("a", "b")) if paired else Reduction("exp_mean", ("a",))
    if not paired:
        observations["runs"] = [f"a-{seed}" for seed in range(len(pairs))]
    found = estimate(observations, reduction, 1.0 - 0.05 / cells)
    other = second(observations, reduction, 0.05 / cells)
    assert found is not None and other is not None
    for one, two in zip((found.value, found.low, found.high), other, strict=True):
        assert (one is None) is (two is None)
        assert one is None or two is None or math.isclose(one, two, rel_tol=1e-9, abs_tol=1e-300)


def of_pairs(pairs: list[tuple[float, float]]) -> dict[str, Observation]:
    names = [f"{arm}-{seed}" for arm in "ab" for seed in range(len(pairs))]
    return {"a": [a for a, _ in pairs], "b": [b for _, b in pairs], "runs": names, "diverged": []}


def second(observations: dict[str, Observation], reduction: Reduction, alpha: float) -> Any:
    evidence = {"observations": observations, "reduction": reduction.to_json()}
    return interval_of(evidence, alpha)


@given(st.lists(st.tuples(LOGS, LOGS), min_size=2, max_size=8))
def test_turning_a_ratio_round_inverts_its_interval(pairs: list[tuple[float, float]]) -> None:
    observations = of_pairs(pairs)
    one = estimate(observations, Reduction("exp_mean_difference", ("a", "b")), 0.95)
    other = estimate(observations, Reduction("exp_mean_difference", ("b", "a")), 0.95)
    assert one is not None and one.value is not None and one.low is not None and one.high is not None
    assert other is not None and other.value is not None and other.low is not None and other.high is not None
    assert math.log(one.value) == pytest.approx(-math.log(other.value), abs=1e-9)
    if other.low > 0 and one.low > 0:
        assert math.log(one.low) == pytest.approx(-math.log(other.high), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(
    ("outcomes", "planned", "wanted"),
    [
        ([0, 0, 0], 3, (0, 0, 0)),
        ([0, 1], 2, (1, 1, 1)),
        ([0], 3, (0, 0, 2)),
        ([1, 0], 5, (1, 1, 4)),
        ([], 5, (None, None, None)),
    ],
)
def test_a_count_so_far_is_bounded_by_what_is_missing(
    outcomes: list[int], planned: int, wanted: tuple[float | None, ...]
) -> None:
    observations: dict[str, Observation] = {"bad": outcomes, "planned": planned}
    reduction = Reduction("count_so_far", ("bad", "planned"))
    count = len(outcomes)
    assert estimate(observations, reduction, 0.95) == Estimate(*wanted, count, count, planned)
    assert second(observations, reduction, 0.05) == wanted


@pytest.mark.parametrize("observations", [{"bad": [0, 0], "planned": 1}, {"bad": [0, 2], "planned": 3}])
def test_impossible_counts_are_refused_by_both(observations: dict[str, Observation]) -> None:
    reduction = Reduction("count_so_far", ("bad", "planned"))
    with pytest.raises(EvidenceError, match=r"of bad, planned: found 2 outcomes of \[.*\], allowed: 0 or 1"):
        estimate(observations, reduction, 0.95)
    with pytest.raises(ValueError, match="outcomes"):
        second(observations, reduction, 0.05)


def test_an_interval_beyond_all_numbers_is_refused_by_both() -> None:
    observations: dict[str, Observation] = {"a": [1.0, 600.0], "runs": ["a-0", "a-1"], "diverged": []}
    with pytest.raises(EvidenceError, match="the interval of logarithms is"):
        estimate(observations, Reduction("exp_mean", ("a",)), 0.95)
    with pytest.raises(ArithmeticError):
        second(observations, Reduction("exp_mean", ("a",)), 0.05)


def test_the_second_opinion_names_what_has_no_interval() -> None:
    with pytest.raises(ValueError, match=r"^exp_mean of 2 observations$"):
        second({"a": [0.1], "b": [0.1]}, Reduction("exp_mean", ("a", "b")), 0.05)


def test_broken_pairs_are_refused_by_both() -> None:
    reduction = Reduction("exp_mean_difference", ("a", "b"))
    for observations in ({"a": [1.0, 2.0], "b": [1.0]}, {"a": [1.0], "b": []}, {"a": [1.0]}):
        with pytest.raises(EvidenceError):
            estimate(observations, reduction, 0.95)
        with pytest.raises((ValueError, LookupError)):
            second(observations, reduction, 0.05)


@pytest.mark.parametrize(("runs", "diverged"), [([], []), (["a-0"], ["a-0"])])
def test_nothing_is_there_yet(runs: list[str], diverged: list[str]) -> None:
    observations: dict[str, Observation] = {"a": [], "runs": runs, "diverged": diverged}
    found = estimate(observations, Reduction("exp_mean", ("a",)), 0.95)
    assert found == Estimate(None, None, None, 0, len(runs))


@pytest.mark.parametrize(
    ("reduction", "message"),
    [
        (Reduction("exp_mean", ()), "exp_mean takes 1 observations, found 0"),
        (Reduction("count_so_far", ("bad",)), "count_so_far takes 2 observations, found 1"),
        (Reduction("count_so_far", ("bad", "none")), r"observations\.none: found 0 numbers, allowed: one"),
        (Reduction("count_so_far", ("bad", "two")), r"observations\.two: found 2 numbers, allowed: one"),
    ],
)
def test_an_estimate_takes_what_its_reduction_takes(reduction: Reduction, message: str) -> None:
    observations: dict[str, Observation] = {"bad": [], "none": [], "two": [3, 3], "runs": [], "diverged": []}
    with pytest.raises(EvidenceError, match=message):
        estimate(observations, reduction, 0.95)


def test_exact_reductions_have_no_estimate() -> None:
    assert estimate({"a": 1}, Reduction("value", ("a",)), 0.95) is None
    assert second({"a": 1}, Reduction("value", ("a",)), 0.05) is None


@pytest.mark.parametrize(("confidence", "freedom"), [(0.0, 3), (1.0, 3), (0.95, 0)])
def test_impossible_quantiles_are_refused(confidence: float, freedom: int) -> None:
    with pytest.raises(EvidenceError, match="t quantile"):
        t_quantile(confidence, freedom)


def ratio(a: list[float], b: list[float], note: str = "", unpaired: int = 0) -> Derived:
    names = [f"{arm}-{seed}" for arm in "ab" for seed in range(len(a))]
    runs = [*names, *(f"a-{len(a) + seed}" for seed in range(unpaired))]
    reduction = Reduction("exp_mean_difference", ("a", "b"))
    return Derived("made up", {"a": a, "b": b, "runs": runs, "diverged": []}, reduction, {}, note=note)


def judged(
    found: Derived | Counted, target: tuple[float, float] | None, repetitions: int | None
) -> tuple[Verdict | None, str]:
    result = judge(found, target, repetitions)
    return result.verdict, result.reason


def judge(
    found: Derived | Counted, target: tuple[float, float] | None, repetitions: int | None
) -> CheckResult:
    cell = Cell("", "ratio", None, target, repetitions)
    check = Check(
        "9.x", "8", "s", "p", None, "ratio", "m", "ratio", target, ("derived", "counted"), (), {"quick": 1.0},
        target is None, False, True, None, None, 0.03, (cell,),
    )  # fmt: skip
    return judge_check(check, {"": found})


NEAR = ([4.001, 4.102, 4.199], [4.0, 4.1, 4.2])


MARGIN = (1 / 1.01, 1.01)


def test_verdicts_of_intervals() -> None:
    assert judged(ratio(*NEAR), MARGIN, 6) == (SUPPORTED, "interval inside the target")
    assert judged(ratio([5.0, 5.1, 5.2], [4.0, 4.1, 4.2]), MARGIN, 6)[0] == REFUTED
    assert judged(ratio([4.1, 4.1], [4.0, 4.2]), MARGIN, 4)[0] == INCONCLUSIVE
    # Runs without a partner, or that diverged, are there, too.
    assert judged(ratio(*NEAR, unpaired=5), MARGIN, 11)[0] == SUPPORTED
    one = judged(ratio([4.0], [4.0], "a note", unpaired=4), MARGIN, 6)
    assert one == (INCONCLUSIVE, "repetitions: 1, an interval needs 2 (a note)")
    assert judged(ratio(*NEAR, note="so far"), None, None) == (None, "recorded, no target (so far)")


@pytest.mark.parametrize("repetitions", [5, 7, 16])
def test_a_series_that_grows_is_not_judged(repetitions: int) -> None:
    for found in (ratio(*NEAR), ratio([5.0, 5.1, 5.2], [4.0, 4.1, 4.2])):
        result = judge(found, MARGIN, repetitions)
        assert (result.verdict, result.reason) == (INCONCLUSIVE, f"6 of {repetitions} runs are there")
        # No interval either: its confidence is that of the one look at the end.
        assert result.headline.value == found.value
        assert (result.headline.low, result.headline.high) == (None, None)
        assert incomplete(found.to_json(), repetitions) == f"6 of {repetitions} runs"
    assert judged(ratio([], []), MARGIN, repetitions) == (INCONCLUSIVE, f"0 of {repetitions} runs are there")


def test_what_was_not_declared_is_not_judged() -> None:
    assert judged(ratio(*NEAR), MARGIN, None) == (INCONCLUSIVE, "claims.toml declares no repetitions")
    assert incomplete(ratio(*NEAR).to_json(), None) == "how many runs it takes was not declared"


PAIRED = ["a-0", "a-1", "b-0", "b-1"]


@pytest.mark.parametrize(
    ("runs", "diverged"),
    [
        (None, []),
        (PAIRED, None),
        ("a-0", []),
        ([0, 1, 2, 3], []),
        (["a-0", "a-1", "b-0"], []),
        (["a-0", "a-0", "a-1", "b-0", "b-1"], []),
        ([*PAIRED, "a-2", "b-2"], []),  # a pair was left out
        ([*PAIRED, "a-2", "b-2"], ["a-2", "c-0"]),
        (["a-0", "a-1", "b-0", "b-2"], []),
        (PAIRED, ["b-1"]),
    ],
)
def test_runs_give_the_values_that_are_there(runs: Any, diverged: Any) -> None:
    observations: dict[str, Any] = {"a": [1.0, 2.0], "b": [1.0, 2.0], "runs": runs, "diverged": diverged}
    observations = {name: item for name, item in observations.items() if item is not None}
    found = Derived("made up", observations, Reduction("exp_mean_difference", ("a", "b")))
    with pytest.raises(EvidenceError, match=r"observations\.(runs|diverged): found"):
        estimate(observations, found.reduction, 0.95)
    with pytest.raises((ValueError, LookupError, TypeError)) as refused:
        incomplete(found.to_json(), 4)
    if isinstance(runs, list) and isinstance(diverged, list) and all(isinstance(run, str) for run in runs):
        assert str(refused.value) == f"2 values of the runs {runs}, diverged {diverged}"


def test_a_pair_whose_run_diverged_is_accounted_for() -> None:
    observations: dict[str, Observation] = {"a": [1.0, 2.0], "b": [1.1, 2.1], "diverged": ["b-2"]}
    observations["runs"] = [*PAIRED, "a-2", "b-2"]
    found = Derived("made up", observations, Reduction("exp_mean_difference", ("a", "b")))
    assert judged(found, MARGIN, 6)[0] != INCONCLUSIVE
    assert incomplete(found.to_json(), 6) is None
    single = Derived(
        "made up",
        {**observations, "a": [5.0, 5.01], "runs": ["a-0", "a-1", "b-2"]},
        Reduction("exp_mean", ("a",)),
    )
    assert judged(single, MARGIN, 3)[0] == REFUTED
    assert incomplete(single.to_json(), 3) is None


@pytest.mark.parametrize(
    ("outcomes", "verdict"), [([0, 0], SUPPORTED), ([0], INCONCLUSIVE), ([1], REFUTED), ([], INCONCLUSIVE)]
)
def test_verdicts_of_counts_so_far(outcomes: list[int], verdict: Verdict) -> None:
    # A run that diverged has diverged, however many follow: a count is judged by what it can still become.
    assert judged(so_far(outcomes), (0, 0), 2)[0] == verdict
    assert incomplete(so_far(outcomes).to_json(), 2) is None


def test_a_count_plans_what_was_declared() -> None:
    with pytest.raises(EvidenceError, match="planned: found 2, claims.toml declares 3"):
        judged(so_far([0, 0]), (0, 0), 3)
    with pytest.raises(ValueError, match="planned is 2, declared 3"):
        incomplete(so_far([0, 0]).to_json(), 3)


def so_far(outcomes: list[int]) -> Counted:
    return Counted("made up", {"bad": outcomes, "planned": 2}, Reduction("count_so_far", ("bad", "planned")))


# ---- in a file, and the second opinion on it ----

REPEATED = """
[[check]]
id = "9.ratio"
claim = "7"
statement = "made up"
metric = "ratio"
unit = "ratio"
target = [0.990099, 1.01]
repetitions = 6
kinds = ["derived"]
budget_s = { quick = 1 }
cells = [{ label = "whole" }, { label = "grows", repetitions = 8 }, { label = "single", repetitions = 2 }]

[[check]]
id = "9.recorded"
claim = "7"
statement = "made up"
metric = "ratio"
unit = "ratio"
kinds = ["derived"]
beyond = true
budget_s = { quick = 1 }
"""
REGISTRY = parse_registry((SAMPLE_DIR / "claims.toml").read_text(encoding="utf-8") + REPEATED)


def repeated(folder: Path, edit: Callable[[dict[str, Any]], None] = lambda _: None) -> dict[str, Any]:
    """What the second opinion says of a file, with an edit of the evidence of 9.ratio's first cell."""
    recorder = Recorder.open(folder, REGISTRY, RunInfo("quick", {}, None, None, "pytest"), {}, MACHINE)
    cells = {"whole": ratio(*NEAR), "grows": ratio(*NEAR), "single": ratio([4.0], [4.1])}
    for check_id, found in (("9.ratio", cells), ("9.recorded", ratio(*NEAR))):
        recorder.add(check_id, found, started_ns=time.monotonic_ns(), command="pytest")
    path = folder / "results.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    edit(data["checks"][0]["cells"][0])
    path.write_text(json.dumps(data), encoding="utf-8")
    return check(folder)


def said(found: dict[str, Any], check_id: str = "9.ratio") -> list[str]:
    return [one["problem"] for one in found["problems"] if one["check"] == check_id]


def test_the_second_opinion_agrees_on_repetitions(tmp_path: Path) -> None:
    assert repeated(tmp_path)["problems"] == []
    whole, grows, single = json.loads((tmp_path / "results.json").read_text())["checks"][0]["cells"]
    observations = of_pairs(list(zip(*NEAR, strict=True)))
    wanted = second(observations, Reduction("exp_mean_difference", ("a", "b")), 0.05 / 3)
    assert (whole["value"], whole["low"], whole["high"]) == pytest.approx(wanted, rel=1e-12)
    assert whole["verdict"] == SUPPORTED
    assert (grows["low"], grows["high"], grows["verdict"]) == (None, None, INCONCLUSIVE)
    assert (single["value"], single["low"], single["verdict"]) == (
        pytest.approx(math.exp(-0.1)),
        None,
        INCONCLUSIVE,
    )


@pytest.mark.parametrize(
    ("edit", "fault"),
    [
        (lambda cell: cell.update(low=0.99), "cell 'whole': low is 0.99, the raw material gives 0.99"),
        (lambda cell: cell.update(verdict="REFUTED"), "verdict is REFUTED, the raw material gives SUPPORTED"),
        (
            lambda cell: cell["evidence"]["observations"]["a"].pop(),
            "cell 'whole': exp_mean_difference fails: ValueError(",
        ),
        (
            lambda cell: cell["evidence"]["observations"].pop("runs"),
            "cell 'whole': exp_mean_difference fails: KeyError('runs')",
        ),
    ],
)
def test_edited_repetitions_are_noticed(
    tmp_path: Path, edit: Callable[[dict[str, Any]], None], fault: str
) -> None:
    assert any(fault in problem for problem in said(repeated(tmp_path, edit)))
