"""The sign-test interval is checked by exact arithmetic; what balanced order keeps is documented by
simulation.
"""

from __future__ import annotations

import dataclasses
import math
import random
import statistics as stdlib_statistics
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from harness.check_rounds import timed_finding
from harness.errors import EvidenceError
from harness.paired import balanced_block, run_pairs
from harness.rounds import Figure, Pattern, Placed, Roof, Round, Side, Timed
from harness.statistics import binomial_tail, median, sign_interval, sign_rank, summarise, within
from harness.voids import mark_voids
from tests.harness.fake import FakeMachine


def exact_coverage(n: int, k: int) -> Fraction:
    """P(x[k] <= median <= x[n+1-k]) for a continuous distribution: 1 - 2 P(Bin(n, 1/2) <= k - 1), in whole
    numbers.
    """
    return 1 - Fraction(2 * sum(math.comb(n, i) for i in range(k)), 2**n)


@pytest.mark.parametrize("cells", [1, 2, 6, 24])
def test_coverage_is_at_least_the_confidence_for_every_n(cells: int) -> None:
    wanted = 1 - Fraction(1, 20 * cells)
    found = 0
    for n in range(6, 201):
        k = sign_rank(n, 1.0 - 0.05 / cells)
        if k == 0:
            assert exact_coverage(n, 1) < wanted, f"n = {n}: an interval exists and was not given"
            continue
        found += 1
        assert exact_coverage(n, k) >= wanted, f"n = {n}"
        assert exact_coverage(n, k + 1) < wanted, f"n = {n}: a shorter interval would do"
    assert found >= 195 - 6
    if cells == 1:
        assert found == 195


@pytest.mark.parametrize("n", range(1, 6))
def test_too_few_values_have_no_interval(n: int) -> None:
    assert sign_interval([1.0] * n, 0.95) is None


def test_known_ranks() -> None:
    # As printed in tables of 95 % intervals for a median: ranks 1 and 6 of 6, 3 and 10 of 12, ...
    assert [sign_rank(n, 0.95) for n in (6, 12, 20, 50, 100)] == [1, 3, 6, 18, 40]
    # Whole halves: exactly as much as is allowed, and a first rank that is the middle one.
    assert [sign_rank(n, 0.5) for n in (1, 2, 3)] == [0, 1, 1] and sign_rank(3, 0.3) == 1


@given(st.lists(st.floats(-10, 10), min_size=6, max_size=60), st.randoms(use_true_random=False))
def test_interval_holds_the_median_and_ignores_order(values: list[float], shuffler: random.Random) -> None:
    interval = sign_interval(values, 0.95)
    assert interval is not None
    assert interval[0] <= median(values) <= interval[1]
    shuffled = list(values)
    shuffler.shuffle(shuffled)
    assert sign_interval(shuffled, 0.95) == interval


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50))
def test_median_equals_the_standard_library(values: list[float]) -> None:
    assert median(values) == stdlib_statistics.median(values)


def test_median_of_nothing_is_refused() -> None:
    with pytest.raises(EvidenceError, match="^median: no values$"):
        median([])


@given(st.integers(1, 60), st.floats(0.05, 0.95), st.data())
def test_binomial_tail_equals_scipy(n: int, p: float, data: st.DataObject) -> None:
    successes = data.draw(st.integers(0, n))
    assert binomial_tail(successes, n, p) == pytest.approx(
        float(stats.binom.sf(successes - 1, n, p)), rel=1e-9, abs=1e-12
    )


@pytest.mark.parametrize(
    ("ratio", "inside"), [(1.0, True), (1.03, True), (1 / 1.03, True), (1.031, False), (0.97, False)]
)
def test_within_is_symmetric_in_ratios(ratio: float, inside: bool) -> None:
    assert within(ratio, 0.03) is inside


# --- what the balanced order keeps ---

TRUE_LOG_RATIO = math.log(1.05)
ROUNDS = 24
ARMS = 3


def simulated_logs(rng: random.Random, balanced: bool, drift: float, rho: float, sigma: float) -> list[float]:
    """Log ratios of arm 1 over arm 0 with linear drift over the run and AR(1) noise from slot to slot."""
    orders: list[tuple[int, ...]] = []
    while len(orders) < ROUNDS:
        orders += balanced_block(ARMS, rng) if balanced else [tuple(range(ARMS))] * (2 * ARMS)
    noise, slots, out = rng.gauss(0.0, sigma), ROUNDS * ARMS, []
    for seq, order in enumerate(orders):
        logs = {}
        for position, arm in enumerate(order):
            noise = rho * noise + math.sqrt(1 - rho * rho) * rng.gauss(0.0, sigma)
            logs[arm] = noise + drift * (seq * ARMS + position) / slots
        out.append(TRUE_LOG_RATIO + logs[1] - logs[0])
    return out


