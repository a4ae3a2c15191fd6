"""Several machines: rows that may stand side by side, where they disagree, and what goes with it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.compare import Comparison, compare, view
from reports.compare.machines import Difference, _apart, _divides
from reports.compare.rows import Entry
from tests.reports.made_runs import Made, machine

NOW = datetime(2026, 6, 1, tzinfo=UTC)
SERVER = machine(cpu__model="Server", cpu__physical=16, memory__transparent_huge_pages="always")
LAPTOP = machine(cpu__model="Laptop", cpu__physical=8, cpu__caches=[])
Find = Callable[..., Comparison]


@pytest.fixture
def comparison(tmp_path: Path) -> Find:
    """Compares made-up runs."""

    def find(*made: Made) -> Comparison:
        return compare([one.write(tmp_path / f"run-{i}") for i, one in enumerate(made)], now=NOW)

    return find


def by_label(found: Comparison) -> dict[str, Difference]:
    """Differences by check and cell."""
    return {item.row.label: item for item in found.differences}


def test_machines_that_agree(comparison: Find) -> None:
    found = comparison(Made(), Made(seed=2, machine=SERVER))
    assert found.differences == ()
    assert set(found.differing) == {"processor", "physical cores", "huge pages"}
    assert view.sentence(found) == "2 runs: no claim has different verdicts."
    assert not view.differences_table(found).rows


def test_opposite_verdicts_and_what_goes_with_them(comparison: Find) -> None:
    found = comparison(Made(), Made(seed=2, machine=SERVER, hint=1.06), Made(seed=3, machine=LAPTOP))
    item = by_label(found)["6.hint"]
    assert (item.what, item.groups, item.left_out) == ("opposite verdicts", (("A", "C"), ("B",)), ())
    # B has most cores, A and C the fewer: a division of numbers. The processor is another one everywhere.
    assert [(known.fact, dict(known.values)) for known in item.goes_with] == [
        ("physical cores", {"A": 2, "B": 16, "C": 8}),
        ("huge pages", {"A": "madvise", "B": "always", "C": "madvise"}),
    ]
    # A and B have the same caches, so that those of C cannot matter.
    assert item.unknown == ()
    assert view.sentence(found) == "3 runs: claim 6 has different verdicts; the other 10 have not."


def test_a_property_that_is_not_recorded_everywhere_is_named(comparison: Find) -> None:
    found = comparison(Made(), Made(seed=2, machine=LAPTOP, hint=1.06))
    assert by_label(found)["6.hint"].unknown == ("L1 data cache", "L1 data ways", "L2 cache", "L2 ways")
    assert view.differences_table(found).rows[0].cells[-1] == (
        "Processor: A Example 2-core CPU, B Laptop; physical cores: A 2, B 8 "
        "(not recorded everywhere: L1 data cache, L1 data ways, L2 cache, L2 ways)"
    )


def test_what_goes_with_every_difference_of_two_runs_is_said_once(comparison: Find) -> None:
    found = comparison(Made(), Made(seed=2, machine=SERVER, hint=1.06, commit="f" * 40))
    text = view.differences_table(found).rows[0].cells[-1]
    assert text == "All 4 properties that differ, listed with the machines"


def test_decided_and_measurable_on_some(comparison: Find) -> None:
    found = by_label(comparison(Made(hardware=7.0, noise=0.03), Made(seed=2, machine=SERVER, hint=1.06)))
    assert found["6.hint"].what == "decided on some"
    assert found["2.l1.hardware"].what == "measurable on some"
    assert "2.l1.simulated" not in found and "3.agreement, q4_0, AVX-512" not in found


def test_figures_apart_where_verdicts_agree(comparison: Find) -> None:
    found = comparison(
        Made(speedup=9.0),
        Made(seed=2, machine=SERVER, speedup=12.0, misses=(9_830_400, 1_200_000)),
        Made(seed=3, machine=LAPTOP, speedup=9.0),
    )
    speed, misses = by_label(found)["3.speedup"], by_label(found)["2.l1.simulated"]
    assert (speed.what, speed.groups) == ("figures apart", (("A", "C"), ("B",)))
    assert (misses.what, misses.groups) == ("figures apart", (("A", "C"), ("B",)))
    assert "huge pages" in {known.fact for known in speed.goes_with}


def test_figures_whose_controls_did_not_hold_are_not_held_apart(comparison: Find) -> None:
    found = comparison(Made(), Made(seed=2, machine=SERVER))
    row = next(row for row in found.rows if row.label == "8.readahead")
    assert all(not entry.sound and entry.low is not None for entry in row.entries.values())
    assert "8.readahead" not in by_label(found)


def test_runs_that_were_cut_down_say_nothing(comparison: Find) -> None:
    found = comparison(
        Made(options={"threads": 2, "only": ["3"]}, without=("6.hint",)),
        Made(seed=2, machine=SERVER, hint=1.06),
        Made(seed=3, machine=LAPTOP),
    )
    item = by_label(found)["6.hint"]
    assert (item.groups, item.left_out) == ((("B",), ("C",)), ("A",))
    row = next(row for row in found.rows if row.label == "6.hint")
    assert view.entry_text(row, row.entries["A"]) == "not run"


def test_tiers_and_kinds_have_rows_of_their_own(comparison: Find) -> None:
    found = comparison(Made(tier="native"), Made(seed=2, machine=SERVER, tier="500 MB/s emulated", time=1.01))
    rows = [row for row in found.rows if row.label == "7.time, 1 thread"]
    assert [(row.tier, list(row.entries)) for row in rows] == [
        ("native", ["A"]),
        ("500 MB/s emulated", ["B"]),
    ]
    assert "7.time, 1 thread" not in by_label(found)
    assert {item.check_id for item in found.refused} == {
        label for label in ("3.speedup", "6.hint", "7.time, 1 thread", "7.time, all threads", "8.readahead")
    }
    assert "another kind of evidence or tier" in found.refused[0].reason
    for row in found.rows:
        assert len({entry.evidence["kind"] for entry in row.entries.values() if entry.evidence}) <= 1


def test_nothing_is_averaged(comparison: Find) -> None:
    found = comparison(Made(speedup=8.0), Made(seed=2, machine=SERVER, speedup=12.0))
    shown = [cell for table in view.check_tables(found) for row in table.rows for cell in row.cells]
    assert any("8.0" in cell for cell in shown) and any("12.0" in cell for cell in shown)
    assert not any("10.0" in cell for cell in shown)


def test_other_commits_go_with_differences_too(comparison: Find) -> None:
    found = comparison(Made(), Made(seed=2, hint=1.06, commit="f" * 40, created="2026-01-02T00:00:00Z"))
    (known,) = by_label(found)["6.hint"].goes_with
    assert (known.fact, known.values) == ("commit", {"A": "0123456789ab", "B": "ffffffffffff"})
    assert view.differences_table(found).rows[0].cells[-1] == "Commit: A 0123456789ab, B ffffffffffff"


def test_json_has_every_row_and_run(comparison: Find) -> None:
    found = comparison(Made(), Made(seed=2, machine=SERVER, hint=1.06)).to_json()
    assert found["base"] is None and found["profile"] == "quick"
    assert [run["name"] for run in found["runs"]] == ["A", "B"]
    claim = next(item for item in found["claims"] if item["id"] == "6")
    assert claim["verdicts"] == {"A": "SUPPORTED", "B": "REFUTED"} and claim["decided_alike"] is True
    row = next(row for row in found["rows"] if row["check"] == "6.hint")
    assert row["kind"] == "timed" and row["runs"]["B"]["low"] > 1.03
    (difference,) = (item for item in found["differences"] if item["check"] == "6.hint")
    assert difference["groups"] == [["A"], ["B"]]
    assert {item["fact"] for item in difference["goes_with"]} == {"processor", "physical cores", "huge pages"}


def entry(low: float, high: float) -> Entry:
    """A sound figure with an interval."""
    return Entry("SUPPORTED", "", (low + high) / 2, low, high, True, False, "", None)


INTERVALS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 6)).map(lambda pair: (pair[0], pair[0] + pair[1])),
    min_size=1,
    max_size=6,
)


@given(INTERVALS)
def test_groups_are_the_overlapping_intervals(intervals: list[tuple[int, int]]) -> None:
    said = {chr(65 + index): entry(*ends) for index, ends in enumerate(intervals)}
    groups = _apart(said)
    assert sorted(name for group in groups for name in group) == sorted(said)

    def overlap(one: str, other: str) -> bool:
        mine, others = said[one], said[other]
        assert mine.low is not None and mine.high is not None
        assert others.low is not None and others.high is not None
        return mine.low <= others.high and others.low <= mine.high

    for one, other in itertools.combinations(groups, 2):
        assert not any(overlap(mine, others) for mine in one for others in other)
    for group in groups:
        reached = {group[0]}
        while more := {name for name in group if any(overlap(name, held) for held in reached)} - reached:
            reached |= more
        assert reached == set(group)


@pytest.mark.parametrize(
    ("groups", "divides"),
    [
        ([["always"], ["madvise", "madvise"]], True),
        ([["always"], ["madvise", "never"]], False),
        ([["always"], ["madvise", "always"]], False),
        ([[2], [8, 16]], True),
        ([[8], [2, 16]], False),
        ([[16], [2, 8]], True),
        ([[2, 4], [8, 16], [5]], True),
        ([[2, 6], [8, 16], [5]], False),
        ([[True], [False, False]], True),
        ([[1.5], ["a", 2]], False),
    ],
)
def test_what_divides_runs_as_a_difference_does(groups: list[list[Any]], divides: bool) -> None:
    assert _divides("some property", groups) is divides


def test_memory_that_kernels_keep_does_not_divide() -> None:
    assert not _divides("memory", [[24_000_000_000], [24_100_000_000]])
    assert _divides("memory", [[24_000_000_000], [64_000_000_000]])


def test_measured_bandwidth_and_storage_are_facts(comparison: Find) -> None:
    plain, reading = Made(), Made(seed=2, machine=SERVER, tier="native", arms=("staged", "read only"))
    one, other = (run.facts for run in comparison(plain, reading).runs)
    assert one["read bandwidth, measured"] == pytest.approx(4e9 / 95e6)
    assert one["storage read rate, measured"] is None
    # 300 MB in 80 ms.
    assert other["storage read rate, measured"] == pytest.approx(3.75, rel=0.01)


def test_an_emulated_tier_says_nothing_of_the_storage(comparison: Find) -> None:
    emulated = Made(tier="500 MB/s emulated", arms=("staged", "read only"))
    found = comparison(emulated, Made(seed=2, machine=SERVER))
    assert found.runs[0].facts["storage read rate, measured"] is None
