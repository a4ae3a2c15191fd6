"""The loads of llama.cpp's matrix-vector products on x86, as lists for the cache model.

A model of its data layout, written from its public design; not a trace, and nothing of its code runs. Its
CPU back end rounds the vector to 8 bits, in blocks of 32 values: an f16 scale and 32 codes, 34 bytes. A q4_0
block of weights is an f16 scale and 16 bytes, 18 in all. Two layouts exist for them:

- plain rows, as in the file: the dot product of one row with the whole vector, then the next row;
- panels of 8 rows, made at load time where the CPU has 256-bit vectors: for each block of columns 8 scales,
  then the codes of the 8 rows, 144 bytes; one pass over the vector serves the 8 rows.

Loads are of 32 bytes at most, as its kernels for 256-bit vectors make them. Sums stay in registers; each row
is one store of 4 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.enums import AccessKind
from engine.errors import ArgumentError
from harness.cachesim import E5_2650, AccessCounts, Cache, CacheGeometry

METHOD: Final = (
    "LRU model fed by the loads that llama.cpp's layout implies, from its public design: a model of the "
    "layout, not a trace of its code; the tiles are fed by this engine's kernel itself"
)
PANEL_ROWS: Final = 8
_COLUMNS: Final = 32
_SCALE_BYTES: Final = 2
_CODE_BYTES: Final = 16
_LOAD_BYTES: Final = 32
_VECTOR_BASE: Final = 1 << 40
_RESULT_BASE: Final = 1 << 41

Accesses = NDArray[np.uint64]


@dataclass(frozen=True)
class Layout:
    """A q4_0 matrix times an 8-bit vector by llama.cpp. `panel_rows`: 1 = plain rows, 8 = its panels.

    Raises ArgumentError naming the size that does not fit.
    """

    rows: int
    columns: int
    panel_rows: int

    def __post_init__(self) -> None:
        if self.panel_rows not in (1, PANEL_ROWS):
            raise ArgumentError(f"panel_rows: {self.panel_rows} found, allowed: 1, {PANEL_ROWS}")
        if self.rows < 1 or self.rows % self.panel_rows:
            raise ArgumentError(f"rows: {self.rows} found, must be a multiple of {self.panel_rows}")
        if self.columns < _COLUMNS or self.columns % _COLUMNS:
            raise ArgumentError(f"columns: {self.columns} found, must be a multiple of {_COLUMNS}")

    @property
    def weight_bytes(self) -> int:
        """Scales and codes of the matrix."""
        return self.rows * self.columns // _COLUMNS * (_SCALE_BYTES + _CODE_BYTES)

    @property
    def vector_bytes(self) -> int:
        """The 8-bit vector with its scales."""
        return self.columns // _COLUMNS * (_SCALE_BYTES + _COLUMNS)

    def passes(self) -> Iterator[Accesses]:
        """The accesses of each pass over the vector, in order: uint64 [n, 3], address, bytes, AccessKind."""
        blocks = self.columns // _COLUMNS
        scales, codes = self.panel_rows * _SCALE_BYTES, self.panel_rows * _CODE_BYTES
        piece = min(_LOAD_BYTES, codes)
        starts = range(scales, scales + codes, piece)
        at = np.arange(blocks, dtype=np.uint64)
        weight, vector = at * np.uint64(scales + codes), at * np.uint64(_SCALE_BYTES + _COLUMNS)
        loads = [
            _loads(weight, 0, scales, AccessKind.SCALE),
            _loads(vector, _VECTOR_BASE, _SCALE_BYTES, AccessKind.ACTIVATION),
            _loads(vector, _VECTOR_BASE + _SCALE_BYTES, _COLUMNS, AccessKind.ACTIVATION),
            *(_loads(weight, start, piece, AccessKind.WEIGHT) for start in starts),
        ]
        template = np.stack(loads, axis=1).reshape(-1, 3)
        of_matrix = np.isin(template[:, 2], (AccessKind.WEIGHT, AccessKind.SCALE))
        for first in range(0, self.rows, self.panel_rows):
            moved = template.copy()
            moved[of_matrix, 0] += np.uint64(first * blocks * (_SCALE_BYTES + _CODE_BYTES))
            stores = np.arange(first, first + self.panel_rows, dtype=np.uint64) * np.uint64(4)
            yield np.concatenate([moved, _loads(stores, _RESULT_BASE, 4, AccessKind.OUTPUT_STORE)])

    def simulated(self, geometry: CacheGeometry = E5_2650) -> AccessCounts:
        """Accesses and misses, from an empty cache."""
        with Cache(geometry) as cache:
            for accesses in self.passes():
                cache.run(accesses)
            return cache.counts()


def _loads(places: Accesses, base: int, size: int, kind: AccessKind) -> Accesses:
    """One access of `size` bytes at each place, uint64 [n, 3]."""
    out = np.empty((len(places), 3), np.uint64)
    out[:, 0], out[:, 1], out[:, 2] = places + np.uint64(base), size, kind
    return out