def coverage_and_bias(
    balanced: bool, drift: float, rho: float, sigma: float, runs: int = 600
) -> tuple[float, float]:
    rng = random.Random(20260101)
    hits, medians = 0, []
    for _ in range(runs):
        logs = simulated_logs(rng, balanced, drift, rho, sigma)
        interval = sign_interval(logs, 0.95)
        assert interval is not None
        hits += interval[0] <= TRUE_LOG_RATIO <= interval[1]
        medians.append(median(logs) - TRUE_LOG_RATIO)
    return hits / runs, sum(medians) / runs


def test_balanced_order_keeps_coverage_under_linear_drift_and_fixed_order_does_not() -> None:
    # A drift of 30 % over the run is 0.42 % from slot to slot. In fixed order all of it enters the ratio.
    coverage, bias = coverage_and_bias(True, drift=0.30, rho=0.0, sigma=0.002)
    assert coverage >= 0.95
    assert abs(bias) < 0.0003
    coverage, bias = coverage_and_bias(False, drift=0.30, rho=0.0, sigma=0.002)
    assert coverage < 0.05
    assert bias == pytest.approx(0.30 / (ROUNDS * ARMS), rel=0.05)


@pytest.mark.parametrize("rho", [0.3, 0.6, 0.9])
def test_balanced_order_keeps_coverage_under_ar1_noise(rho: float) -> None:
    # Neighbouring rounds stay a little correlated, but within a round the noise of neighbours cancels.
    coverage, bias = coverage_and_bias(True, drift=0.0, rho=rho, sigma=0.01)
    assert coverage >= 0.94
    assert abs(bias) < 0.0005


def test_balanced_order_keeps_coverage_under_both() -> None:
    coverage, bias = coverage_and_bias(True, drift=0.30, rho=0.8, sigma=0.01)
    assert coverage >= 0.94
    assert abs(bias) < 0.0005


# --- the rules of evidence ---

FIGURE = Figure(Side("new", "speed"), Side("old", "speed"))


def run(machine: FakeMachine, gain: float = 1.2, rounds: int = 24, **options: object) -> Timed:
    new, old = machine.arm("new", 50e6 / gain, **options), machine.arm("old", 50e6, **options)  # type: ignore[arg-type]
    return run_pairs([old, new], FIGURE, machine.probes(), control_of="old", seed=1, rounds=rounds)


def reasons(timed: Timed, guard: float = 0.03, cells: int = 1) -> str:
    """Reasons of the summary. The second opinion must find a doubt exactly when there is a reason."""
    summary = summarise(timed, 1.0 - 0.05 / cells, guard)
    found: list[str] = []
    second = timed_finding(timed.to_json(), summary.to_json(), guard, cells, found.append)
    assert bool(second.doubts) is bool(summary.reasons), (second.doubts, summary.reasons)
    assert [text for text in found if "above 1.03" not in text] == []
    return "; ".join(summary.reasons)


def changed(one: Round, arm: str, slower: float = 1.0, delay_ns: int = 0) -> Round:
    """A round with one sample made slower or faster, or delayed in the run queue."""
    placed = one.samples[arm]
    sample = dataclasses.replace(placed.sample, ns=round(placed.sample.ns * slower))
    new = dataclasses.replace(placed, sample=sample, run_delay_ns=delay_ns)
    return dataclasses.replace(one, samples={**one.samples, arm: new})


def voided(timed: Timed, count: int, arm: str | None = None) -> Timed:
    """The first `count` rounds void: by steal, or by the run queue of one arm."""

    def spoil(one: Round) -> Round:
        if arm is None:
            return dataclasses.replace(one, steal_ticks=one.cpu_ticks)
        return changed(one, arm, delay_ns=10**9)

    return marked(timed, [spoil(one) if one.seq < count else one for one in timed.rounds])


def marked(timed: Timed, rounds: list[Round]) -> Timed:
    """The run with these rounds; as many valid ones wanted as there are, so that the stop rule holds."""
    found = mark_voids(timed.arms, rounds)
    return dataclasses.replace(timed, rounds=found, rounds_wanted=sum(not one.void for one in found))


def test_a_clean_run_has_no_reasons_and_the_right_figure() -> None:
    summary = summarise(run(FakeMachine(1)), 0.95, 0.03)
    assert summary.reasons == ()
    assert (summary.valid, summary.void, summary.share) == (24, 0, None)
    assert summary.low is not None and summary.high is not None and summary.value is not None
    assert summary.low <= summary.value <= summary.high
    assert summary.value == pytest.approx(1.2, rel=0.01)
    assert summary.a_a is not None and summary.a_a[0] < 1.0 < summary.a_a[1]


