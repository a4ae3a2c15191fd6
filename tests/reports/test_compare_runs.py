"""Runs to be compared: what is refused, what is marked, and which checks may stand side by side."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from harness.errors import ComparisonError, ResultsError
from harness.results import FILE_NAME
from reports.compare import Comparison, compare, view
from reports.compare.facts import FACTS, hardware_differences, read_facts, value_text
from reports.compare.runs import MAX_RUNS
from tests.reports.made_runs import CLAIMS, Made, machine

NOW = datetime(2026, 6, 1, tzinfo=UTC)
OTHER = machine(cpu__model="Other CPU")
LATER = "2026-01-02T00:00:00Z"


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Changes results.json of a folder."""
    path = folder / FILE_NAME
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")
    return folder


def copy(folder: Path, target: Path) -> Path:
    """A copy of a run."""
    target.mkdir(parents=True)
    shutil.copy(folder / FILE_NAME, target / FILE_NAME)
    return target


@pytest.fixture
def runs(tmp_path: Path) -> Callable[..., list[Path]]:
    """Writes made-up runs into folders that are named after the order."""

    def write(*made: Made) -> list[Path]:
        return [one.write(tmp_path / f"run-{index}") for index, one in enumerate(made)]

    return write


def marks_of(found: Comparison) -> list[str]:
    """The marks as `runs: text`."""
    return [f"{''.join(mark.runs)}: {mark.text}" for mark in found.marks]


def test_runs_of_two_machines_are_not_marked(runs: Callable[..., list[Path]]) -> None:
    found = compare(runs(Made(), Made(seed=2, machine=OTHER)), now=NOW)
    assert [run.name for run in found.runs] == ["A", "B"]
    assert [run.id for run in found.runs] == ["run-0", "run-1"]
    assert marks_of(found) == []
    assert found.refused == ()


@pytest.mark.parametrize("count", [0, 1, MAX_RUNS + 1])
def test_too_few_or_too_many(count: int) -> None:
    with pytest.raises(ComparisonError, match=rf"found {count} run\(s\), allowed: 2 to 26"):
        compare([Path(str(index)) for index in range(count)])


@pytest.mark.parametrize("count", [1, 3])
def test_base_takes_two(count: int) -> None:
    with pytest.raises(ComparisonError, match=rf"--base: found {count} run\(s\), allowed: 2"):
        compare([Path(str(index)) for index in range(count)], based=True)


def test_the_same_folder_twice(runs: Callable[..., list[Path]]) -> None:
    (folder,) = runs(Made())
    with pytest.raises(ComparisonError, match="are the same folder"):
        compare([folder, folder / ".." / folder.name])


def test_a_copy_of_a_run(runs: Callable[..., list[Path]], tmp_path: Path) -> None:
    (folder,) = runs(Made())
    twin = copy(folder, tmp_path / "twin")
    with pytest.raises(ComparisonError, match="hold the same run") as caught:
        compare([folder, twin])
    assert str(folder) in str(caught.value) and str(twin) in str(caught.value)


def test_a_run_of_one_name_and_second_is_the_same_run_though_it_was_edited(
    runs: Callable[..., list[Path]], tmp_path: Path
) -> None:
    (folder,) = runs(Made())
    twin = edit(copy(folder, tmp_path / "else" / folder.name), lambda data: data["run"].update(command="x"))
    with pytest.raises(ComparisonError, match="hold the same run"):
        compare([folder, twin])


def test_rounds_that_two_runs_share_are_marked(runs: Callable[..., list[Path]], tmp_path: Path) -> None:
    (folder,) = runs(Made())
    twin = edit(copy(folder, tmp_path / "twin"), lambda data: data["run"].update(created_utc=LATER))
    found = marks_of(compare([folder, twin], now=NOW))
    assert any(text.startswith("AB: the same rounds, to the nanosecond: 3.speedup") for text in found)


def test_profiles_are_not_mixed(runs: Callable[..., list[Path]]) -> None:
    with pytest.raises(ComparisonError, match="profile quick.*profile|of profile quick, .* of full"):
        compare(runs(Made(), Made(seed=2, profile="full")))


