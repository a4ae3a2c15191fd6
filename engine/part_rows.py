"""The rows of one part of a stored matrix, some stripes of tiles at a time: for what writes other formats."""

from __future__ import annotations

from collections.abc import Iterator

from engine.format import CflowFile, TensorEntry
from engine.kernels import unpack_tiles
from engine.tiles import Bytes

BAND_BYTES = 4 << 20
"""Stored bytes of the stripes that are unpacked together, about."""


def part_rows(file: CflowFile, entry: TensorEntry, part: int, unit: int = 1) -> Iterator[Bytes]:
    """GGUF rows, uint8 [rows, row bytes], of part `part` of a matrix, in bands of whole stripes, top first.

    `unit`: a band is a multiple of so many stripes, but for the last one. Memory is bounded by some 20 MiB.
    Raises ChecksumError naming a damaged tensor.
    """
    spec, shape = entry.spec, file.hparams.tile_shape
    layout, data = spec.layout(shape), file.data(entry)
    step = unit * max(1, BAND_BYTES // max(layout.stripe_offset(unit), 1))
    for first in range(0, -(-spec.part_rows[part] // shape.rows), step):
        end = min(first + step, layout.stripes)
        rows = [min(rows, end * shape.rows) - first * shape.rows for rows in spec.part_rows]
        present = [index for index, count in enumerate(rows) if count > 0]
        yield unpack_tiles(
            spec.kind,
            [rows[index] for index in present],
            spec.columns,
            data[layout.stripe_offset(first) : layout.stripe_offset(end)],
            shape.rows,
            shape.cols,
        )[present.index(part)]
