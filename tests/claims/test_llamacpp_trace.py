"""The model that is traced, the program that decodes it, and which function's counts are taken."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import gguf
import pytest

from baselines.install import LLAMACPP, installed, libraries
from claims import llamacpp_trace as trace
from claims.llamacpp_rows import PANEL_ROWS
from claims.models import remove_cached
from harness.cachegrind import CachegrindError, FunctionCounts
from tests.claims.running import ROOT


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trace.down_gguf(tmp_path_factory.mktemp("models"))


def test_the_traced_matrix_is_the_only_one_of_its_type(model: Path) -> None:
    found = [t for t in gguf.GGUFReader(model).tensors if t.tensor_type == gguf.GGMLQuantizationType.Q4_0]
    assert [(t.name, t.shape.tolist()) for t in found] == [
        ("blk.0.ffn_down.weight", [trace.COLUMNS, trace.ROWS])
    ]


def test_it_is_made_once_and_removed_with_the_others(tmp_path: Path) -> None:
    path = trace.down_gguf(tmp_path)
    stamp = path.stat().st_mtime_ns
    assert trace.down_gguf(tmp_path) == path and path.stat().st_mtime_ns == stamp
    assert remove_cached(tmp_path)[0] == 2  # with the .cflow that it was made of


@pytest.mark.skipif(installed(LLAMACPP) is None, reason="llama.cpp is not installed")
@pytest.mark.parametrize("layout", ["plain", "repacked"])
def test_one_token_is_decoded_in_the_layout_that_was_asked_for(model: Path, layout: str) -> None:
    done = decoded(model, trace.BACK_END, layout)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(installed(LLAMACPP) is None, reason="llama.cpp is not installed")
def test_a_back_end_without_panels_is_refused(model: Path, tmp_path: Path) -> None:
    done = decoded(model, "x64", "repacked")
    assert done.returncode == 1
    assert "repacked was asked for, 0.0 MiB are repacked" in done.stderr
    assert decoded(tmp_path / "absent.gguf", trace.BACK_END, "plain").returncode == 1


def decoded(model: Path, back_end: str, layout: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "baselines.llamacpp_once", str(libraries(LLAMACPP)), back_end]
    return subprocess.run(
        [*program, str(model), layout], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.skipif(installed(LLAMACPP) is None, reason="llama.cpp is not installed")
def test_counts_are_those_of_the_functions_that_ran(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = trace.FUNCTIONS[PANEL_ROWS]
    counts = {
        f"void {name}<block<4, 8> >(int, float*) [clone .constprop.0]": FunctionCounts({"Dr": 9, "D1mr": 4}),
        f"void {name}<other>(int)": FunctionCounts({"Dr": 0, "D1mr": 0}),
        "quantize_row_q8_0": FunctionCounts({"Dr": 5, "D1mr": 5}),
    }
    commands: list[list[str]] = []

    def run(command: list[str], *_: object) -> dict[str, FunctionCounts]:
        commands.append(command)
        return counts

    monkeypatch.setattr(trace, "run", run)
    assert trace.traced(model, PANEL_ROWS).read_misses == 4
    assert commands[0][-2:] == [str(model), "repacked"]
    with pytest.raises(CachegrindError, match="no function ggml_vec_dot_q4_0_q8_0"):
        trace.traced(model, 1)
    assert commands[1][-1] == "plain"
