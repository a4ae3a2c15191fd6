"""config.json of a trained model: the shape of the network and the ids of its special tokens.

The file is the engine's to describe, which reads it without PyTorch; what training adds is that it has no
model whose head is its embedding.
"""

from __future__ import annotations

from pathlib import Path

from architectures.errors import CheckpointError
from engine.checkpoint import CONFIG as CONFIG_NAME
from engine.checkpoint import CheckpointConfig as Config
from engine.checkpoint import read_config as read
from engine.errors import FileError, FormatError

__all__ = ["CONFIG_NAME", "Config", "read_config"]


def read_config(folder: Path) -> Config:
    """The config.json of `folder`. Raises CheckpointError naming the file and the field."""
    path = folder / CONFIG_NAME
    if not path.exists():
        raise CheckpointError(f"{path} is missing: {folder} is no folder of a trained model")
    try:
        config = read(path)
    except (FileError, FormatError) as error:
        raise CheckpointError(str(error)) from error
    if config.geometry.tied:
        raise CheckpointError(f"{path}: tied is true, must be false")
    return config
