"""Earlier runs beside a run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import harness
import reports
from harness.errors import ResultsError
from harness.results import FILE_NAME
from reports import history
from tests.reports.made_runs import CLAIMS, Made, machine


def beside(folder: Path, name: str, made: Made, age: int) -> Path:
    """A run in a folder, its file `age` seconds old."""
    written = made.write(folder / name)
    os.utime(written / FILE_NAME, (1_800_000_000 - age, 1_800_000_000 - age))
    return written


@pytest.fixture
def runs(tmp_path: Path) -> Callable[..., history.Earlier]:
    """What is found beside a run of 2026-02-01 after runs were put there."""

    def found(**others: Made) -> history.Earlier:
        for age, (name, made) in enumerate(others.items(), 1):
            beside(tmp_path, name, made, age)
        return history.earlier(harness.load(Made(created="2026-02-01T00:00:00Z").write(tmp_path / "now")))

    return found


def day(number: int, **changes: Any) -> Made:
    """A run of January."""
    return replace(Made(seed=number, created=f"2026-01-{number:02}T00:00:00Z"), **changes)


def names(found: history.Earlier) -> list[str]:
    """Folders of the runs that were found."""
    return [run.directory.name for run in found.runs]


def test_runs_of_the_machine_and_profile_come_newest_first(runs: Callable[..., history.Earlier]) -> None:
    found = runs(first=day(1), third=day(3), second=day(2))
    assert names(found) == ["third", "second", "first"] and found.notes == ()


def test_other_machines_profiles_and_later_runs_are_left_out(runs: Callable[..., history.Earlier]) -> None:
    found = runs(
        other=day(1, machine=machine(cpu__model="Another CPU")),
        profile=day(2, profile="full"),
        later=Made(seed=3, created="2026-03-01T00:00:00Z"),
        same=day(4),
    )
    assert names(found) == ["same"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"schema_version": 1}',
        '{"schema_version": 9}',
        '{"schema_version": 1, "checks": 3}',
    ],
)
def test_a_damaged_neighbour_is_named_and_stops_nothing(
    tmp_path: Path, runs: Callable[..., history.Earlier], text: str
) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / FILE_NAME).write_text(text, encoding="utf-8")
    found = runs(good=day(1))
    assert names(found) == ["good"]
    (note,) = found.notes
    assert note.startswith("broken: left out: ")


@pytest.mark.parametrize(
    ("group", "value"),
    [("cpu", "x"), ("kernel", [1]), ("cpu", {"caches": 5}), ("cpu", {"caches": [5, None, {"level": {}}]})],
)
def test_a_neighbour_may_say_anything_of_its_machine(
    runs: Callable[..., history.Earlier], group: str, value: Any
) -> None:
    assert names(runs(odd=day(1, machine=machine() | {group: value}), even=day(2))) == ["even", "odd"]


def test_any_field_that_is_missing_is_a_named_fault(tmp_path: Path) -> None:
    written = day(1).write(tmp_path / "run")
    whole = json.loads((written / FILE_NAME).read_text(encoding="utf-8"))
    for field in whole:
        (written / FILE_NAME).write_text(json.dumps({k: v for k, v in whole.items() if k != field}))
        with pytest.raises(ResultsError):
            history.read(written)
    whole["checks"][0]["cells"] = []
    (written / FILE_NAME).write_text(json.dumps(whole), encoding="utf-8")
    with pytest.raises(ResultsError):
        history.read(written)


def test_the_number_of_files_and_rows_is_bounded(
    tmp_path: Path, runs: Callable[..., history.Earlier], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MAX_RUNS", 2)
    monkeypatch.setattr(history, "MAX_READ", 3)
    found = runs(**{f"run{number}": day(10 - number) for number in range(1, 6)})
    assert names(found) == ["run1", "run2"]
    unread, unshown = found.notes
    assert unread.endswith("not looked at: 2.") and unshown.endswith("not shown: 1.")


def test_a_file_too_large_is_not_read(
    runs: Callable[..., history.Earlier], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MAX_BYTES", 1000)
    found = runs(large=day(1))
    assert names(found) == [] and "more than the 1000" in found.notes[0]


def test_a_figure_declared_otherwise_is_not_held_against_this_one(tmp_path: Path) -> None:
    block = CLAIMS.partition('id = "3.speedup"')[2].partition("[[check]]")[0]
    metric = next(line for line in block.splitlines() if line.startswith("metric"))
    changed = CLAIMS.replace(block, block.replace(metric, 'metric = "something else"'))
    beside(tmp_path, "a", day(1, speedup=8.0), 1)
    beside(tmp_path, "b", day(2, claims=changed), 2)
    beside(tmp_path, "c", day(3, without=("3.speedup",)), 3)
    now = harness.load(Made(created="2026-02-01T00:00:00Z").write(tmp_path / "now"))
    table = history.table(now, history.earlier(now).runs, "3", "3.speedup")
    assert table is not None
    assert [row.cells[0] for row in table.rows] == ["this run", "c", "b", "a"]
    figures = [row.cells[-1] for row in table.rows]
    assert figures[0].startswith("8.98\u00d7 (") and figures[1:3] == ["not measured", "declared otherwise"]
    assert figures[3].startswith(("7.9", "8.0"))
    assert table.rows[0].cells[3] == "SUPPORTED"


def test_no_table_without_earlier_runs(tmp_path: Path) -> None:
    now = harness.load(Made().write(tmp_path / "now"))
    assert history.table(now, (), "3", "3.speedup") is None


def test_the_page_tells_of_earlier_runs_and_escapes_their_names(tmp_path: Path) -> None:
    evil = "<b>&'"
    beside(tmp_path, evil, day(1), 1)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / FILE_NAME).write_text("{", encoding="utf-8")
    page = reports.render(Made(created="2026-02-01T00:00:00Z").write(tmp_path / "now")).read_text("utf-8")
    assert "<b>&" not in page and "&lt;b&gt;&amp;&#39;" in page
    assert "Earlier runs of this machine and profile" in page and "broken: left out: " in page
    assert "beside it, but for the tables of earlier runs" in page
