"""Checkpoints of a run: weights, state of the optimiser, random state. Whole or not there, and checked.

one line of JSON: format, version, step, arguments, XXH64 of the rest
safetensors: model.NAME, first.NAME, second.NAME (AdamW's moments), random_state
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import xxhash
from safetensors import SafetensorError
from torch import Tensor, nn

from architectures.atomic import write_atomically
from architectures.errors import CheckpointError

CHECKPOINT_NAME = "checkpoint.bin"
FORMAT = "cflow-training"
VERSION = 1

_MOMENTS = {"first": "exp_avg", "second": "exp_avg_sq"}


@dataclass(frozen=True)
class Checkpoint:
    """step: how many steps are done."""

    step: int
    arguments: dict[str, Any]
    tensors: dict[str, Tensor]


def save_checkpoint(
    path: Path, step: int, arguments: dict[str, Any], model: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    """Replaces `path` by the state after `step` steps. Raises FileError; CheckpointError for a NaN in it."""
    tensors: dict[str, Tensor] = {"random_state": torch.get_rng_state()}
    for name, parameter in model.named_parameters():
        tensors[f"model.{name}"] = parameter.detach()
        for ours, theirs in _MOMENTS.items():
            tensors[f"{ours}.{name}"] = optimizer.state[parameter][theirs]
    for name, value in tensors.items():
        if value.is_floating_point() and not value.isfinite().all():
            raise CheckpointError(f"step {step}: {name} is not finite; {path} is left as it was")
    body = safetensors.torch.save(tensors)
    header = {"format": FORMAT, "version": VERSION, "step": step, "arguments": arguments}
    line = json.dumps({**header, "xxh64": xxhash.xxh64(body).hexdigest()}) + "\n"
    write_atomically(path, [line.encode(), body])


def read_checkpoint(path: Path) -> Checkpoint:
    """Raises CheckpointError when the file is cut, damaged, or none."""
    try:
        line, _, body = path.read_bytes().partition(b"\n")
        header = json.loads(line)
        if (header["format"], header["version"]) != (FORMAT, VERSION):
            raise CheckpointError(f"{path}: format is not {FORMAT} version {VERSION}")
        if header["xxh64"] != xxhash.xxh64(body).hexdigest():
            raise CheckpointError(f"{path} is damaged: its hash does not match; remove it to start again")
        return Checkpoint(int(header["step"]), dict(header["arguments"]), safetensors.torch.load(body))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, SafetensorError) as error:
        raise CheckpointError(f"{path} is no checkpoint, or a damaged one: {error!r}") from error


def restore(saved: Checkpoint, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Puts a checkpoint's state into a model and its optimiser, and into PyTorch's generator."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(saved.tensors[f"model.{name}"])
            moments = {theirs: saved.tensors[f"{ours}.{name}"].clone() for ours, theirs in _MOMENTS.items()}
            optimizer.state[parameter] = {"step": torch.tensor(float(saved.step)), **moments}
    torch.set_rng_state(saved.tensors["random_state"])
