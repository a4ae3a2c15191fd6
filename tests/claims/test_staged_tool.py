"""Decoding with experts on disk, held against its bounds by `python -m tools.staged`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from claims.models import synthetic
from claims.overlap_shapes import SMALL, SMALL_WIDTH
from engine.errors import ArgumentError
from tests.claims.fake_bench import opener
from tools import staged


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic(tmp_path_factory.mktemp("staged"), SMALL.name, SMALL.geometry(SMALL_WIDTH))


def test_a_line_for_every_bound(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged, "open_bench", opener(50, []))
    found = list(staged.lines(path, threads=1, tokens=2, rounds=1, options={"read_rate": 500_000_000}))
    begin = ["C, ms: ", "IO, ms: ", "sync over C + IO: ", "staged over the pipeline of 16 steps: "]
    begin += ["speed of staged over sync: ", "half in RAM, "]
    for line, text in zip(found, begin, strict=True):
        assert line.startswith(f"1 threads, {text}")
    assert all("output" not in line and "device_bytes" not in line for line in found)


def test_reads_through_a_cache_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged, "open_bench", opener(50, []))
    with pytest.raises(ArgumentError, match="O_DIRECT is refused"):
        list(staged.lines(path, 1, 1, 1, {"read_path": "buffered"}))


def test_a_model_without_a_delay_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged, "open_bench", opener(50, []))
    path = synthetic(tmp_path, "undelayed", replace(SMALL.geometry(SMALL_WIDTH), de=0))
    with pytest.raises(ArgumentError, match="expert_delay is 0"):
        list(staged.lines(path, 1, 1, 1, {}))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["missing.cflow"], "missing.cflow"),
        (["m.cflow", "--tokens", "0"], "--tokens is 0, must be at least 1"),
        (["m.cflow", "-o", "fast"], "must be NAME=VALUE"),
        (["m.cflow", "--threads", "x"], "--threads is 'x'"),
    ],
)
def test_usage(
    arguments: list[str], text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(staged, "open_bench", opener(50, []))
    monkeypatch.setattr(sys, "argv", ["staged", *arguments])
    with pytest.raises(SystemExit) as ended:
        staged.main()
    assert ended.value.code == 2
    assert text in capsys.readouterr().err
