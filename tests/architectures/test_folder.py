"""The folder of a trained model: there and back, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import architectures
from architectures.config import CONFIG_NAME
from architectures.errors import CheckpointError
from engine.errors import FileError

torch = pytest.importorskip("torch")

from architectures.folder import WEIGHTS_NAME, save_model  # noqa: E402
from architectures.model import Decoder  # noqa: E402
from tests.architectures.small import all_names, random_model, small_geometry  # noqa: E402


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, Decoder]:
    model = random_model(small_geometry("arch3"), name="arch3")
    save_model(tmp_path, model, "{}")
    return tmp_path, model


@pytest.mark.parametrize("name", all_names())
def test_what_is_saved_is_loaded(tmp_path: Path, name: str) -> None:
    model = random_model(small_geometry(name), name=name)
    save_model(tmp_path, model, '{"a": 1}')
    loaded = architectures.load(tmp_path)
    assert not loaded.training
    assert loaded.config == model.config
    state = loaded.state_dict()
    assert all(torch.equal(state[key], value) for key, value in model.state_dict().items())
    assert len(state) == len(model.state_dict())
    assert (tmp_path / "tokenizer.json").read_text() == '{"a": 1}'
    assert sorted(path.name for path in tmp_path.iterdir()) == [CONFIG_NAME, WEIGHTS_NAME, "tokenizer.json"]


def test_delays_can_be_replaced(tmp_path: Path) -> None:
    save_model(tmp_path, random_model(small_geometry("arch5"), name="arch5"), "{}")
    assert architectures.load(tmp_path, dd=1, de=2).config.geometry.de == 2
    with pytest.raises(CheckpointError, match="unexpected keyword"):
        architectures.load(tmp_path, delay=1)


def _edit(folder: Path, **changes: Any) -> None:
    path = folder / CONFIG_NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_model": 64}, r"tensor embedding.weight has shape \[61, 32\], config.json says \[61, 64\]"),
        ({"blocks": 3}, "tensor blocks.3.* is not of arch3"),
        ({"layers": 12, "blocks": 12}, "tensor blocks.6.* is missing"),
        ({"architecture": "delayed"}, "tensor blocks.0.register is not of arch3"),
        ({"experts": 0, "experts_per_token": 0, "expert_hidden": 0}, "experts"),
    ],
)
def test_a_config_that_contradicts_the_tensors_is_refused(
    saved: tuple[Path, Decoder], changes: dict[str, Any], message: str
) -> None:
    _edit(saved[0], **changes)
    with pytest.raises(CheckpointError, match=message):
        architectures.load(saved[0])


@pytest.mark.parametrize("keep", [0, 7, 100, -1])
def test_cut_weights_are_refused(saved: tuple[Path, Decoder], keep: int) -> None:
    path = saved[0] / WEIGHTS_NAME
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=WEIGHTS_NAME):
        architectures.load(saved[0])


def test_missing_weights_are_refused(saved: tuple[Path, Decoder]) -> None:
    (saved[0] / WEIGHTS_NAME).unlink()
    with pytest.raises(CheckpointError, match=f"{WEIGHTS_NAME} is missing"):
        architectures.load(saved[0])


def test_weights_that_are_not_finite_are_refused_by_name(saved: tuple[Path, Decoder]) -> None:
    folder, model = saved
    with torch.no_grad():
        model.blocks[2].dense.up.weight[3, 4] = float("inf")
    save_model(folder, model, "{}")
    with pytest.raises(CheckpointError, match=r"blocks\.2\.dense\.up\.weight must be f32 and finite"):
        architectures.load(folder)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="nowhere"):
        save_model(tmp_path / "nowhere", random_model(small_geometry("arch4")), "{}")