def test_fewer_than_twelve_valid_rounds_decide_nothing() -> None:
    timed = run(FakeMachine(1), rounds=12)
    assert reasons(timed) == ""
    assert reasons(voided(timed, 1)) == "11 valid rounds, fewer than 12"


def test_more_than_a_third_void_decides_nothing() -> None:
    timed = run(FakeMachine(1))
    assert reasons(voided(timed, 8)) == ""
    assert "9 of 24 rounds void, more than a third (steal 9)" in reasons(voided(timed, 9))


def test_an_idle_engine_that_works_voids_for_both_opinions() -> None:
    timed = run(FakeMachine(1))

    def watched(one: Round, name: str, placed: Placed) -> Placed:
        used_ns = placed.wall_ns // 50 if one.seq < 9 and name == "old" else 0
        counters = {**placed.sample.counters, "idle_cpu_ns": used_ns}
        return dataclasses.replace(placed, sample=dataclasses.replace(placed.sample, counters=counters))

    spoilt = marked(
        timed,
        [
            dataclasses.replace(
                one, samples={name: watched(one, name, it) for name, it in one.samples.items()}
            )
            for one in timed.rounds
        ],
    )
    assert "9 of 24 rounds void, more than a third (idle_engine 9)" in reasons(spoilt)


def test_an_engine_that_failed_voids_for_both_opinions() -> None:
    timed = run(FakeMachine(1))

    def failed(one: Round) -> Round:
        placed = one.samples["old"]
        lost = dataclasses.replace(placed.sample, digest="", bytes=0, counters={"engine_failed": 1})
        return dataclasses.replace(
            one, samples={**one.samples, "old": dataclasses.replace(placed, sample=lost)}
        )

    spoilt = marked(timed, [failed(one) if one.seq < 9 else one for one in timed.rounds])
    assert "9 of 24 rounds void, more than a third (engine_failed 9)" in reasons(spoilt)


def test_voids_on_one_arm_decide_nothing() -> None:
    timed = run(FakeMachine(1))
    # Three arms: P(X = n) = 3^-n; 4 of 4 is 0.012, 5 of 5 is 0.004.
    assert reasons(voided(timed, 4, "new")) == ""
    assert "voids fall on one arm: new, 5 of 5" in reasons(voided(timed, 5, "new"))


@pytest.mark.parametrize(("count", "allowed"), [(11, True), (12, False)])
def test_voids_shared_by_an_arm_and_its_twin_decide_nothing(count: int, allowed: bool) -> None:
    # Two of three arms: P(X = n) = (2 / 3)^n; 11 of 11 is 0.012, 12 of 12 is 0.008. Either alone is no rare
    # event.
    timed = run(FakeMachine(1), rounds=36)
    twins = ("old", "old (A/A)")
    rounds = [
        changed(one, twins[one.seq % 2], delay_ns=10**9) if one.seq < count else one for one in timed.rounds
    ]
    found = reasons(marked(timed, rounds))
    if allowed:
        assert found == ""
    else:
        assert found.startswith("voids fall on one arm and its A/A twin: old, 12 of 12")


def test_voids_of_a_lone_arm_and_its_twin_are_not_one_sided() -> None:
    machine = FakeMachine(1)
    figure = Figure(Side("old", "speed"), None)
    timed = run_pairs(
        [machine.arm("old", 50e6)], figure, machine.probes(), control_of="old", seed=1, rounds=36
    )
    twins = ("old", "old (A/A)")
    rounds = [
        changed(one, twins[one.seq % 2], delay_ns=10**9) if one.seq < 12 else one for one in timed.rounds
    ]
    assert reasons(marked(timed, rounds)) == ""


def test_void_rounds_do_not_enter_the_figure() -> None:
    timed = voided(run(FakeMachine(1)), 1)
    slow = dataclasses.replace(
        timed, rounds=(changed(timed.rounds[0], "new", slower=0.02), *timed.rounds[1:])
    )
    assert summarise(marked(slow, list(slow.rounds)), 0.95, 0.03) == summarise(timed, 0.95, 0.03)


@pytest.mark.parametrize(("slower", "allowed"), [(0.98, True), (0.96, False), (0.9, False)])
def test_a_control_off_one_decides_nothing(slower: float, allowed: bool) -> None:
    timed = run(FakeMachine(2))
    rounds = tuple(changed(one, "old (A/A)", slower=slower) for one in timed.rounds)
    found = reasons(dataclasses.replace(timed, rounds=rounds))
    assert found == "" if allowed else found.startswith("A/A interval")


