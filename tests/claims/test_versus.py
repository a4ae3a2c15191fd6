"""Ways of decoding one model, in paired rounds."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from engine.errors import ArgumentError
from engine.geometry import Geometry
from engine.native import lib, library_candidates
from tests.claims.fake_bench import opener
from tests.engine.models import write_random_model
from tools import versus
from tools.versus import Way, arm_of, compare, parse_way, thread_counts


def test_ways(tmp_path: Path) -> None:
    library = tmp_path / "libcflow.so"
    library.touch()
    assert parse_way("-") == Way("-", {}, None)
    assert parse_way("read_streams=1,prefetch_hint=t0").options == {"read_streams": 1, "prefetch_hint": "t0"}
    assert parse_way(f"residency=copy@{library}") == Way(
        f"residency=copy@{library}", {"residency": "copy"}, library
    )
    with pytest.raises(ArgumentError, match="missing.so is not a file"):
        parse_way("-@missing.so")
    with pytest.raises(ArgumentError, match="option is 'fast', must be NAME=VALUE"):
        parse_way("fast")


def test_options_and_libraries_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versus, "open_bench", opener(50, []))
    model = write_random_model(tmp_path / "m.cflow", Geometry.named("tiny_dense"), seed=1)
    library = tmp_path / "other.so"
    shutil.copy(next(path for path in library_candidates() if path.is_file()), library)
    ways = [parse_way(text) for text in ("-", "read_streams=1", f"-@{library}")]
    lines = list(compare(model, ways, threads=1, tokens=4, rounds=1))
    assert len(lines) == 2
    assert lines[0].startswith("1 threads, read_streams=1, decode: ")
    assert f"-@{library}" in lines[1]


def test_a_prompt_has_a_line_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versus, "open_bench", opener(50, []))
    model = write_random_model(tmp_path / "m.cflow", Geometry.named("tiny_dense"), seed=1)
    ways = [parse_way(text) for text in ("-", "prompt_batch=1")]
    lines = list(compare(model, ways, threads=1, tokens=3, rounds=1, prompt=5))
    heads = [line.partition(":")[0] for line in lines]
    assert heads == [f"1 threads, prompt_batch=1, {what}" for what in ("decode", "prompt")]


def test_another_function_is_no_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versus, "open_bench", opener(50, []))
    model = write_random_model(tmp_path / "m.cflow", Geometry.named("tiny_standard"), seed=1)
    ways = [parse_way(text) for text in ("-", "expert_delay=1")]
    (line,) = compare(model, ways, threads=1, tokens=8, rounds=1)
    assert "output" in line


def test_every_way_runs_on_its_own_library(tmp_path: Path) -> None:
    model = write_random_model(tmp_path / "m.cflow", Geometry.named("tiny_dense"), seed=1)
    library = tmp_path / "other.so"
    shutil.copy(next(path for path in library_candidates() if path.is_file()), library)
    ordinary = lib()
    with arm_of(parse_way(f"-@{library}"), model, 1, 4) as other, arm_of(parse_way("-"), model, 1, 4) as own:
        assert lib() is ordinary
        assert other.run().digest == own.run().digest == own.expected_digest


@pytest.mark.parametrize("option", ["threads=2", "context=8"])
def test_what_all_ways_share_is_no_way(option: str) -> None:
    with pytest.raises(ArgumentError, match="is set by --"):
        parse_way(option)


def test_thread_counts() -> None:
    assert thread_counts("1") == [1]
    for wrong in ("0", "a", "1,", "-1", "100000"):
        with pytest.raises(ArgumentError, match="must be numbers from 1 to"):
            thread_counts(wrong)
