"""Claim 5: the tiles of a file, the order in which a token begins them, and streaming a cold file."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.enums import Param, Role
from engine.gguf_names import NAMES
from engine.gguf_source import GgufSource
from engine.model import Model, Tensor
from engine.session import Session
from engine.tiles import BLOCK_COLUMNS, Tile, TileLayout, TileShape, block_bytes, group_bytes, row_bytes

TRACE_RECORDS: Final = 1 << 17
"""Kept per worker and token: several times the tiles of the largest model that is traced here."""

Offsets = NDArray[np.int64]


@dataclass(frozen=True)
class PlacedTile:
    """A tile of a matrix outside the expert bank, and where it lies in the file."""

    tensor: Tensor
    tile: Tile
    offset: int
    bytes: int


def placed_tiles(model: Model) -> list[PlacedTile]:
    """Tiles of all matrices outside the bank by ascending offset.

    An embedding is left out unless it is the head as well: a token reads one row of it.
    """
    shape = TileShape(model.param(Param.TILE_ROWS), model.param(Param.TILE_COLS))
    tied = model.param(Param.TIED_HEAD) == 1
    found = []
    for tensor in model.tensors:
        if tensor.columns == 1 or tensor.expert is not None or (tensor.role is Role.EMBEDDING and not tied):
            continue
        for tile in TileLayout(tensor.type, tensor.rows, tensor.columns, shape).tiles():
            size = tile.groups * group_bytes(tensor.type, tile.blocks)
            found.append(PlacedTile(tensor, tile, tensor.offset + tile.offset, size))
    return sorted(found, key=lambda placed: placed.offset)


def offsets_of(tiles: Sequence[PlacedTile]) -> Offsets:
    """Where they lie in the file."""
    return np.array([placed.offset for placed in tiles], np.int64)


def shuffled(offsets: Offsets, seed: int) -> Offsets:
    """The same places, dealt out to the tiles at random."""
    return np.random.default_rng(seed).permutation(offsets)


def gguf_offsets(tiles: Sequence[PlacedTile], source: GgufSource) -> Offsets:
    """Where the first weight of each tile lies in the GGUF file that the model was converted from.

    Rows of q and k are rearranged inside a head by the conversion; a tile begins with a head all the same.
    """
    found = []
    for placed in tiles:
        tensor, tile = placed.tensor, placed.tile
        name = NAMES[tensor.role][tile.part].format(b=tensor.block)
        row = tile.first_row * row_bytes(tensor.type, tensor.columns)
        found.append(
            source.offset(name) + row + tile.first_column // BLOCK_COLUMNS * block_bytes(tensor.type)
        )
    return np.array(found, np.int64)


@dataclass(frozen=True)
class Begun:
    """The tiles that one worker began in one phase, in the order of their first loads, as indices."""

    phase: int
    thread: int
    tiles: tuple[int, ...]


def begun_tiles(session: Session, tiles: Sequence[PlacedTile], token: int) -> list[Begun]:
    """Traces one token: per phase and worker, ascending. A worker that shares a tile begins it for itself."""
    starts = offsets_of(tiles)
    ends = starts + np.array([placed.bytes for placed in tiles], np.int64)
    session.trace(TRACE_RECORDS)
    session.decode([token])
    found = []
    for thread in range(session.threads):
        records = session.trace_records(thread)
        loads = records[:, 0].astype(np.int64)
        at = np.searchsorted(starts, loads, side="right") - 1
        inside = (at >= 0) & (loads < ends[np.maximum(at, 0)])
        for phase in np.unique(records[:, 3]):
            in_turn = at[inside & (records[:, 3] == phase)].tolist()
            if in_turn:
                found.append(Begun(int(phase), thread, tuple(dict.fromkeys(in_turn))))
    session.trace(0)
    return sorted(found, key=lambda begun: (begun.phase, begun.thread))


def compared(begun: Sequence[Begun], offsets: Offsets) -> tuple[list[int], list[int]]:
    """Offset of each tile begun, and the offset that it must exceed.

    That is the highest that the same worker began before it in the phase, or that any worker began in an
    earlier one: between workers of one phase there is no order. The first tile of each worker in the first
    phase has nothing before it and is left out.
    """
    own, before = [], []
    highest: int | None = None
    reached: int | None = None
    phase = begun[0].phase if begun else 0
    for item in begun:
        if item.phase != phase:
            phase, highest = item.phase, reached
        previous = highest
        for index in item.tiles:
            offset = int(offsets[index])
            if previous is not None:
                own.append(offset)
                before.append(previous)
            previous = offset if previous is None else max(previous, offset)
            reached = offset if reached is None else max(reached, offset)
    return own, before


# ---- streaming ----


def tile_ranges(tiles: Sequence[PlacedTile], seed: int | None) -> list[tuple[int, int]]:
    """(offset, end) of every tile: in file order, or shuffled by `seed`."""
    ranges = [(placed.offset, placed.offset + placed.bytes) for placed in tiles]
    if seed is None:
        return ranges
    order = np.random.default_rng(seed).permutation(len(ranges))
    return [ranges[index] for index in order]


def stream(path: Path, ranges: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Reads every 64-bit word of the ranges through a fresh mapping: (ns, sum of the words modulo 2^64).

    Offsets and ends are multiples of 8. Opening and mapping are not timed.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with mmap.mmap(descriptor, 0, prot=mmap.PROT_READ) as mapped:
            words = np.frombuffer(mapped, np.uint64)
            total = np.uint64(0)
            start_ns = time.monotonic_ns()
            with np.errstate(over="ignore"):
                for offset, end in ranges:
                    total += np.add.reduce(words[offset // 8 : end // 8])
            taken_ns = time.monotonic_ns() - start_ns
            del words  # a mapping with a view of it cannot be closed
            return taken_ns, int(total)
    finally:
        os.close(descriptor)
