"""The material of claim 5: tiles and their places, the order of first loads, cold streaming."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from claims.file_order import (
    Begun,
    begun_tiles,
    compared,
    gguf_offsets,
    offsets_of,
    placed_tiles,
    shuffled,
    stream,
    tile_ranges,
)
from claims.models import smollm2, synthetic
from engine.enums import Role, Route
from engine.errors import FileError
from engine.geometry import Geometry
from engine.gguf_source import GgufSource
from engine.model import Model
from engine.session import Session
from engine.smollm2 import gguf_path

ARCHITECTURES = ("standard", "arch1", "arch3", "dense", "moe")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def in_order(path: Path, threads: int, token: int = 5, read_streams: int = 1) -> tuple[int, int]:
    """Tiles in file order, and tiles compared, of one token."""
    with (
        Model(path) as model,
        Session(model, threads=threads, context=8, read_streams=read_streams) as session,
    ):
        tiles = placed_tiles(model)
        own, before = compared(begun_tiles(session, tiles, token), offsets_of(tiles))
    return sum(a > b for a, b in zip(own, before, strict=True)), len(own)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_token_without_delays_begins_its_tiles_in_file_order(folder: Path, name: str, threads: int) -> None:
    # Several stripes and slices a matrix, and parts of unequal rows.
    geometry = replace(Geometry.named(f"tiny_{name}"), d_model=320, heads=5, kv_heads=5, head_dim=64)
    rising, count = in_order(synthetic(folder, name, geometry), threads)
    assert rising == count > 20


def test_a_delayed_schedule_leaves_the_order(folder: Path) -> None:
    geometry = replace(Geometry.named("tiny_standard"), dd=1, de=2, route=Route.CURRENT)
    rising, count = in_order(synthetic(folder, "delayed", geometry), 1)
    assert 0 < rising < count


def test_read_streams_leave_the_order_inside_a_matrix(folder: Path) -> None:
    geometry = replace(Geometry.named("tiny_standard"), d_model=320, heads=5, kv_heads=5, head_dim=64)
    rising, count = in_order(synthetic(folder, "standard", geometry), 1, read_streams=3)
    assert 0 < rising < count


def test_every_tile_outside_the_bank_is_begun(folder: Path) -> None:
    path = synthetic(folder, "standard", Geometry.named("tiny_standard"))
    with Model(path) as model, Session(model, threads=2, context=8) as session:
        tiles = placed_tiles(model)
        begun = begun_tiles(session, tiles, 5)
    assert {index for item in begun for index in item.tiles} == set(range(len(tiles)))
    assert not any(placed.tensor.role is Role.EMBEDDING for placed in tiles)
    assert [item.phase for item in begun] == sorted(item.phase for item in begun)


def test_a_tied_table_is_the_last_part_of_the_file(folder: Path) -> None:
    with Model(synthetic(folder, "dense", Geometry.named("tiny_dense"))) as model:
        last = placed_tiles(model)[-1]
        assert last.tensor.role is Role.EMBEDDING
        assert max(tensor.offset for tensor in model.tensors) == last.tensor.offset


def test_compared_looks_back_over_workers_and_phases() -> None:
    offsets = np.array([0, 10, 20, 30, 40], np.int64)
    begun = [Begun(0, 0, (0, 1)), Begun(0, 1, (2,)), Begun(1, 0, (3,)), Begun(1, 1, (1, 4))]
    own, before = compared(begun, offsets)
    # 1 after 0; 3 and 1 after the highest of phase 0, 2; 4 after that as well, 1 being lower.
    assert (own, before) == ([10, 30, 10, 40], [0, 20, 20, 20])
    assert compared([], offsets) == ([], [])


def test_shuffling_keeps_the_places(folder: Path) -> None:
    with Model(synthetic(folder, "standard", Geometry.named("tiny_standard"))) as model:
        tiles = placed_tiles(model)
    offsets = offsets_of(tiles)
    mixed = shuffled(offsets, 1)
    assert (np.diff(offsets) > 0).all()
    assert sorted(mixed.tolist()) == offsets.tolist()
    assert mixed.tolist() != offsets.tolist()
    assert sorted(tile_ranges(tiles, 3)) == tile_ranges(tiles, None)
    assert tile_ranges(tiles, 3) != tile_ranges(tiles, None)


def test_places_in_a_gguf_file_are_inside_its_tensors(folder: Path) -> None:
    try:
        path = smollm2(folder)
    except FileError as error:
        pytest.skip(str(error))
    source = GgufSource(gguf_path())
    with Model(path) as model:
        tiles = placed_tiles(model)
    offsets = gguf_offsets(tiles, source)
    names = source.tensor_names
    starts = [source.offset(name) for name in names]
    assert starts == sorted(starts)
    for placed, offset in list(zip(tiles, offsets.tolist(), strict=True))[:: len(tiles) // 50]:
        holder = names[np.searchsorted(starts, offset, side="right") - 1]
        block = placed.tensor.block
        assert holder.startswith("token_embd" if block is None else f"blk.{block}.")
    assert len(set(offsets.tolist())) == len(tiles)


def test_streaming_reads_the_same_words_in_any_order(folder: Path) -> None:
    path = synthetic(folder, "standard", Geometry.named("tiny_standard"))
    with Model(path) as model:
        tiles = placed_tiles(model)
    data = np.fromfile(path, np.uint64)
    with np.errstate(over="ignore"):
        expected = int(sum((data[a // 8 : b // 8].sum() for a, b in tile_ranges(tiles, None)), np.uint64(0)))
    for seed in (None, 1):
        taken_ns, total = stream(path, tile_ranges(tiles, seed))
        assert taken_ns > 0
        assert total == expected
