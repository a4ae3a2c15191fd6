"""The tile layout of cflow.h in plain NumPy: sizes, packing, unpacking and dequantisation.

This is the independent check on the C packer: it is written from the comment "MATRIX DATA" in cflow.h and
shares nothing with the C code. A matrix enters and leaves as GGUF block rows, `uint8 [rows, row_bytes]`:

    q4_0  18 bytes per 32 weights: scale f16, 16 code bytes (low nibble: column j, high nibble: column j + 16)
    q4_1  20 bytes: scale f16, minimum f16, 16 code bytes as above
    q8_0  34 bytes: scale f16, 32 codes i8
    f16, f32: plain little-endian values
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import gguf
import numpy as np
from numpy.typing import NDArray

from engine.enums import Type
from engine.errors import ArgumentError

BLOCK_COLUMNS = 32
GROUP_ROWS = 16
SECTION_ALIGN_BYTES = 64

Bytes = NDArray[np.uint8]

_LOW = np.uint8(0x0F)
_FOUR = np.uint8(4)
_BLOCK_BYTES = {
    Type.F32: 128,
    Type.F16: 64,
    Type.Q4_0: 18,
    Type.Q4_1: 20,
    Type.Q8_0: 34,
}
_SCALE_SECTIONS = {
    Type.F32: 0,
    Type.F16: 0,
    Type.Q4_0: 1,
    Type.Q4_1: 2,
    Type.Q8_0: 1,
}
_CODE_BYTES_PER_BLOCK = {
    Type.F32: 2048,
    Type.F16: 1024,
    Type.Q4_0: 256,
    Type.Q4_1: 256,
    Type.Q8_0: 512,
}


def type_named(label: str) -> Type:
    """The type called `label` ("q4_0"). Raises ArgumentError that lists the names."""
    if label.upper() not in Type.__members__:
        raise ArgumentError(f"type {label!r} is unknown; known are {', '.join(t.name.lower() for t in Type)}")
    return Type[label.upper()]


def align_up(value: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that is not below `value`."""
    return -(-value // multiple) * multiple


def block_bytes(kind: Type) -> int:
    """Stored bytes of 32 weights of one row in GGUF form."""
    return _BLOCK_BYTES[kind]


def row_bytes(kind: Type, columns: int) -> int:
    """Bytes of one GGUF row. Raises ArgumentError unless `columns` is a positive multiple of 32."""
    if columns <= 0 or columns % BLOCK_COLUMNS:
        raise ArgumentError(f"columns is {columns}, must be a positive multiple of {BLOCK_COLUMNS}")
    return columns // BLOCK_COLUMNS * _BLOCK_BYTES[kind]


def scale_section_bytes(blocks: int) -> int:
    """Bytes of one section of f16 scales (or minima) of a group that covers `blocks` column blocks."""
    return align_up(blocks * GROUP_ROWS * 2, SECTION_ALIGN_BYTES)


def group_bytes(kind: Type, blocks: int) -> int:
    """Stored bytes of a group of 16 rows that covers `blocks` column blocks."""
    return _SCALE_SECTIONS[kind] * scale_section_bytes(blocks) + blocks * _CODE_BYTES_PER_BLOCK[kind]


@dataclass(frozen=True)
class TileShape:
    """Rows and columns of a whole tile: multiples of 16 and of 32. Raises ArgumentError naming the field."""

    rows: int = 128
    cols: int = 256

    def __post_init__(self) -> None:
        if self.rows % GROUP_ROWS or not GROUP_ROWS <= self.rows <= 4096:
            raise ArgumentError(f"tile_rows is {self.rows}, must be a multiple of 16 in 16..4096")
        if self.cols % BLOCK_COLUMNS or not BLOCK_COLUMNS <= self.cols <= 65536:
            raise ArgumentError(f"tile_cols is {self.cols}, must be a multiple of 32 in 32..65536")


@dataclass(frozen=True)
class Tile:
    """One tile (stripe i, slice j) of one part, with its place in the stored bytes."""

    part: int
    first_row: int
    rows: int
    first_column: int
    columns: int
    offset: int
    first_group: int

    @property
    def groups(self) -> int:
        """Groups of 16 rows, the padded last one included."""
        return -(-self.rows // GROUP_ROWS)

    @property
    def blocks(self) -> int:
        """Column blocks of 32."""
        return self.columns // BLOCK_COLUMNS


@dataclass(frozen=True)
class Run:
    """Consecutive groups of equal size."""

    offset: int
    first_group: int
    groups: int
    blocks: int


@dataclass(frozen=True)
class TileLayout:
    """Where each group of a matrix, or of up to three matrices fused by output stripe, is stored.

    Raises ArgumentError for zero sizes, columns that are no multiple of 32, or more than three parts.
    """

    kind: Type
    part_rows: tuple[int, ...]
    columns: int
    shape: TileShape

    def __post_init__(self) -> None:
        if not 1 <= len(self.part_rows) <= 3:
            raise ArgumentError(f"parts is {len(self.part_rows)}, must be 1..3")
        if min(self.part_rows) < 1:
            raise ArgumentError(f"rows is {self.part_rows}, each must be at least 1")
        row_bytes(self.kind, self.columns)

    @property
    def slices(self) -> list[int]:
        """Columns of each slice: whole ones and perhaps a narrower last one."""
        whole, rest = divmod(self.columns, self.shape.cols)
        return [self.shape.cols] * whole + ([rest] if rest else [])

    @property
    def stripes(self) -> int:
        """Number of stripes of the tallest part."""
        return -(-max(self.part_rows) // self.shape.rows)

    @property
    def group_count(self) -> int:
        """Groups of all parts, slices and stripes."""
        return self._groups_before(self.stripes) * len(self.slices)

    @property
    def data_bytes(self) -> int:
        """Stored bytes, padding included."""
        return self.stripe_offset(self.stripes)

    def stripe_offset(self, index: int) -> int:
        """Where stripe `index` begins; `data_bytes` for the one behind the last."""
        return self._groups_before(index) * self._group_bytes_of_all_slices()

    def stripe(self, index: int) -> Iterator[Tile]:
        """The tiles of stripe `index` in stored order: per slice, one of each part that reaches it."""
        first_row = index * self.shape.rows
        group = self._groups_before(index) * len(self.slices)
        offset = self.stripe_offset(index)
        for slice_index, columns in enumerate(self.slices):
            for part, part_rows in enumerate(self.part_rows):
                rows = min(self.shape.rows, part_rows - first_row)
                if rows <= 0:
                    continue
                tile = Tile(part, first_row, rows, slice_index * self.shape.cols, columns, offset, group)
                yield tile
                group += tile.groups
                offset += tile.groups * group_bytes(self.kind, tile.blocks)

    def tiles(self) -> Iterator[Tile]:
        """All tiles in stored order."""
        for index in range(self.stripes):
            yield from self.stripe(index)

    def runs(self) -> Iterator[Run]:
        """All groups in stored order as few runs of equal group size as there are."""
        widths = self.slices
        if len(set(widths)) == 1:
            yield Run(0, 0, self.group_count, widths[0] // BLOCK_COLUMNS)
            return
        whole_blocks, edge_blocks = self.shape.cols // BLOCK_COLUMNS, widths[-1] // BLOCK_COLUMNS
        offset, first_group = 0, 0
        for index in range(self.stripes):
            groups = self._groups_before(index + 1) - self._groups_before(index)
            for count, blocks in ((groups * (len(widths) - 1), whole_blocks), (groups, edge_blocks)):
                yield Run(offset, first_group, count, blocks)
                offset += count * group_bytes(self.kind, blocks)
                first_group += count

    def padded_tiles(self) -> Iterator[Tile]:
        """The tiles whose last group has padding rows."""
        for part, rows in enumerate(self.part_rows):
            if rows % GROUP_ROWS:
                yield from (t for t in self.stripe((rows - 1) // self.shape.rows) if t.part == part)

    def _groups_before(self, stripe: int) -> int:
        """Groups of one slice in the stripes before `stripe`."""
        return sum(-(-min(rows, stripe * self.shape.rows) // GROUP_ROWS) for rows in self.part_rows)

    def _group_bytes_of_all_slices(self) -> int:
        return sum(group_bytes(self.kind, columns // BLOCK_COLUMNS) for columns in self.slices)


def pack(layout: TileLayout, parts: Sequence[Bytes]) -> Bytes:
    """Tiles, `uint8 [layout.data_bytes]`, of GGUF rows, one `uint8 [rows, row_bytes]` a part. Lossless.

    Raises ArgumentError when the arrays do not have the shapes that the layout asks for.
    """
    _check_parts(layout, parts)
    size = block_bytes(layout.kind)
    out = np.zeros(layout.data_bytes, np.uint8)
    for tile in layout.tiles():
        first_block = tile.first_column // BLOCK_COLUMNS
        source = parts[tile.part][tile.first_row : tile.first_row + tile.rows]
        padded = np.zeros((tile.groups * GROUP_ROWS, tile.blocks * size), np.uint8)
        padded[: tile.rows] = source[:, first_block * size : (first_block + tile.blocks) * size]
        blocks = padded.reshape(tile.groups, GROUP_ROWS, tile.blocks, size)
        length = tile.groups * group_bytes(layout.kind, tile.blocks)
        out[tile.offset : tile.offset + length] = _encode_groups(layout.kind, blocks).reshape(-1)
    return out


def unpack(layout: TileLayout, data: Bytes) -> list[Bytes]:
    """The GGUF rows of each part, `uint8 [rows, row_bytes]`.

    Raises ArgumentError when `data` has a wrong length.
    """
    if data.shape != (layout.data_bytes,):
        raise ArgumentError(f"tiles have shape {data.shape}, must be ({layout.data_bytes},)")
    size = block_bytes(layout.kind)
    parts = [np.zeros((rows, row_bytes(layout.kind, layout.columns)), np.uint8) for rows in layout.part_rows]
    for tile in layout.tiles():
        length = group_bytes(layout.kind, tile.blocks)
        groups = data[tile.offset : tile.offset + tile.groups * length].reshape(tile.groups, length)
        rows = _decode_groups(layout.kind, groups, tile.blocks).reshape(tile.groups * GROUP_ROWS, -1)
        first = tile.first_column // BLOCK_COLUMNS * size
        target = parts[tile.part][tile.first_row : tile.first_row + tile.rows]
        target[:, first : first + rows.shape[1]] = rows[: tile.rows]
    return parts


def quantise(values: NDArray[np.float32], kind: Type) -> Bytes:
    """GGUF rows, `uint8 [rows, row_bytes]`, of `values [rows, columns]`, by the `gguf` package."""
    row_bytes(kind, values.shape[1])
    raw = gguf.quants.quantize(values.astype(np.float32), gguf.GGMLQuantizationType[kind.name])
    return np.ascontiguousarray(raw).view(np.uint8).reshape(values.shape[0], -1)


def dequantise(rows: Bytes, kind: Type) -> NDArray[np.float32]:
    """Values, `float32 [rows, columns]`, of GGUF rows `uint8 [rows, row_bytes]`; equations in cflow.h."""
    blocks = np.ascontiguousarray(rows).reshape(rows.shape[0], -1, block_bytes(kind))
    if kind in (Type.F32, Type.F16):
        plain = blocks.view(np.float32 if kind is Type.F32 else np.float16)
        return plain.reshape(rows.shape[0], -1).astype(np.float32)
    scale = np.ascontiguousarray(blocks[:, :, 0:2]).view(np.float16).astype(np.float32)
    if kind is Type.Q8_0:
        values = scale * blocks[:, :, 2:].view(np.int8).astype(np.float32)
    elif kind is Type.Q4_0:
        values = scale * (_nibbles(blocks[:, :, 2:]).astype(np.float32) - np.float32(8))
    else:
        minimum = np.ascontiguousarray(blocks[:, :, 2:4]).view(np.float16).astype(np.float32)
        values = scale * _nibbles(blocks[:, :, 4:]).astype(np.float32) + minimum
    return values.reshape(rows.shape[0], -1)


def dequantise_tiles(layout: TileLayout, data: Bytes) -> list[NDArray[np.float32]]:
    """Values of each part, `float32 [rows, columns]`, of stored tiles."""
    return [dequantise(rows, layout.kind) for rows in unpack(layout, data)]


def nonfinite_group(kind: Type, groups: Bytes, blocks: int) -> tuple[int, int, int] | None:
    """First (group, row in group, column block) of `groups [n, group_bytes]` that holds a non-finite number.

    Looked at are scales, minima and plain values. None when all are finite.
    """
    if kind is Type.F32:
        bad = ~np.isfinite(groups.view(np.float32))
    else:
        sections = _SCALE_SECTIONS[kind]
        checked = sections * scale_section_bytes(blocks) if sections else groups.shape[1]
        exponent = np.uint16(0x7C00)
        bad = (np.ascontiguousarray(groups[:, :checked]).view(np.uint16) & exponent) == exponent
    if not bad.any():
        return None
    group, position = (int(i) for i in np.argwhere(bad)[0])
    row = position % GROUP_ROWS
    if _SCALE_SECTIONS[kind] == 0:
        return group, row, position // GROUP_ROWS // BLOCK_COLUMNS
    return group, row, position % (scale_section_bytes(blocks) // 2) // GROUP_ROWS


def clear_rows(kind: Type, group: Bytes, blocks: int, used_rows: int) -> None:
    """Zeroes the rows from `used_rows` on, the padding, of one stored group `[group_bytes]`, in place."""
    rows = _decode_groups(kind, group[np.newaxis], blocks)
    rows[:, used_rows:] = 0
    group[:] = _encode_groups(kind, rows)[0]


def _check_parts(layout: TileLayout, parts: Sequence[Bytes]) -> None:
    width = row_bytes(layout.kind, layout.columns)
    wanted = [(rows, width) for rows in layout.part_rows]
    found = [part.shape for part in parts]
    if found != wanted:
        raise ArgumentError(f"GGUF rows have shapes {found}, must be {wanted}")


def _nibbles(codes: Bytes) -> Bytes:
    """Codes by column, `uint8 [..., 32]`, of GGUF code bytes `[..., 16]`."""
    return np.concatenate([codes & _LOW, codes >> _FOUR], axis=-1)


def _section(values: Bytes, length: int) -> Bytes:
    """`values [groups, n]` padded with zero bytes to `length`."""
    return np.pad(values, ((0, 0), (0, length - values.shape[1])))


def _encode_groups(kind: Type, blocks: Bytes) -> Bytes:
    """Stored groups `uint8 [G, group_bytes]` of GGUF blocks `uint8 [G, 16, nb, block_bytes]`."""
    groups, _, nb, _ = blocks.shape
    if kind in (Type.F32, Type.F16):
        width = 4 if kind is Type.F32 else 2
        by_row = blocks.reshape(groups, GROUP_ROWS, nb * BLOCK_COLUMNS, width)
        return by_row.transpose(0, 2, 1, 3).reshape(groups, -1)
    sections = []
    for index in range(_SCALE_SECTIONS[kind]):
        scales = blocks[..., 2 * index : 2 * index + 2].transpose(0, 2, 1, 3)
        sections.append(_section(scales.reshape(groups, -1), scale_section_bytes(nb)))
    codes = blocks[..., 2 * _SCALE_SECTIONS[kind] :]
    if kind is Type.Q8_0:
        stored = codes.reshape(groups, GROUP_ROWS, nb, 8, 4).transpose(0, 2, 3, 1, 4)
    else:
        by_column = _nibbles(codes).reshape(groups, GROUP_ROWS, nb, 4, 2, 4)
        stored = (by_column[..., 0, :] | (by_column[..., 1, :] << _FOUR)).transpose(0, 2, 3, 1, 4)
    return np.concatenate([*sections, stored.reshape(groups, -1)], axis=1)


def _decode_groups(kind: Type, stored: Bytes, nb: int) -> Bytes:
    """GGUF blocks `uint8 [G, 16, nb, block_bytes]` of stored groups `uint8 [G, group_bytes]`."""
    groups = stored.shape[0]
    if kind in (Type.F32, Type.F16):
        width = 4 if kind is Type.F32 else 2
        by_column = stored.reshape(groups, nb * BLOCK_COLUMNS, GROUP_ROWS, width)
        return by_column.transpose(0, 2, 1, 3).reshape(groups, GROUP_ROWS, nb, BLOCK_COLUMNS * width)
    columns = []
    section = scale_section_bytes(nb)
    for index in range(_SCALE_SECTIONS[kind]):
        scales = stored[:, index * section : index * section + nb * GROUP_ROWS * 2]
        columns.append(scales.reshape(groups, nb, GROUP_ROWS, 2).transpose(0, 2, 1, 3))
    codes = stored[:, _SCALE_SECTIONS[kind] * section :]
    if kind is Type.Q8_0:
        by_row = codes.reshape(groups, nb, 8, GROUP_ROWS, 4).transpose(0, 3, 1, 2, 4)
        columns.append(by_row.reshape(groups, GROUP_ROWS, nb, BLOCK_COLUMNS))
    else:
        merged = codes.reshape(groups, nb, 4, GROUP_ROWS, 4).transpose(0, 3, 1, 2, 4)
        halves = np.stack([merged & _LOW, merged >> _FOUR], axis=-2)
        by_column = halves.reshape(groups, GROUP_ROWS, nb, BLOCK_COLUMNS)
        columns.append(by_column[..., :16] | (by_column[..., 16:] << _FOUR))
    return np.concatenate(columns, axis=-1)
