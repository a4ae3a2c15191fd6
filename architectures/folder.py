"""The folder of a trained model: config.json, model.safetensors (f32, `[out, in]`) and tokenizer.json.

The names of the tensors are those of the modules in `model.py`:

    embedding.weight, head.weight [vocab, d]    output_norm.weight [d]
    blocks.B.attn_norm.weight, blocks.B.ffn_norm.weight, blocks.B.moe_norm.weight [d]
    blocks.B.attention.query.weight [heads * dh, d]; key, value [kv_heads * dh, d]; output [d, heads * dh]
    blocks.B.dense.gate.weight [ffn_hidden, d]; up the same; down [d, ffn_hidden]
    blocks.B.moe.router.weight [E, d]; blocks.B.moe.gate [E, h, d]; up the same; down [E, d, h]
    blocks.B.register [d], arch3 only
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError

from architectures.atomic import write_atomically
from architectures.config import CONFIG_NAME, Config, read_config
from architectures.errors import CheckpointError
from architectures.model import Decoder
from engine.errors import ArgumentError

WEIGHTS_NAME = "model.safetensors"
TOKENIZER_NAME = "tokenizer.json"


def save_model(folder: Path, model: Decoder, tokenizer_json: str) -> None:
    """Writes the three files, config.json last: a folder that has it is complete."""
    tensors = {name: value.float().contiguous() for name, value in model.state_dict().items()}
    write_atomically(folder / WEIGHTS_NAME, safetensors.torch.save(tensors))
    write_atomically(folder / TOKENIZER_NAME, tokenizer_json.encode())
    write_atomically(folder / CONFIG_NAME, model.config.to_json().encode())


def load_model(folder: Path, changes: Mapping[str, Any]) -> Decoder:
    """See `architectures.load`."""
    config = read_config(folder)
    tensors = _read_tensors(folder / WEIGHTS_NAME)
    try:
        if changes:
            config = Config(config.name, replace(config.geometry, **changes), config.bos, config.eos)
        with torch.device("meta"):
            wanted = {name: value.shape for name, value in Decoder(config).state_dict().items()}
    except (ArgumentError, TypeError) as error:
        raise CheckpointError(f"{folder / CONFIG_NAME}: {error}") from error
    for name, shape in wanted.items():
        if name not in tensors:
            raise CheckpointError(f"{folder / WEIGHTS_NAME}: tensor {name} is missing")
        found = tensors[name]
        if found.shape != shape:
            raise CheckpointError(
                f"{folder / WEIGHTS_NAME}: tensor {name} has shape {list(found.shape)}, {CONFIG_NAME} says "
                f"{list(shape)}"
            )
        if found.dtype != torch.float32 or not found.isfinite().all():
            raise CheckpointError(f"{folder / WEIGHTS_NAME}: tensor {name} must be f32 and finite")
    if unknown := sorted(set(tensors) - set(wanted)):
        raise CheckpointError(f"{folder / WEIGHTS_NAME}: tensor {unknown[0]} is not of {config.name}")
    model = Decoder(config)
    model.load_state_dict(tensors)
    return model.eval()


def _read_tensors(path: Path) -> dict[str, torch.Tensor]:
    try:
        return dict(safetensors.torch.load_file(path))
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing") from None
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
