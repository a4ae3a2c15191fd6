"""The cache of models: made once, verified, made anew when damaged, removed by --clean."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from claims.models import LAYOUTS_PREFIX, remove_cached, synthetic, written_line
from claims.run import DEFAULT_RUNS, model_cache
from engine.geometry import Geometry
from engine.model import Model
from tests.claims.running import run_claims

TINY = Geometry.named("tiny_standard")


def test_a_model_is_made_once(tmp_path: Path) -> None:
    path = synthetic(tmp_path, "tiny", TINY)
    made_ns = path.stat().st_mtime_ns
    assert synthetic(tmp_path, "tiny", TINY) == path
    assert path.stat().st_mtime_ns == made_ns
    assert synthetic(tmp_path, "tiny", Geometry.named("tiny_moe")) != path


@pytest.mark.parametrize("where", ["header", "weights", "end"])
def test_a_damaged_model_is_made_anew_with_a_warning(tmp_path: Path, where: str) -> None:
    path = synthetic(tmp_path, "tiny", TINY)
    whole = path.read_bytes()
    with Model(path) as model:
        matrix = next(tensor for tensor in model.tensors if tensor.columns > 1)
    damaged = bytearray(whole)
    if where == "end":
        del damaged[-4096:]
    else:
        damaged[20 if where == "header" else matrix.offset + 7] ^= 1
    path.write_bytes(damaged)
    with pytest.warns(UserWarning, match="damaged"):
        assert synthetic(tmp_path, "tiny", TINY) == path
    assert path.read_bytes() == whole


def test_cleaning_removes_models_and_nothing_else(tmp_path: Path) -> None:
    path = synthetic(tmp_path, "tiny", TINY)
    unfinished = tmp_path / f".{path.name}.123.tmp"
    unfinished.write_bytes(b"x" * 5000)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "own.cflow").write_text("mine, too")
    files, freed_bytes = remove_cached(tmp_path)
    assert files == 2
    assert freed_bytes >= 5000
    assert sorted(item.name for item in tmp_path.iterdir()) == ["notes.txt", "own.cflow"]
    assert remove_cached(tmp_path / "absent") == (0, 0)


def test_what_a_killed_check_left_is_removed_with_its_folders(tmp_path: Path) -> None:
    left = tmp_path / f"{LAYOUTS_PREFIX}vllm-bf16-x" / "model"
    left.mkdir(parents=True)
    (left / "model.safetensors").write_bytes(bytes(5000))
    (left.parent / "plain.vflow").write_bytes(bytes(5000))
    files, freed_bytes = remove_cached(tmp_path)
    assert (files, list(tmp_path.iterdir())) == (2, [])
    assert freed_bytes >= 10000


def test_progress_shows_each_percent_once_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert written_line("m.cflow") is None
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    show = written_line("m.cflow")
    assert show is not None
    for done in range(0, 2_000_000_001, 1_000_000):
        show(done, 2_000_000_000)
    printed = capsys.readouterr().err
    assert printed.count("\r") == 101
    assert "\rwriting m.cflow: 1.0 of 2.0 GB \x1b[K" in printed
    assert printed.endswith("\r\x1b[K")


@pytest.mark.no_sanitizer
def test_clean_option_says_what_it_freed_and_measures_nothing(tmp_path: Path) -> None:
    out = tmp_path / "run"
    path = synthetic(model_cache(out), "tiny", TINY)
    done = run_claims("--clean", "--out", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{tmp_path / 'models'}: 1 cached models removed" in done.stdout + done.stderr
    assert not path.exists()
    assert not out.exists()


def test_models_lie_beside_the_runs() -> None:
    assert model_cache(None) == DEFAULT_RUNS / "models"
    assert model_cache(Path("a/b")) == Path("a/models")
