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
    """path: where it was read. step: how many steps are done."""

    path: Path
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
        tensors = safetensors.torch.load(body)
        return Checkpoint(path, int(header["step"]), dict(header["arguments"]), tensors)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, LookupError, TypeError, ArithmeticError, RecursionError, SafetensorError) as error:
        raise CheckpointError(f"{path} is no checkpoint, or a damaged one: {error!r}") from error


def restore(saved: Checkpoint, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Puts a checkpoint's state into a model and its optimiser, and into PyTorch's generator.

    Raises CheckpointError naming the tensor that is missing or of another shape or type.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(_tensor(saved, f"model.{name}", parameter))
            moments = {
                theirs: _tensor(saved, f"{ours}.{name}", parameter).clone()
                for ours, theirs in _MOMENTS.items()
            }
            optimizer.state[parameter] = {"step": torch.tensor(float(saved.step)), **moments}
    try:
        torch.set_rng_state(_tensor(saved, "random_state", torch.get_rng_state()))
    except RuntimeError as error:
        raise CheckpointError(f"{saved.path}: random_state is not valid: {error}") from error


def _tensor(saved: Checkpoint, name: str, like: Tensor) -> Tensor:
    """A tensor of a checkpoint that can stand in the place of `like`."""
    found = saved.tensors.get(name)
    if found is None:
        raise CheckpointError(f"{saved.path}: tensor {name} is missing")
    if found.shape != like.shape or found.dtype != like.dtype:
        raise CheckpointError(
            f"{saved.path}: tensor {name} is {found.dtype} {list(found.shape)}, the model has {like.dtype} "
            f"{list(like.shape)}"
        )
    return found
