"""Small random models for the tests of everybody."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.enums import Architecture, Role, Route, Type
from engine.format import CflowWriter, TensorSpec, model_specs
from engine.geometry import Geometry
from engine.tiles import pack, quantise


@st.composite
def geometries(draw: st.DrawFn, context: int) -> Geometry:
    """Any small shape of any architecture."""
    kv_heads = draw(st.integers(1, 3))
    shared = draw(st.integers(1, 3))
    head_dim = 32 if (kv_heads * shared) % 2 else draw(st.sampled_from([16, 32]))
    experts = draw(st.integers(0, 5))
    blocks = draw(st.integers(1, 3))
    architecture = draw(st.sampled_from(list(Architecture)))
    delayed = architecture is Architecture.DELAYED
    return Geometry(
        layers=blocks * draw(st.integers(1, 2)),
        blocks=blocks,
        d_model=32 * draw(st.integers(1, 4)),
        heads=kv_heads * shared,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn_hidden=32 * draw(st.integers(0 if experts else 1, 6)),
        experts=experts,
        experts_per_token=draw(st.integers(1, experts)) if experts else 0,
        expert_hidden=32 * draw(st.integers(1, 3)) if experts else 0,
        vocab=draw(st.sampled_from([1, 17, 50, 257])),
        context=context,
        dd=draw(st.integers(0, 4)) if delayed else 0,
        de=draw(st.integers(0, 4)) if delayed else 0,
        route=draw(st.sampled_from(list(Route))) if delayed else Route.CURRENT,
        architecture=architecture,
        norm_topk=draw(st.booleans()),
        tied=draw(st.booleans()),
    )


def write_random_model(
    path: Path,
    geometry: Geometry,
    seed: int,
    types: Type | Mapping[Role, Type] = Type.Q4_0,
    tile_rows: int = 128,
    tile_cols: int = 256,
    qkv_bias: bool = False,
    qk_norm: bool = False,
    tokenizer_json: str | None = None,
) -> Path:
    """Writes a model whose activations keep their scale: weights of deviation 1 / sqrt(columns), embedding 1,
    gains near 1, register weights and biases of deviation 0.5. Same arguments, same bytes. Returns `path`.

    types: of all matrices, or by role (q4_0 for roles that are not named).
    """
    rng = np.random.default_rng(seed)
    by_role = types if isinstance(types, Mapping) else dict.fromkeys(Role, types)
    hparams = geometry.hyperparameters(tile_rows, tile_cols)
    specs = model_specs(hparams, lambda role: by_role.get(role, Type.Q4_0), qkv_bias, qk_norm)
    with CflowWriter(path, hparams, specs, tokenizer_json, name=f"random {seed}") as writer:
        for spec in writer.specs:
            if spec.is_vector:
                writer.write(spec, _vector(spec, rng))
            else:
                parts = [quantise(_matrix(spec, rows, rng), spec.kind) for rows in spec.part_rows]
                writer.write(spec, pack(spec.layout(hparams.tile_shape), parts))
    return path


def _vector(spec: TensorSpec, rng: np.random.Generator) -> NDArray[np.float32]:
    noise = rng.standard_normal(spec.part_rows[0], np.float32)
    if spec.role in (Role.REGISTER, Role.ATTN_QKV_BIAS):
        return np.float32(0.5) * noise
    return np.float32(1) + np.float32(0.1) * noise


def _matrix(spec: TensorSpec, rows: int, rng: np.random.Generator) -> NDArray[np.float32]:
    sigma = 1.0 if spec.role is Role.EMBEDDING else 1 / math.sqrt(spec.columns)
    return np.float32(sigma) * rng.standard_normal((rows, spec.columns), np.float32)