def test_other_schema_versions_are_refused_by_name(runs: Callable[..., list[Path]]) -> None:
    first, second = runs(Made(), Made(seed=2))
    edit(second, lambda data: data.update(schema_version=2))
    with pytest.raises(ResultsError, match=r"run-1.*schema_version: found 2, allowed: 1"):
        compare([first, second])


@pytest.mark.parametrize(
    ("damage", "field"),
    [
        (lambda data: data["run"].pop("profile"), r"\$\.run.*profile"),
        (
            lambda data: data["checks"][3]["cells"][0].update(value="fast"),
            r"\$\.checks\[3\]\.cells\[0\]\.value",
        ),
        (lambda data: data["run"].update(created_utc="yesterday"), r"\$\.run\.created_utc.*'yesterday'"),
        (lambda data: data["run"].update(finished_utc="2026-13-01T00:00:00Z"), r"\$\.run\.finished_utc"),
        (
            lambda data: data["checks"][0].update(finished_utc=""),
            r"\$\.checks\[2\.l1\.simulated\]\.finished_utc",
        ),
        (lambda data: data["claims"].pop(2), r"\$\.claims: claim '3' is missing"),
        (lambda data: data["registry"].update(text="claim = 3"), r"\$\.registry\.text"),
    ],
)
def test_damage_names_file_and_field(
    runs: Callable[..., list[Path]], damage: Callable[[dict[str, Any]], object], field: str
) -> None:
    first, second = runs(Made(), Made(seed=2))
    edit(second, damage)
    with pytest.raises(ResultsError, match=field):
        compare([first, second])


def test_a_folder_without_results(runs: Callable[..., list[Path]], tmp_path: Path) -> None:
    (folder,) = runs(Made())
    with pytest.raises(ResultsError, match=r"nowhere: no results\.json in this folder"):
        compare([folder, tmp_path / "nowhere"])


def test_origin_is_marked(runs: Callable[..., list[Path]]) -> None:
    found = marks_of(
        compare(
            runs(
                Made(),
                Made(
                    seed=2, machine=OTHER, commit="f" * 40, dirty=True, options={"threads": 2, "only": ["3"]}
                ),
                Made(
                    seed=3, machine=OTHER, created=LATER, commit=None, build={"engine": "gcc; mutant unfused"}
                ),
            ),
            now=NOW,
        )
    )
    assert found == [
        "B: built from uncommitted changes",
        "B: cut down to some checks with --only",
        "C: not from a checkout: its source is not known",
        "C: a build that is wrong on purpose: mutant unfused",
        "ABC: other commits: A 0123456789ab, B ffffffffffff, C none",
    ]


def test_clocks_that_cannot_be_right_are_marked(runs: Callable[..., list[Path]]) -> None:
    first, second = runs(Made(), Made(seed=2, created="2026-07-01T00:00:00Z"))
    edit(first, lambda data: data["run"].update(finished_utc="2025-12-31T00:00:00Z"))
    assert marks_of(compare([first, second], now=NOW)) == [
        "A: ends at 2025-12-31T00:00:00Z, before its start at 2026-01-01T00:00:00Z: a clock was set",
        "B: starts in the future, at 2026-07-01T00:00:00Z: a clock is wrong",
    ]


def test_runs_of_one_machine_at_one_time_are_marked(runs: Callable[..., list[Path]]) -> None:
    folders = runs(
        Made(), Made(seed=2, created="2026-01-01T00:10:00Z"), Made(seed=3, machine=OTHER, created=LATER)
    )
    for folder in folders:
        edit(folder, lambda data: data["run"].update(finished_utc="2026-01-03T00:00:00Z"))
    assert marks_of(compare(folders, now=NOW)) == [
        "AB: ran at the same time on what looks like the same machine"
    ]


def test_an_unfinished_run_and_one_that_the_checker_disagrees_with(runs: Callable[..., list[Path]]) -> None:
    first, second = runs(Made(), Made(seed=2, machine=OTHER))
    edit(first, lambda data: data["run"].update(finished_utc=None))

    def flip(data: dict[str, Any]) -> None:
        next(item for item in data["checks"] if item["id"] == "3.speedup")["verdict"] = "REFUTED"

    edit(second, flip)
    found = marks_of(compare([first, second], now=NOW))
    assert found[0] == "A: not finished"
    assert found[1].startswith("B: the separate checker disagrees about 3.speedup")