def test_a_run_without_control_decides_nothing() -> None:
    timed = run(FakeMachine(1))
    arms = tuple(dataclasses.replace(arm, control_of=None) for arm in timed.arms)
    bare = dataclasses.replace(timed, arms=arms)
    summary = summarise(bare, 0.95, 0.03)
    assert summary.reasons == ("no A/A control arm",)
    found: list[str] = []
    second = timed_finding(bare.to_json(), summary.to_json(), 0.03, 1, found.append)
    assert found == ["A/A controls are [], allowed: exactly one"]
    assert found[0] in second.doubts


def test_halves_that_disagree_decide_nothing() -> None:
    machine = FakeMachine(3)
    new = machine.arm("new", 50e6, drift=lambda seq: 1.0 if seq < 12 else 1.05)
    timed = run_pairs(
        [machine.arm("old", 50e6), new], FIGURE, machine.probes(), control_of="old", seed=1, rounds=24
    )
    assert "medians of the two halves differ" in reasons(timed)
    assert reasons(timed, guard=0.06) == ""


def test_an_interrupted_run_decides_nothing() -> None:
    assert "interrupted" in reasons(dataclasses.replace(run(FakeMachine(1)), interrupted=True))


def test_a_high_confidence_needs_more_rounds() -> None:
    timed = run(FakeMachine(1), rounds=12)
    assert reasons(timed) == ""
    assert "give no interval" in reasons(timed, cells=200)


def test_no_valid_round_gives_no_figure() -> None:
    summary = summarise(voided(run(FakeMachine(1)), 24), 0.95, 0.03)
    assert (summary.value, summary.low, summary.high, summary.a_a, summary.halves) == (
        None,
        None,
        None,
        None,
        None,
    )


@pytest.mark.parametrize(("bytes_per_ns", "void"), [(30.0, False), (41.1, False), (41.3, True)])
def test_a_share_above_the_limit_voids_the_roof(bytes_per_ns: float, void: bool) -> None:
    machine = FakeMachine(4, noise=0.0001)
    arm = machine.arm("kernel", 400_000_000 / bytes_per_ns, bytes_=400_000_000)
    roof = Roof(1, (Pattern("slow", 4_000, (200, 150)), Pattern("fast", 4_000, (110, 100))))
    assert roof.bytes_per_ns == 40.0
    figure = Figure(Side("kernel", "bandwidth"), "roof")
    timed = run_pairs([arm], figure, machine.probes(), control_of="kernel", seed=1, roof=roof)
    summary = summarise(timed, 0.95, 0.03)
    assert summary.value == pytest.approx(bytes_per_ns / 40.0, rel=0.001)
    assert summary.share == pytest.approx(bytes_per_ns / 40.0, rel=0.001)
    assert ("roof void" in reasons(timed)) is void


@pytest.mark.parametrize(("roof", "void"), [(42, False), (39, False), (38, True)])
def test_probes_above_the_limit_void_the_roof(roof: int, void: bool) -> None:
    # The probes of the machine read 40 bytes per ns.
    timed = dataclasses.replace(run(FakeMachine(4)), roof=Roof(1, (Pattern("read", 1_000 * roof, (1_000,)),)))
    assert ("roof void: the median probe of the valid rounds" in reasons(timed)) is void


def test_probes_of_void_rounds_do_not_void_the_roof() -> None:
    timed = dataclasses.replace(run(FakeMachine(4)), roof=Roof(1, (Pattern("read", 40_000, (1_000,)),)))
    fast = [
        dataclasses.replace(one, probe_bytes_per_ns=60.0, steal_ticks=one.cpu_ticks) if one.seq < 8 else one
        for one in timed.rounds
    ]
    assert reasons(marked(timed, fast)) == ""


def test_figure_measures() -> None:
    timed = run(FakeMachine(1))
    one: Round = timed.rounds[0]
    sample = one.samples["old"].sample
    assert Side("old", "time").of(sample) == sample.ns / 8.0
    assert Side("old", "speed").of(sample) == 8.0 / sample.ns
    assert Side("old", "bandwidth").of(sample) == 300_000_000 / sample.ns


def test_a_level_is_scaled_and_has_no_reference() -> None:
    machine = FakeMachine(1)
    figure = Figure(Side("decode", "speed"), None, scale=1e9)
    timed = run_pairs([machine.arm("decode", 80e6)], figure, machine.probes(), control_of="decode", seed=1)
    assert summarise(timed, 0.95, 0.03).value == pytest.approx(100.0, rel=0.01)
