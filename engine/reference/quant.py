"""Numbers as the engine stores them: dequantised weights, activations quantised to 8 bits, f16 rounding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.enums import Type
from engine.format import CflowFile, TensorEntry
from engine.tiles import BLOCK_COLUMNS, dequantise_tiles

Array = NDArray[np.floating]

#: Weight types whose kernels take quantised activations in q8 mode; f16 and f32 matrices take f32
#: activations.
Q8_WEIGHT_TYPES = frozenset({Type.Q4_0, Type.Q4_1, Type.Q8_0})


@dataclass(frozen=True)
class Matrix:
    """One part of a stored matrix. `values [rows, columns]` are its weights, dequantised exactly."""

    kind: Type
    values: Array


def load_parts(file: CflowFile, entry: TensorEntry, dtype: type[np.floating]) -> list[Matrix]:
    """The parts (q, k, v or gate, up) of a stored matrix. Raises ChecksumError naming the tensor."""
    layout = entry.spec.layout(file.hparams.tile_shape)
    parts = dequantise_tiles(layout, file.data(entry))
    return [Matrix(entry.spec.kind, values.astype(dtype)) for values in parts]


def load_vector(file: CflowFile, entry: TensorEntry, dtype: type[np.floating]) -> Array:
    """A norm gain or bias, `[rows]`. Raises ChecksumError naming the tensor."""
    return file.data(entry).view(np.float32)[: entry.spec.part_rows[0]].astype(dtype)


def quantise_q8(x: Array) -> tuple[NDArray[np.int8], NDArray[np.float32], NDArray[np.int32]]:
    """Codes `[columns]`, scales and sums of codes `[columns / 32]` of x, as `cflow_quantize_q8` makes them.

    For each block of 32: scale = max|x| / 127; code = round-half-even(x * (127 / max|x|)), in float32
    throughout; a block of zeros has scale 0. x must be finite.
    """
    blocks = x.astype(np.float32).reshape(-1, BLOCK_COLUMNS)
    largest = np.abs(blocks).max(axis=1)
    factor = np.divide(np.float32(127), largest, out=np.zeros_like(largest), where=largest > 0)
    codes = np.rint(blocks * factor[:, None]).astype(np.int8)
    sums: NDArray[np.int32] = codes.sum(axis=1, dtype=np.int32)
    return codes.reshape(-1), largest / np.float32(127), sums


def through_q8(x: Array) -> Array:
    """x as a kernel with 8-bit activations sees it: scale * code, in the dtype of x."""
    codes, scales, _ = quantise_q8(x)
    return codes.astype(x.dtype) * np.repeat(scales.astype(x.dtype), BLOCK_COLUMNS)
