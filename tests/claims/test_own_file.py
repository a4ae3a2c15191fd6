"""A user's own GGUF: what is wrong with it is said before anything is measured, with exit code 2."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from claims import own_file
from claims.own_file import UnfitError, check_own, check_own_folder
from tests.claims.running import run_claims
from tests.engine.gguf_files import LlamaGguf

GB = 10**9


def state(ram: int | None = 16 * GB, disk: int | None = 16 * GB) -> dict[str, Any]:
    return {"memory": {"available_bytes": ram, "limit_bytes": None}, "storage": {"free_bytes": disk}}


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    return LlamaGguf().write(tmp_path / "mine.gguf")


def test_a_file_that_works(gguf: Path) -> None:
    check_own(gguf, state())
    check_own(gguf, state(None, None))


def test_what_does_not_fit_is_said_with_numbers(gguf: Path) -> None:
    with pytest.raises(UnfitError, match="--gguf: .*mine.gguf has .* GB of free RAM needed, 0.0 GB found"):
        check_own(gguf, state(ram=1000))
    with pytest.raises(UnfitError, match="GB of free disk needed, 0.0 GB found"):
        check_own(gguf, state(disk=1000))


def test_a_short_context(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_file, "LEAST_CONTEXT", 65)
    with pytest.raises(UnfitError, match="context is 64, at least 65"):
        check_own(gguf, state())


def test_another_architecture(gguf: Path) -> None:
    data = gguf.read_bytes()
    gguf.write_bytes(data.replace(b"llama", b"mamba"))
    with pytest.raises(UnfitError, match="architecture 'mamba' is not supported; these work: llama"):
        check_own(gguf, state())


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.99])
def test_a_file_that_was_cut_short(gguf: Path, keep: float) -> None:
    data = gguf.read_bytes()
    gguf.write_bytes(data[: int(keep * len(data))])
    with pytest.raises(UnfitError, match=r"--gguf: .*mine.gguf"):
        check_own(gguf, state())


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(UnfitError, match="cannot be read"):
        check_own(tmp_path / "none.gguf", state())


def folder(path: Path) -> Path:
    path.mkdir()
    sizes = {"num_hidden_layers": 2, "num_key_value_heads": 1, "head_dim": 64}
    (path / "config.json").write_text(json.dumps(sizes))
    (path / "model.safetensors").write_bytes(bytes(1000))
    return path


def test_a_folder_for_vllm(tmp_path: Path) -> None:
    path = folder(tmp_path / "mine")
    check_own_folder(path, state())
    with pytest.raises(UnfitError, match=r"--hf: .*mine: about 3\.\d GB of free RAM needed, 1\.0 GB found"):
        check_own_folder(path, state(ram=GB))
    (path / "config.json").write_text("{")
    with pytest.raises(UnfitError, match="--hf: .*config.json: is no model's description"):
        check_own_folder(path, state())
    with pytest.raises(UnfitError, match="--hf: .*holds no .safetensors file"):
        check_own_folder(tmp_path, state())


@pytest.mark.no_sanitizer
def test_a_run_ends_before_it_measures(gguf: Path, tmp_path: Path) -> None:
    gguf.write_bytes(gguf.read_bytes()[:-100])
    done = run_claims("--gguf", str(gguf), "--out", str(tmp_path / "run"), "--only", "7.law")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "cflow: --gguf: " in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert not (tmp_path / "run").exists()
