"""config.json: there and back, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from architectures.config import CONFIG_NAME, Config, read_config
from architectures.errors import CheckpointError
from architectures.table import ARCHITECTURES, PRESETS, geometry


def _written(folder: Path, **changes: Any) -> Path:
    config = json.loads(Config("arch4", geometry("arch4", PRESETS["tiny"]), eos=0).to_json())
    config.update(changes)
    (folder / CONFIG_NAME).write_text(json.dumps({k: v for k, v in config.items() if v != "drop"}))
    return folder


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("eos", [None, 7])
def test_what_is_written_is_read(tmp_path: Path, name: str, eos: int | None) -> None:
    config = Config(name, geometry(name, PRESETS["small"]), eos=eos)
    (tmp_path / CONFIG_NAME).write_text(config.to_json())
    assert read_config(tmp_path) == config


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"format": "other"}, "format"),
        ({"version": 2}, "version"),
        ({"layers": "drop"}, "layers"),
        ({"layers": 6.5}, "layers"),
        ({"layers": True}, "layers"),
        ({"heads": 5}, "heads"),
        ({"norm_topk": 1}, "norm_topk"),
        ({"route": "later"}, "route"),
        ({"architecture": "register"}, "dense_delay|expert_delay"),
        ({"tied": True}, "tied"),
        ({"eos": 4096}, "eos"),
        ({"name": 3}, "name"),
    ],
)
def test_wrong_fields_are_refused_by_name(tmp_path: Path, changes: dict[str, Any], field: str) -> None:
    with pytest.raises(CheckpointError, match=f"{CONFIG_NAME}.*({field})"):
        read_config(_written(tmp_path, **changes))


@pytest.mark.parametrize("text", ["", "[]", "{", "\xff"])
def test_no_json_object_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / CONFIG_NAME).write_text(text, encoding="latin-1")
    with pytest.raises(CheckpointError, match=CONFIG_NAME):
        read_config(tmp_path)


def test_an_empty_folder_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is missing"):
        read_config(tmp_path)
