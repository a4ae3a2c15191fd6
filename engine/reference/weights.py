"""The weights of a .cflow file as arrays, dequantised."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from engine.enums import Role
from engine.format import CflowFile, Hyperparameters, read_file
from engine.reference.quant import Array, Matrix, load_parts, load_vector

_T = TypeVar("_T")


@dataclass(frozen=True)
class GatedFfn:
    """A GeGLU or SwiGLU network: gate and up `[hidden, d_model]`, down `[d_model, hidden]`."""

    gate: Matrix
    up: Matrix
    down: Matrix


@dataclass(frozen=True)
class Block:
    """Weights of a unique block; what the model does not have is None, or empty for the experts."""

    attn_norm: Array
    query: Matrix
    key: Matrix
    value: Matrix
    qkv_bias: Array | None
    query_norm: Array | None
    key_norm: Array | None
    output: Matrix
    ffn_norm: Array | None
    dense: GatedFfn | None
    moe_norm: Array | None
    router: Matrix | None
    experts: tuple[GatedFfn, ...]
    register: Array | None


@dataclass(frozen=True)
class Weights:
    """All weights. `head` is the embedding when the file ties them."""

    hparams: Hyperparameters
    embedding: Matrix
    blocks: tuple[Block, ...]
    output_norm: Array
    head: Matrix


def load_weights(path: Path, dtype: type[np.floating] = np.float64) -> Weights:
    """Reads and dequantises all weights of `path`. Raises FormatError or ChecksumError."""
    file = read_file(path)
    (embedding,) = _needed(_parts(file, Role.EMBEDDING, dtype))
    head = _parts(file, Role.HEAD, dtype)
    return Weights(
        hparams=file.hparams,
        embedding=embedding,
        blocks=tuple(_load_block(file, index, dtype) for index in range(file.hparams.blocks)),
        output_norm=_needed(_vector(file, Role.OUTPUT_NORM, dtype)),
        head=head[0] if head else embedding,
    )


def _load_block(file: CflowFile, index: int, dtype: type[np.floating]) -> Block:
    query, key, value = _needed(_parts(file, Role.ATTN_QKV, dtype, index))
    (output,) = _needed(_parts(file, Role.ATTN_OUTPUT, dtype, index))
    router = _parts(file, Role.ROUTER, dtype, index)
    experts = (
        _ffn(file, (Role.EXPERT_GATE_UP, Role.EXPERT_DOWN), dtype, index, expert)
        for expert in range(file.hparams.experts)
    )
    return Block(
        attn_norm=_needed(_vector(file, Role.ATTN_NORM, dtype, index)),
        query=query,
        key=key,
        value=value,
        qkv_bias=_vector(file, Role.ATTN_QKV_BIAS, dtype, index),
        query_norm=_vector(file, Role.ATTN_Q_NORM, dtype, index),
        key_norm=_vector(file, Role.ATTN_K_NORM, dtype, index),
        output=output,
        ffn_norm=_vector(file, Role.FFN_NORM, dtype, index),
        dense=_ffn(file, (Role.FFN_GATE_UP, Role.FFN_DOWN), dtype, index),
        moe_norm=_vector(file, Role.MOE_NORM, dtype, index),
        router=router[0] if router else None,
        experts=tuple(expert for expert in experts if expert is not None),
        register=_vector(file, Role.REGISTER, dtype, index),
    )


def _needed(found: _T | None) -> _T:
    """A tensor that every model has: `read_file` refuses a file without it."""
    assert found is not None
    return found


def _ffn(
    file: CflowFile,
    roles: tuple[Role, Role],
    dtype: type[np.floating],
    block: int,
    expert: int | None = None,
) -> GatedFfn | None:
    gate_up = _parts(file, roles[0], dtype, block, expert)
    down = _parts(file, roles[1], dtype, block, expert)
    return GatedFfn(*gate_up, *down) if gate_up and down else None


def _parts(
    file: CflowFile, role: Role, dtype: type[np.floating], block: int | None = None, expert: int | None = None
) -> list[Matrix] | None:
    entry = file.entry(role, block, expert)
    return None if entry is None else load_parts(file, entry, dtype)


def _vector(file: CflowFile, role: Role, dtype: type[np.floating], block: int | None = None) -> Array | None:
    entry = file.entry(role, block)
    return None if entry is None else load_vector(file, entry, dtype)
