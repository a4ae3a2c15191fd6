"""Sessions on the library whose kernels record: accesses and simulated misses by kind of piece."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from engine.enums import PieceKind
from engine.geometry import Geometry
from engine.model import Model
from engine.native import recording_library
from engine.session import OptionValue, Session
from harness.cachesim import E5_2650, AccessCounts, Cache, CacheGeometry

TOKENS: Final = (11, 454, 202, 340)
"""Ids below the vocabulary of every model here; which they are does not change what is loaded."""

EQUAL_PARTS: Final = Geometry(
    layers=2,
    d_model=256,
    heads=4,
    kv_heads=4,
    head_dim=64,
    ffn_hidden=512,
    vocab=512,
    context=64,
    blocks=2,
    experts=4,
    experts_per_token=2,
    expert_hidden=256,
)
"""q, k and v of one size, dense FFN and experts."""

GROUPED_QUERIES: Final = Geometry(
    layers=2,
    d_model=576,
    heads=9,
    kv_heads=3,
    head_dim=64,
    ffn_hidden=1536,
    vocab=512,
    context=64,
    blocks=2,
)
"""The shape of SmolLM2: k and v have a third of the rows of q, and end inside a stripe of 128 rows."""

WIDE_DOWN: Final = Geometry(
    layers=1,
    d_model=256,
    heads=4,
    kv_heads=4,
    head_dim=64,
    ffn_hidden=32768,
    vocab=512,
    context=64,
    blocks=1,
)
"""A down matrix with the columns of the paper's, and few rows."""


def recorded_pieces(
    path: Path,
    tokens: Sequence[int] = TOKENS,
    geometry: CacheGeometry = E5_2650,
    options: Mapping[str, OptionValue] | None = None,
) -> dict[PieceKind, AccessCounts]:
    """Counts of every kind of piece while one worker decodes `tokens` one by one, from an empty cache.

    One read stream unless `options` say more: several share activation loads, as fused parts do.
    """
    chosen: dict[str, OptionValue] = {"read_streams": 1, "prompt_batch": 1, **(options or {})}
    with (
        recording_library(),
        Model(path) as model,
        Session(model, threads=1, context=len(tokens), **chosen) as session,
        Cache(geometry) as cache,
    ):
        with cache.recording():
            session.decode(tokens)
        return {piece: cache.counts(piece) for piece in PieceKind}


def shared_loads(part_rows: Sequence[int]) -> tuple[int, int]:
    """What the shapes give for parts that share each activation load: row groups that load, fused and not.

    A group of 16 rows loads the activations of a tile once. Fused, the parts that have a group at the same
    place load together, so the longest part counts; unfused each part loads for itself.
    """
    groups = [-(-rows // 16) for rows in part_rows]
    return max(groups), sum(groups)
