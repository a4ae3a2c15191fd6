"""Folders of trained models with made-up weights, as training leaves them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tokenizers
from safetensors.numpy import save_file
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from engine.convert_checkpoint import tensor_shapes
from engine.geometry import Geometry

#: The six architectures, small; the vocabulary holds every byte.
TINY = {
    name: replace(Geometry.named(f"tiny_{name}"), vocab=300)
    for name in ("arch1", "arch2_4_combined", "arch2_4_sync", "arch3", "arch4", "arch5")
}


def byte_tokenizer(vocab: int) -> str:
    """tokenizer.json of a byte-level BPE with `vocab` tokens, <|endoftext|> the last one."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())[: vocab - 1]
    ids = {token: index for index, token in enumerate(alphabet)}
    merges = []
    letters = "etaoinshrdlu"
    for left in letters:
        for right in letters:
            if len(ids) < vocab - 1:
                ids[left + right] = len(ids)
                merges.append((left, right))
    inner = tokenizers.Tokenizer(models.BPE(vocab=ids, merges=merges))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_tokens([AddedToken("<|endoftext|>", special=True, normalized=False)])
    return inner.to_str()


def config_of(geometry: Geometry, name: str, eos: int | None) -> dict[str, Any]:
    """The content of config.json."""
    values = {item.name: getattr(geometry, item.name) for item in fields(Geometry)}
    words = {key: v.name.lower() if isinstance(v, IntEnum) else v for key, v in values.items()}
    return {
        "format": "cflow-architectures",
        "version": 1,
        "name": name,
        **words,
        "bos": None,
        "eos": eos,
    }


def random_tensors(geometry: Geometry, seed: int) -> dict[str, npt.NDArray[np.float32]]:
    """Weights that keep the scale of activations: matrices 1 / sqrt(columns), embedding 1, gains near 1."""
    rng = np.random.default_rng(seed)
    tensors = {}
    for name, shape in tensor_shapes(geometry.hyperparameters()).items():
        noise = rng.standard_normal(shape, np.float32)
        if name.endswith("norm.weight"):
            tensors[name] = np.float32(1) + np.float32(0.1) * noise
        elif name.endswith(".register"):
            tensors[name] = np.float32(0.5) * noise
        else:
            sigma = 1.0 if name == "embedding.weight" else shape[-1] ** -0.5
            tensors[name] = np.float32(sigma) * noise
    return tensors


@dataclass
class CheckpointFolder:
    """A folder that a test may spoil before it is written."""

    geometry: Geometry
    name: str = "tiny"
    seed: int = 1
    config: dict[str, Any] = field(init=False)
    tensors: dict[str, npt.NDArray[np.generic]] = field(init=False)
    tokenizer_json: str = field(init=False)

    def __post_init__(self) -> None:
        self.config = config_of(self.geometry, self.name, self.geometry.vocab - 1)
        self.tensors = dict(random_tensors(self.geometry, self.seed))
        self.tokenizer_json = byte_tokenizer(self.geometry.vocab)

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config))
        (folder / "tokenizer.json").write_text(self.tokenizer_json)
        save_file(self.tensors, folder / "model.safetensors")
        return folder