def test_checks_that_are_declared_otherwise_are_not_compared(runs: Callable[..., list[Path]]) -> None:
    other = CLAIMS.replace("target = [2.0, inf]", "target = [3.0, inf]", 1)
    other = other.replace('id = "6.hint"', 'id = "6.hinted"', 1).replace("quick = 60", "quick = 61")
    found = compare(runs(Made(), Made(seed=2, machine=OTHER, claims=other)), now=NOW)
    assert [(item.check_id, item.reason) for item in found.refused] == [
        ("3.speedup", "declared otherwise: target (A [2, inf], B [3, inf])"),
        ("6.hint", "not declared in B"),
        ("6.hinted", "not declared in A"),
    ]
    notes = {row.label: row.note for row in view.claim_rows(found)}
    assert notes["3"] == "Not decided by the same checks" and notes["7"] == ""
    assert notes["6"] == "Differs, not decided by the same checks"
    compared = {row.check.id for row in found.rows}
    assert "7.time" in compared and not compared & {"3.speedup", "6.hint", "6.hinted"}
    assert "other texts of claims.toml" in marks_of(found)[0]


def test_targets_of_cells_and_statements_count_as_declarations(runs: Callable[..., list[Path]]) -> None:
    other = CLAIMS.replace("target = [8.995, 9.005]", "target = [8.9, 9.1]", 1)
    other = other.replace('metric = "speed, hint over no hint"', 'metric = "another"', 1)
    assert other.count("another") == 1
    found = compare(runs(Made(), Made(seed=2, machine=OTHER, claims=other)), now=NOW)
    assert {item.check_id: item.reason for item in found.refused} == {
        "6.hint": "declared otherwise: metric",
        "7.law": "declared otherwise: cells",
    }


def test_another_machine_is_told_by_its_hardware(runs: Callable[..., list[Path]]) -> None:
    found = compare(runs(Made(), Made(seed=2, machine=machine(memory__total_bytes=24_100_000_000))), now=NOW)
    one, other = (run.facts for run in found.runs)
    assert hardware_differences(one, other) == ()
    assert hardware_differences(one, {**other, "L1 data ways": 12}) == ("L1 data ways",)
    assert hardware_differences(one, {**other, "L1 data ways": None, "governor": "powersave"}) == ()


def test_base_refuses_another_machine_naming_what_differs(runs: Callable[..., list[Path]]) -> None:
    folders = runs(Made(), Made(seed=2, machine=machine(cpu__physical=16, cpu__model="Other")))
    with pytest.raises(
        ComparisonError, match=r"processor: Example.* against Other; physical cores: 2 against 16"
    ):
        compare(folders, based=True)


def test_base_marks_conditions_that_differ(runs: Callable[..., list[Path]]) -> None:
    changed = machine(memory__transparent_huge_pages="always", kernel__release="6.2.0")
    found = compare(runs(Made(created=LATER), Made(seed=2, machine=changed)), based=True, now=NOW)
    assert marks_of(found) == [
        "AB: the base is the later run",
        "AB: huge pages: madvise in the base, always in the new run",
        "AB: kernel: Linux 6.1.0 in the base, Linux 6.2.0 in the new run",
    ]


def test_a_machine_that_tells_nothing_has_no_facts(runs: Callable[..., list[Path]]) -> None:
    first, second = runs(Made(), Made(seed=2))
    odd = {"cpu": {"physical": "many", "isa": [], "caches": [3, {"level": 1, "type": "data"}]}, "memory": 3}
    edit(second, lambda data: data["machine"].update(before=odd))
    found = compare([first, second], now=NOW)
    facts = read_facts(found.runs[1].results)
    told = {name for name, value in facts.items() if value is not None}
    assert told == {
        "read bandwidth, measured",
        "threads",
        "instruction set used",
        "build of the engine",
        "commit",
    }
    assert all(value_text(fact.name, facts[fact.name]) for fact in FACTS)
    assert hardware_differences(found.runs[0].facts, facts) == ()
