"""The tile layout in NumPy against the element positions that cflow.h states."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.enums import Type
from engine.errors import ArgumentError
from engine.tiles import (
    TileLayout,
    TileShape,
    block_bytes,
    clear_rows,
    dequantise,
    dequantise_tiles,
    group_bytes,
    nonfinite_group,
    pack,
    quantise,
    row_bytes,
    type_named,
    unpack,
)

QUANTISED = (Type.Q4_0, Type.Q4_1, Type.Q8_0)

shapes = st.builds(
    TileShape,
    rows=st.integers(1, 4).map(lambda n: 16 * n),
    cols=st.integers(1, 4).map(lambda n: 32 * n),
)
layouts = st.builds(
    TileLayout,
    kind=st.sampled_from(Type),
    part_rows=st.lists(st.integers(1, 100), min_size=1, max_size=3).map(tuple),
    columns=st.integers(1, 9).map(lambda n: 32 * n),
    shape=shapes,
)


def random_rows(layout: TileLayout, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    width = row_bytes(layout.kind, layout.columns)
    return [rng.integers(0, 256, (rows, width), np.uint8) for rows in layout.part_rows]


@pytest.mark.parametrize(("kind", "size"), [(Type.Q4_0, 18432), (Type.Q4_1, 20480), (Type.Q8_0, 34816)])
def test_a_whole_tile_has_the_bytes_that_the_header_states(kind: Type, size: int) -> None:
    assert TileLayout(kind, (128,), 256, TileShape()).data_bytes == size


@settings(max_examples=60, deadline=None)
@given(layout=layouts, seed=st.integers(0, 2**32))
def test_pack_and_unpack_are_inverse(layout: TileLayout, seed: int) -> None:
    rows = random_rows(layout, seed)
    stored = pack(layout, rows)
    assert stored.shape == (layout.data_bytes,)
    for found, wanted in zip(unpack(layout, stored), rows, strict=True):
        np.testing.assert_array_equal(found, wanted)


@settings(max_examples=60, deadline=None)
@given(layout=layouts)
def test_tiles_and_runs_cover_the_data_without_gaps(layout: TileLayout) -> None:
    offset, group = 0, 0
    of_tiles = []
    for tile in layout.tiles():
        assert (tile.offset, tile.first_group) == (offset, group)
        offset += tile.groups * group_bytes(layout.kind, tile.blocks)
        group += tile.groups
        of_tiles += [tile.blocks] * tile.groups
    assert (offset, group) == (layout.data_bytes, layout.group_count)
    of_runs: list[int] = []
    offset = 0
    for run in layout.runs():
        assert (run.offset, run.first_group) == (offset, len(of_runs))
        offset += run.groups * group_bytes(layout.kind, run.blocks)
        of_runs += [run.blocks] * run.groups
    assert of_runs == of_tiles


def stored_position(layout: TileLayout, part: int, row: int, column: int) -> tuple[int, int, int, int]:
    """Start of the group, row and column in it, and its blocks, by walking the comment of cflow.h."""
    stripe, offset = row // layout.shape.rows, 0
    for i in range(stripe + 1):
        for j in range(-(-layout.columns // layout.shape.cols)):
            cols = min(layout.shape.cols, layout.columns - j * layout.shape.cols)
            for p, rows in enumerate(layout.part_rows):
                if rows <= i * layout.shape.rows:
                    continue
                height = min(layout.shape.rows, rows - i * layout.shape.rows)
                size = group_bytes(layout.kind, cols // 32)
                if (i, j, p) == (stripe, column // layout.shape.cols, part):
                    inside = row - i * layout.shape.rows
                    return offset + inside // 16 * size, inside % 16, column % layout.shape.cols, cols // 32
                offset += (height + 15) // 16 * size
    raise AssertionError("no such element")


def stored_value(layout: TileLayout, data: np.ndarray, part: int, row: int, column: int) -> float:
    """The value at (row, column), read byte by byte at the places that the comment of cflow.h gives."""
    start, r, c, nb = stored_position(layout, part, row, column)
    b, within = divmod(c, 32)

    def half(offset: int) -> np.float32:
        return np.float32(data[offset : offset + 2].view(np.float16)[0])

    if layout.kind is Type.F16:
        return float(half(start + (c * 16 + r) * 2))
    if layout.kind is Type.F32:
        return float(data[start + (c * 16 + r) * 4 :][:4].view(np.float32)[0])
    section = (nb * 32 + 63) // 64 * 64
    scale = half(start + (b * 16 + r) * 2)
    if layout.kind is Type.Q8_0:
        k, j = divmod(within, 4)
        code = data[start + section + ((b * 8 + k) * 16 + r) * 4 + j].view(np.int8)
        return float(scale * np.float32(code))
    k, rest = divmod(within, 8)
    high, j = divmod(rest, 4)
    codes = start + section * (2 if layout.kind is Type.Q4_1 else 1)
    byte = int(data[codes + ((b * 4 + k) * 16 + r) * 4 + j])
    code = byte >> 4 if high else byte & 15
    if layout.kind is Type.Q4_0:
        return float(scale * np.float32(code - 8))
    return float(scale * np.float32(code) + half(start + section + (b * 16 + r) * 2))


@settings(max_examples=60, deadline=None)
@given(layout=layouts, seed=st.integers(0, 2**32))
def test_elements_lie_where_the_header_puts_them(layout: TileLayout, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = [rng.standard_normal((rows, layout.columns), np.float32) for rows in layout.part_rows]
    rows = [quantise(part, layout.kind) for part in values]
    stored = pack(layout, rows)
    for part, wanted in enumerate(dequantise_tiles(layout, stored)):
        for _ in range(20):
            row, column = int(rng.integers(wanted.shape[0])), int(rng.integers(layout.columns))
            assert stored_value(layout, stored, part, row, column) == wanted[row, column]


@settings(max_examples=40, deadline=None)
@given(layout=layouts, seed=st.integers(0, 2**32))
def test_padding_is_zero(layout: TileLayout, seed: int) -> None:
    ones = [np.full_like(rows, 0xFF) for rows in random_rows(layout, seed)]
    set_bits = int(np.unpackbits(pack(layout, ones)).sum())
    assert set_bits == sum(8 * rows.size for rows in ones)


@pytest.mark.parametrize("kind", Type)
def test_dequantise_agrees_with_the_gguf_package(kind: Type) -> None:
    values = np.random.default_rng(3).standard_normal((7, 96), np.float32)
    rows = quantise(values, kind)
    wanted = gguf.quants.dequantize(
        rows.view({Type.F32: np.float32, Type.F16: np.float16}.get(kind, np.uint8)),
        gguf.GGMLQuantizationType[kind.name],
    )
    np.testing.assert_array_equal(dequantise(rows, kind), wanted)


@pytest.mark.parametrize("kind", QUANTISED)
def test_all_codes_and_odd_scales(kind: Type) -> None:
    """Zero, subnormal, largest and negative scales with every code survive exactly."""
    scales = np.array([0.0, 6e-8, 65504.0, -65504.0, -2.0], np.float16)
    size = block_bytes(kind)
    blocks = np.zeros((len(scales), 8 * size), np.uint8)
    for b in range(8):
        codes = np.arange(size - 2, dtype=np.uint8) + np.uint8(32 * b)
        blocks[:, b * size : b * size + 2] = scales.view(np.uint8).reshape(-1, 2)
        blocks[:, b * size + 2 : (b + 1) * size] = codes
    if kind is Type.Q4_1:
        for b in range(8):
            blocks[:, b * size + 2 : b * size + 4] = np.array([1.5], np.float16).view(np.uint8)
    layout = TileLayout(kind, (len(scales),), 256, TileShape(16, 64))
    stored = pack(layout, [blocks])
    (found,) = dequantise_tiles(layout, stored)
    for row in range(len(scales)):
        for column in range(256):
            assert found[row, column] == stored_value(layout, stored, 0, row, column)
    np.testing.assert_array_equal(unpack(layout, stored)[0], blocks)


@pytest.mark.parametrize("kind", Type)
@pytest.mark.parametrize("poison", [np.inf, -np.inf, np.nan])
def test_nonfinite_group_names_group_row_and_block(kind: Type, poison: float) -> None:
    layout = TileLayout(kind, (40,), 96, TileShape(48, 96))
    rows = [quantise(np.ones((40, 96), np.float32), kind)]
    groups = pack(layout, rows).reshape(3, -1)
    assert nonfinite_group(kind, groups, 3) is None
    place = 64 * (block_bytes(kind) // 32) if kind in (Type.F32, Type.F16) else 2 * block_bytes(kind)
    width = np.float32 if kind is Type.F32 else np.float16
    bad = np.array([poison], width).view(np.uint8)
    rows[0][37, place : place + len(bad)] = bad
    assert nonfinite_group(kind, pack(layout, rows).reshape(3, -1), 3) == (2, 5, 2)


@pytest.mark.parametrize("kind", Type)
def test_clear_rows_makes_the_padding_that_pack_makes(kind: Type) -> None:
    values = quantise(np.random.default_rng(0).standard_normal((16, 96), np.float32), kind)
    whole = pack(TileLayout(kind, (16,), 96, TileShape()), [values])
    clear_rows(kind, whole, 3, 5)
    np.testing.assert_array_equal(whole, pack(TileLayout(kind, (5,), 96, TileShape()), [values[:5]]))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: TileShape(24, 256), "tile_rows is 24"),
        (lambda: TileShape(128, 16), "tile_cols is 16"),
        (lambda: TileLayout(Type.Q4_0, (), 32, TileShape()), "parts is 0"),
        (lambda: TileLayout(Type.Q4_0, (4, 0), 32, TileShape()), "rows is"),
        (lambda: TileLayout(Type.Q4_0, (4,), 33, TileShape()), "columns is 33"),
        (lambda: pack(TileLayout(Type.Q4_0, (4,), 32, TileShape()), [np.zeros((4, 17), np.uint8)]), "17"),
        (lambda: unpack(TileLayout(Type.Q4_0, (4,), 32, TileShape()), np.zeros(3, np.uint8)), "must be"),
        (lambda: type_named("q5_0"), "known are f32, f16, q4_0"),
    ],
)
def test_errors_name_what_is_wrong(build: object, message: str) -> None:
    assert callable(build)
    with pytest.raises(ArgumentError, match=message):
        build()
