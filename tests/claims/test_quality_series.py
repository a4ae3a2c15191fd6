"""Reading quality.json: what is committed, and what contradicts itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from architectures.quality import SEEDS
from claims.quality_series import STORED, read_series
from engine.errors import FileError, FormatError
from tests.claims.made_series import diverge, run_of, series_file

COMBINED, SYNC = "arch2_4_combined", "arch2_4_sync"


def test_the_stored_series_is_of_the_claim() -> None:
    series = read_series(STORED)
    assert (series.preset, series.steps, series.precision) == ("tiny", 2000, "f32")
    assert 1 <= len(series.runs) <= sum(SEEDS.values())
    for other in SEEDS:
        series.pairs(COMBINED, other)
    firsts = {run.architecture for run in series.runs if run.seed == 0}
    assert set(series.samples) == firsts
    for name, sample in series.samples.items():
        assert sample.words >= 20 and sample.known >= 0.8 * sample.words, f"{name} writes no words: {sample}"
    assert max(len(row["loss"]) for row in json.loads(STORED.read_text())["runs"]) <= 50


def test_a_whole_series_pairs_every_seed(tmp_path: Path) -> None:
    series = read_series(series_file(tmp_path / "q.json"))
    assert len(series.runs) == 35
    for one in SEEDS:
        assert [run.seed for run in series.arm(one)] == list(range(SEEDS[one]))
        pairs = series.pairs(COMBINED, one)
        assert pairs.seeds == list(range(SEEDS[one]))


def test_pairs_are_by_seed_whatever_the_order_of_the_file(tmp_path: Path) -> None:
    whole = read_series(series_file(tmp_path / "q.json"))
    turned = read_series(series_file(tmp_path / "r.json", edit=lambda found: found["runs"].reverse()))
    assert turned.pairs(COMBINED, SYNC) == whole.pairs(COMBINED, SYNC)


def test_a_seed_that_one_arm_lacks_or_lost_is_in_no_pair(tmp_path: Path) -> None:
    def edit(found: dict[str, Any]) -> None:
        found["runs"].remove(run_of(found, SYNC, 2))
        diverge(run_of(found, COMBINED, 4))

    series = read_series(series_file(tmp_path / "q.json", edit=edit))
    assert series.pairs(COMBINED, SYNC).seeds == [0, 1, 3, 5, 6, 7]
    assert series.arm(COMBINED)[4].diverged == "loss is nan at step 1000"


def test_runs_that_saw_other_data_do_not_pair(tmp_path: Path) -> None:
    def edit(found: dict[str, Any]) -> None:
        run_of(found, SYNC, 3)["data_order"] = "order 4"

    series = read_series(series_file(tmp_path / "q.json", edit=edit))
    with pytest.raises(FormatError, match="seed 3: arch2_4_combined saw its data in order order 3"):
        series.pairs(COMBINED, SYNC)
    assert len(series.pairs("arch4", "arch4_current").seeds) == 5


def change(arm: str, number: int, **values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda found: run_of(found, arm, number).update(values)


def swap_arms(found: dict[str, Any]) -> None:
    for run in found["runs"]:
        run["architecture"] = {COMBINED: SYNC, SYNC: COMBINED}.get(run["architecture"], run["architecture"])


def half_diverged(found: dict[str, Any]) -> None:
    run_of(found, COMBINED, 0)["diverged"] = "loss is nan at step 3"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (swap_arms, r"run arch2_4_sync-0: its model is \{.*'de': 2.*, arch2_4_sync is \{.*'de': 0"),
        (half_diverged, "run arch2_4_combined-0: diverged .* and has test figures"),
        (change(SYNC, 1, test_log_perplexity=4.0), "run arch2_4_sync-1: test_perplexity is"),
        (change(SYNC, 1, test_perplexity=50.0), "run arch2_4_sync-1: test_perplexity is 50.0"),
        (change(SYNC, 1, test_perplexity=None), "must be real number|None"),
        (change(SYNC, 1, test_top1=1.5), "run arch2_4_sync-1: test figures .* out of range"),
        (change(SYNC, 1, test_tokens=5), "test_tokens differ between runs"),
        (change(SYNC, 1, seed=2), "run arch2_4_sync-2: listed twice"),
        (change(SYNC, 1, seed=8), "run arch2_4_sync-8: not of the series"),
        (change(SYNC, 1, seed=1.0), "run arch2_4_sync-1.0: not of the series"),
        (change(SYNC, 1, seed=True), "run arch2_4_sync-True: not of the series"),
        (change(SYNC, 1, architecture="arch9"), "run arch9-1: not of the series"),
        (change(SYNC, 1, data_order=""), "run arch2_4_sync-1: data_order is ''"),
        (change(SYNC, 1, loss=[[50, 7.0], [50, 6.0]]), "arch2_4_sync-1: loss: steps do not ascend"),
        (change(SYNC, 1, loss=[[50, 7.0]]), "arch2_4_sync-1: loss does not end at step 2000"),
        (change(SYNC, 1, validation=[[2001, 7.0]]), "validation: steps do not ascend from 1 to 2000"),
        (change(SYNC, 1, validation=[]), "validation does not end at step 2000"),
        (lambda found: found.update(steps=1000), "steps is 1000, arguments.steps is 2000"),
        (lambda found: found.update(runs=[]), "runs: empty"),
        (lambda found: found.update(version=1), "found cflow-quality 1, allowed: cflow-quality 3"),
        (lambda found: found.pop("steps"), "no 'steps'"),
        (lambda found: found["sampling"].pop("seed"), "sampling: found .* allowed: what"),
        (lambda found: found["sampling"].update(prompt=["a"]), "sampling: found .* allowed: what"),
        (lambda found: found["samples"].append(found["samples"][0]), "samples: 'arch2_4_combined' is listed"),
        (
            lambda found: found["samples"][0].update(architecture="arch9"),
            "samples: 'arch9' is listed twice, or",
        ),
        (
            lambda found: found["samples"][0].update(known=5),
            "samples: arch2_4_combined: found .* known words",
        ),
        (lambda found: found["samples"][0].update(text=None), "samples: arch2_4_combined: found"),
        (lambda found: found["runs"].remove(run_of(found, SYNC, 0)), "samples: 'arch2_4_sync' is listed"),
        (lambda found: run_of(found, SYNC, 1).pop("cpu"), "no 'cpu'"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(
    tmp_path: Path, edit: Callable[[dict[str, Any]], None], message: str
) -> None:
    with pytest.raises(FormatError, match=rf"q\.json: .*({message})"):
        read_series(series_file(tmp_path / "q.json", edit=edit))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[50, 7.5]", "[50, NaN]"),
        ('"test_top1": 0.2', '"test_top1": Infinity'),
        ('"test_tokens": 83755', '"test_tokens": 1e999'),
    ],
)
def test_numbers_that_are_not_finite_are_refused(tmp_path: Path, old: str, new: str) -> None:
    path = series_file(tmp_path / "q.json")
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(FormatError, match="found the number (NaN|Infinity|1e999), allowed: finite numbers"):
        read_series(path)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"q\.json: cannot be read"):
        read_series(tmp_path / "q.json")
    for text in ("", "[]", "{", "[" * 100_000, '{"format": "cflow-quality", "version": 3, "runs": 5}'):
        (tmp_path / "q.json").write_text(text)
        with pytest.raises(FormatError, match=r"q\.json: "):
            read_series(tmp_path / "q.json")
