"""Matrix-vector products whose L1-d misses are simulated, or counted by cachegrind or the processor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import numpy as np

from engine.enums import Isa, Type
from engine.kernels import Kernel, gemv, kernels, tiles_bytes
from engine.native import DRIVER_NAME, aligned_bytes, built_beside_library
from engine.tiles import BLOCK_COLUMNS, block_bytes
from harness.cachegrind import FunctionCounts, of_function, run
from harness.cachesim import E5_2650, AccessCounts, CacheGeometry, simulate
from harness.evidence import Simulated
from harness.reductions import Reduction, Scalar

METHOD: Final = (
    "LRU model fed by the loads and stores of the kernel itself, compiled once more with recording ones; "
    "read misses of weights, scales, activations and results"
)
_PAGE_BYTES: Final = 4096


@dataclass(frozen=True)
class Product:
    """A q4_0 matrix times a vector. rows_per_pass 0 = tiles of that shape, else row-major."""

    rows: int
    columns: int
    rows_per_pass: int = 0
    tile_rows: int = 128
    tile_cols: int = 256
    q8: bool = False
    isa: Isa = Isa.AVX2

    @property
    def kernel(self) -> Kernel:
        """The kernel of exactly this description."""
        return kernel_of(self.isa, self.q8, self.rows_per_pass)

    @property
    def weights_bytes(self) -> int:
        """Stored bytes of the matrix."""
        if self.rows_per_pass:
            return self.rows * (self.columns // BLOCK_COLUMNS) * block_bytes(Type.Q4_0)
        return tiles_bytes(Type.Q4_0, self.rows, self.columns, self.tile_rows, self.tile_cols)

    @property
    def driver(self) -> str:
        """The program that does nothing but one product."""
        return str(built_beside_library(DRIVER_NAME))

    def work(self, *, own_pages: bool = False) -> Callable[[], object]:
        """Computes it once. Weights and vector are zero: addresses do not depend on values.

        own_pages: every page of the weights has memory of its own, as a real cache needs; else all may share
        the kernel's page of zeros.
        """
        weights = aligned_bytes(self.weights_bytes, _PAGE_BYTES)
        if own_pages:
            weights[::_PAGE_BYTES] = 1
        x = np.zeros(self.columns, np.float32)
        return lambda: gemv(self.kernel, weights, self.rows, x, self.tile_rows, self.tile_cols)

    def simulated(self, geometry: CacheGeometry = E5_2650) -> AccessCounts:
        """Accesses and misses, from an empty cache."""
        return simulate(geometry, self.work())

    def cachegrind(self, geometry: CacheGeometry = E5_2650) -> FunctionCounts:
        """What cachegrind counts in the kernel's own function."""
        shape = (self.rows, self.columns, self.tile_rows, self.tile_cols)
        counts = run([self.driver, self.kernel.name, *map(str, shape)], geometry)
        form = "q8" if self.q8 else "f32"
        rows = f"_rows_r{self.rows_per_pass}" if self.rows_per_pass else ""
        return of_function(counts, f"q4_0{form}{rows}")


@cache
def _kernels() -> Mapping[tuple[Type, Isa, bool, int], Kernel]:
    return {(one.type, one.isa, one.q8, one.rows_per_pass): one for one in kernels()}


def kernel_of(isa: Isa, q8: bool, rows_per_pass: int) -> Kernel:
    """The q4_0 kernel of exactly this instruction set. KeyError when there is none."""
    return _kernels()[Type.Q4_0, isa, q8, rows_per_pass]


def as_wide_as_the_matrix(product: Product) -> Product:
    """16-row panels without column tiling: a tile spans all columns, so 16 rows share each pass over x."""
    return replace(product, tile_rows=16, tile_cols=product.columns)


def ratio(
    control: Product,
    tiled: Product,
    geometry: CacheGeometry = E5_2650,
    inputs: Mapping[str, Scalar | bool | None] | None = None,
) -> Simulated:
    """Read misses of the control arm over those of the tiles."""
    first, second = control.simulated(geometry), tiled.simulated(geometry)
    return Simulated(
        method=METHOD,
        inputs={
            "slice": f"{tiled.rows} rows x {tiled.columns} columns",
            "control": control.kernel.name,
            "tiled": tiled.kernel.name,
            "tile": f"{tiled.tile_rows} x {tiled.tile_cols}",
            **(inputs or {}),
        },
        observations={
            "control_read_misses": first.read_misses,
            "tiled_read_misses": second.read_misses,
            "control_reads": first.reads,
            "tiled_reads": second.reads,
            "control_weight_bytes": first.weight_bytes,
            "tiled_weight_bytes": second.weight_bytes,
        },
        reduction=Reduction("ratio", ("control_read_misses", "tiled_read_misses")),
        geometry=str(geometry),
    )
