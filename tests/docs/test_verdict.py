"""The numbers of docs/verdict.md are those that harness gives."""

from __future__ import annotations

from typing import get_args

from harness import voids
from harness.rounds import ArmInfo, Figure, Placed, Round, Rule, Sample, Side, Timed
from harness.statistics import TimedSummary, binomial_tail, figures, sign_rank, summarise, within
from harness.verdict import place
from harness.voids import mark_voids
from tests.docs.tables import table_of
from tools.build_engine import ROOT

DOCUMENT = ROOT / "docs/verdict.md"
ROW_MAJOR, TILES, AGAIN = "row-major", "tiles", "tiles (A/A)"
TICKS = 60
INFINITY = float("inf")


def test_ranks_are_those_of_the_sign_test() -> None:
    for rounds, rank, interval in table_of(DOCUMENT, "Valid rounds n"):
        n, k = int(rounds), sign_rank(int(rounds), 0.95)
        assert k == int(rank)
        assert interval == f"from the {ordinal(k)} to the {ordinal(n + 1 - k)}"


def ordinal(number: int) -> str:
    ending = "th" if number in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def example() -> Timed:
    arms = tuple(
        ArmInfo(name, "", TILES if name == AGAIN else None, "same", None)
        for name in (ROW_MAJOR, TILES, AGAIN)
    )
    rounds = []
    for row in table_of(DOCUMENT, "Round"):
        number, *times, stolen, wait = (float(cell) for cell in row)
        waits = (wait, 0.02, 0.02)
        samples = {
            arm.name: Placed(0, int(ms * 1e6), int(waited * 1e6), Sample(int(ms * 1e6), 1, "same"))
            for arm, ms, waited in zip(arms, times, waits, strict=True)
        }
        order = tuple(samples)
        rounds.append(Round(int(number) - 1, order, 0, 1, int(stolen), TICKS, 40.0, samples))
    figure = Figure(Side(ROW_MAJOR, "time"), Side(TILES, "time"))
    return Timed(figure, 1, 14, False, arms, mark_voids(arms, rounds))


def placed(summary: TimedSummary, target: tuple[float, float]) -> str:
    assert summary.low is not None and summary.high is not None
    return "INCONCLUSIVE" if summary.reasons else place(summary.low, summary.high, target)


def test_the_worked_example_is_what_harness_gives() -> None:
    timed = example()
    found = summarise(timed, 0.95, 0.03)
    strict = summarise(timed, 0.95, 0.001)
    ratios = figures(timed)
    assert found.a_a is not None and found.halves is not None and not found.reasons
    assert found.low is not None and found.high is not None and found.value is not None
    expected = {
        "valid rounds, void rounds": f"{found.valid}, {found.void}",
        "k at 95 %": str(sign_rank(found.valid, 0.95)),
        "smallest and largest ratio": f"{min(ratios):.4f}, {max(ratios):.4f}",
        "median": f"{found.value:.4f}",
        "interval, 3rd to 12th": f"{found.low:.4f} to {found.high:.4f}",
        "A/A interval, allowed 0.9709 to 1.03": f"{found.a_a[0]:.4f} to {found.a_a[1]:.4f}",
        "medians of the two halves": f"{found.halves[0]:.4f}, {found.halves[1]:.4f}",
        "verdict against 1.03 or more": placed(found, (1.03, INFINITY)),
        "verdict, had the target been 1.12 or more": placed(found, (1.12, INFINITY)),
        "verdict, had the target been 1.20 or more": placed(found, (1.20, INFINITY)),
        "verdict, had the guard been 0.1 %": placed(strict, (1.03, INFINITY)),
    }
    assert dict(table_of(DOCUMENT, "Step")) == expected
    assert any("A/A" in reason for reason in strict.reasons)


def test_what_the_text_says_of_the_example_is_so() -> None:
    timed = example()
    assert [(one.seq + 1, one.void[0].rule) for one in timed.rounds if one.void] == [
        (5, "steal"),
        (12, "run_queue"),
    ]
    plain = figures(timed)
    for one in timed.rounds:
        if one.void:
            assert timed.figure.of(one.samples, None) > max(plain)
    assert f"{1 / 1.03:.4f}" == "0.9709" and within(1 / 1.03, 0.03)
    assert abs(binomial_tail(1, 1, 1 / 3) - 1 / 3) < 1e-12


def test_the_rules_of_void_rounds_are_those_of_the_code() -> None:
    rules = {rule.strip("`"): text for rule, text in table_of(DOCUMENT, "Rule")}
    assert f"more than {voids.MAX_RUN_DELAY_PERCENT} %" in rules["run_queue"]
    assert f"more than {voids.MAX_STEAL_PERCENT} %" in rules["steal"]
    assert f"less than {voids.MIN_PROBE:g} of" in rules["bandwidth_probe"]
    assert f"more than {voids.MAX_IDLE_CPU_PERCENT} %" in rules["idle_engine"]
    assert set(rules) == set(get_args(Rule))
