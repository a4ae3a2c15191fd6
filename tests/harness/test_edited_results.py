"""Edited results: each edit of a table is caught and named, and so is any number of a round that matters.
What a checker of one file cannot catch is shown, too, so that SECURITY.md stays true.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from cli.main import app
from harness.check import check
from harness.errors import ResultsError
from tests.harness import make_sample
from tests.harness.edits import EDITS, TIMED, Data, both, cell, evidence, flip_everywhere, record
from tests.harness.make_sample import SAMPLE_DIR, build_sample

Edited = Callable[[Callable[[Data], None]], Path]


def timed_verdict(found: Data) -> str:
    rows = {row["id"]: row for claim in found["claims"] for row in claim["checks"]}
    verdict: str = rows[TIMED]["verdict"]
    return verdict


@pytest.mark.parametrize("name", EDITS)
def test_edit_is_caught(edited: Edited, name: str) -> None:
    edit = EDITS[name]
    folder = edited(lambda data: edit.apply(data) and None)
    found = check(folder)
    lines = [f"{item['check'] or ''}: {item['problem']}".removeprefix(": ") for item in found["problems"]]
    assert any(edit.says in line for line in lines), lines
    assert timed_verdict(found) == edit.turns


@pytest.mark.parametrize("name", list(EDITS)[:: len(EDITS) // 5])
def test_command_fails_and_names_it(edited: Edited, name: str) -> None:
    done = CliRunner().invoke(app, ["check", str(edited(lambda data: EDITS[name].apply(data) and None))])
    assert done.exit_code == 1
    assert EDITS[name].says in done.stderr.replace("\n", " ")


def test_timed_evidence_called_counted_is_no_results_file(edited: Edited) -> None:
    with pytest.raises(ResultsError, match=r"checks\[8\]\.cells\[0\]\.evidence"):
        check(edited(lambda data: evidence(data).update(kind="counted")))


# --- any number of a round ---

Path_ = tuple[str | int, ...]


def numbers(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Where numbers stand in plain data."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from numbers(item, (*path, key))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path


def at(data: Any, path: Path_) -> Any:
    for step in path:
        data = data[step]
    return data


BASE: Data = json.loads((SAMPLE_DIR / "results.json").read_text(encoding="utf-8"))
UNCHANGED = check(SAMPLE_DIR)
PLACES = [
    (check_id, index, path)
    for check_id in (TIMED, "3.roof", "8.readahead")
    for index, one in enumerate(evidence(BASE, check_id)["rounds"])
    for path in numbers(one)
]
# Each lets a round be what it was: void by the same rules, and at the same place of the ranks or none at all.
NO_CONSEQUENCE = {
    "start_ns": "there is time between rounds, and between a round's start and its first sample",
    "end_ns": "the same",
    "wall_ns": "a sample may have waited before it was timed, as long as nothing overlaps",
    "ns": "a round away from the ranks of median and interval does not move them",
    "steal_ticks": "on the same side of the limit",
    "cpu_ticks": "on the same side of the limit",
    "probe_bytes_per_ns": "on the same side of the limit, without a new median that moves others over it",
    "run_delay_ns": "on the same side of the limit",
    "resident": "inside the range that the arm asks for, or still outside",
    "tokens": "a counter that no rule reads",
}


@given(st.sampled_from(PLACES), st.sampled_from([0.0, 0.5, 0.9, 0.999, 1.001, 1.1, 2.0, 1e6]))
@settings(max_examples=60, deadline=None)
def test_any_number_of_a_round(tmp_path_factory: pytest.TempPathFactory, place: Any, factor: float) -> None:
    check_id, index, path = place
    data = copy.deepcopy(BASE)
    inner = at(evidence(data, check_id)["rounds"][index], path[:-1])
    before = inner[path[-1]]
    changed = type(before)(before * factor)
    inner[path[-1]] = changed if changed != before else before + 1
    folder = tmp_path_factory.mktemp("number")
    (folder / "results.json").write_text(json.dumps(data), encoding="utf-8")
    try:
        found = check(folder)
    except ResultsError:
        return  # outside what the schema allows
    if not found["problems"]:
        assert str(path[-1]) in NO_CONSEQUENCE
        assert found == UNCHANGED


# --- what a checker of one file cannot catch ---


def test_invented_rounds_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hint = make_sample._hint
    monkeypatch.setattr(make_sample, "_hint", lambda seed, gain, start_ns: hint(seed, 1.0, start_ns))
    found = check(build_sample(tmp_path / "forged").parent)
    assert found["problems"] == []
    assert timed_verdict(found) == "SUPPORTED"
    assert timed_verdict(check(SAMPLE_DIR)) == "REFUTED"


def other_targets(data: Data) -> None:
    """What `git show COMMIT:claims/claims.toml | sha256sum` finds."""
    text = data["registry"]["text"].replace("[-inf, 1.03]", "[-inf, 1.3]")
    data["registry"].update(text=text, sha256=hashlib.sha256(text.encode()).hexdigest())
    cell(data)["target"] = [None, 1.3]
    flip_everywhere(data)


def other_machine(data: Data) -> None:
    for state in data["machine"].values():
        state["cpu"]["model"] = "Another CPU"


def other_observation(data: Data) -> None:
    evidence(data, "7.path")["observations"]["delayed_bytes"] = 6 * 2**20
    for place in (record(data, "7.path"), cell(data, "7.path")):
        place.update(value=2.0, verdict="SUPPORTED")


def never_measured(data: Data) -> None:
    both(data, verdict="NOT MEASURABLE HERE", reason="no such machine", value=None, low=None, high=None)
    cell(data).update(evidence=None, summary=None)
    data["claims"][5].update(verdict="NOT MEASURABLE HERE")


def other_words(data: Data) -> None:
    record(data).update(reason="all is well", limits=[], command="true")
    data["build"]["compiler"] = "another one"
    evidence(data)["inputs"]["threads"] = 64


@pytest.mark.parametrize(
    "forge", [other_targets, other_machine, other_observation, never_measured, other_words]
)
def test_consistent_forgery_passes(edited: Edited, forge: Callable[[Data], None]) -> None:
    assert check(edited(forge))["problems"] == []
