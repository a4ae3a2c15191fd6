"""Kernels called one at a time, and the tile layout: for tests and measurement."""

from collections.abc import Sequence
from ctypes import byref, c_uint64, c_void_p
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.enums import Isa, KernelField, Type
from engine.errors import ArgumentError
from engine.native import aligned_bytes, check, lib, pointer, text
from engine.tiles import BLOCK_COLUMNS, row_bytes

TILE_ROWS = 128
TILE_COLS = 256


@dataclass(frozen=True)
class Kernel:
    """One kernel of the library. `rows_per_pass` is 0 for the tiled ones, else that of the row-major twin.

    `vectors`: how many it multiplies at once; 1 for all but the matrix-matrix kernels.
    """

    index: int
    name: str
    type: Type
    q8: bool
    isa: Isa
    rows_per_pass: int
    supported: bool
    vectors: int


def kernels() -> list[Kernel]:
    """Every matrix-vector kernel that the library was built with, whether this CPU runs it or not."""
    return [kernel for kernel in _all_kernels() if kernel.vectors == 1]


def gemm_kernels() -> list[Kernel]:
    """Every matrix-matrix kernel: those that prompts run on, several tokens at once."""
    return [kernel for kernel in _all_kernels() if kernel.vectors > 1]


def _all_kernels() -> list[Kernel]:
    return [_kernel(index) for index in range(lib().cflow_kernel_count())]


def _kernel(index: int) -> Kernel:
    fields = np.zeros(len(KernelField), dtype=np.uint64)
    check(lib().cflow_kernel_info(index, pointer("fields", fields, np.uint64, len(KernelField))))
    return Kernel(
        index=index,
        name=text(lib().cflow_kernel_name(index)),
        type=Type(int(fields[KernelField.TYPE])),
        q8=bool(fields[KernelField.Q8]),
        isa=Isa(int(fields[KernelField.ISA])),
        rows_per_pass=int(fields[KernelField.ROWS_PER_PASS]),
        supported=bool(fields[KernelField.SUPPORTED]),
        vectors=int(fields[KernelField.VECTORS]),
    )


def isa_supported(isa: Isa) -> bool:
    """Whether this CPU and OS run an instruction set."""
    return bool(lib().cflow_isa_supported(isa))


def isa_default() -> Isa:
    """The instruction set that a session uses unless told otherwise; `CFLOW_ISA` can lower it."""
    return Isa(lib().cflow_isa_default())


def threads_default() -> int:
    """min(affinity mask, cgroup CPU quota rounded up, physical cores), at least 1."""
    return int(lib().cflow_threads_default())


def tiles_bytes(
    type_: Type, rows: int, columns: int, tile_rows: int = TILE_ROWS, tile_cols: int = TILE_COLS
) -> int:
    """Stored bytes of a matrix of one part, padding included."""
    size = c_uint64()
    check(lib().cflow_tiles_bytes(type_, rows, columns, tile_rows, tile_cols, byref(size)))
    return size.value


def pack_tiles(
    type_: Type,
    parts: Sequence[npt.NDArray[np.uint8]],
    columns: int,
    tile_rows: int = TILE_ROWS,
    tile_cols: int = TILE_COLS,
) -> npt.NDArray[np.uint8]:
    """Row-major rows (uint8 [rows, row bytes] per fused part) to tiles, 64-byte aligned. Lossless."""
    for index, part in enumerate(parts):
        _check_rows(f"parts[{index}]", part, type_, columns)
    size = sum(tiles_bytes(type_, part.shape[0], columns, tile_rows, tile_cols) for part in parts)
    tiles = aligned_bytes(size)
    rows = np.array([part.shape[0] for part in parts], dtype=np.uint64)
    addresses = (c_void_p * len(parts))(*(part.ctypes.data for part in parts))
    check(
        lib().cflow_tiles_pack(
            type_,
            len(parts),
            pointer("rows", rows, np.uint64, len(parts)),
            columns,
            tile_rows,
            tile_cols,
            addresses,
            tiles.ctypes.data,
            size,
        )
    )
    return tiles


def unpack_tiles(
    type_: Type,
    rows: Sequence[int],
    columns: int,
    tiles: npt.NDArray[np.uint8],
    tile_rows: int = TILE_ROWS,
    tile_cols: int = TILE_COLS,
) -> list[npt.NDArray[np.uint8]]:
    """The inverse of `pack_tiles`: one uint8 [rows, row bytes] array per fused part."""
    parts = [np.zeros((count, row_bytes(type_, columns)), dtype=np.uint8) for count in rows]
    counts = np.array(rows, dtype=np.uint64)
    addresses = (c_void_p * len(parts))(*(part.ctypes.data for part in parts))
    check(
        lib().cflow_tiles_unpack(
            type_,
            len(parts),
            pointer("rows", counts, np.uint64, len(parts)),
            columns,
            tile_rows,
            tile_cols,
            _bytes_address("tiles", tiles),
            tiles.size,
            addresses,
        )
    )
    return parts


def gemv(
    kernel: Kernel,
    weights: npt.NDArray[np.uint8],
    rows: int,
    x: npt.NDArray[np.float32],
    tile_rows: int = TILE_ROWS,
    tile_cols: int = TILE_COLS,
) -> npt.NDArray[np.float32]:
    """y [rows] = W x for one matrix on the calling thread.

    `weights`: 64-byte aligned tiles for a tiled kernel, GGUF blocks for a row-major one. `x`: f32 [columns].
    """
    if kernel.rows_per_pass == 0 and weights.ctypes.data % 64:
        raise ArgumentError("weights: tiles must be aligned to 64 bytes (engine.native.aligned_bytes)")
    y = np.zeros(rows, dtype=np.float32)
    check(
        lib().cflow_gemv(
            kernel.index,
            _bytes_address("weights", weights),
            weights.size,
            rows,
            x.size,
            tile_rows,
            tile_cols,
            pointer("x", x, np.float32, x.size),
            pointer("y", y, np.float32, rows),
        )
    )
    return y


def gemm(
    kernel: Kernel,
    weights: npt.NDArray[np.uint8],
    rows: int,
    x: npt.NDArray[np.float32],
    tile_rows: int = TILE_ROWS,
    tile_cols: int = TILE_COLS,
) -> npt.NDArray[np.float32]:
    """y [vectors, rows] = W x[n] for a matrix-matrix kernel. `x`: f32 [vectors, columns], 1 to 32 vectors."""
    vectors, columns = x.shape
    y = np.zeros((vectors, rows), dtype=np.float32)
    check(
        lib().cflow_gemm(
            kernel.index,
            _bytes_address("weights", weights),
            weights.size,
            rows,
            columns,
            tile_rows,
            tile_cols,
            pointer("x", x, np.float32, x.size),
            vectors,
            pointer("y", y, np.float32, y.size),
        )
    )
    return y


def quantize_q8(
    x: npt.NDArray[np.float32],
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32], npt.NDArray[np.int32]]:
    """The q8 form of x [columns]: codes [columns], scales [columns / 32], sums of codes [columns / 32]."""
    blocks = x.size // BLOCK_COLUMNS
    codes = np.zeros(x.size, dtype=np.int8)
    scales = np.zeros(blocks, dtype=np.float32)
    sums = np.zeros(blocks, dtype=np.int32)
    check(
        lib().cflow_quantize_q8(
            pointer("x", x, np.float32, x.size),
            x.size,
            pointer("codes", codes, np.int8, x.size),
            pointer("scales", scales, np.float32, blocks),
            pointer("sums", sums, np.int32, blocks),
        )
    )
    return codes, scales, sums


def _check_rows(name: str, rows: npt.NDArray[np.uint8], type_: Type, columns: int) -> None:
    needed = row_bytes(type_, columns)
    if rows.ndim != 2 or rows.shape[1] != needed:
        wanted = f"(rows, {needed}) is needed for {columns} columns"
        raise ArgumentError(f"{name}: shape {rows.shape} found, {wanted}")
    _bytes_address(name, rows)


def _bytes_address(name: str, array: npt.NDArray[np.uint8]) -> int:
    if array.dtype != np.uint8 or not array.flags.c_contiguous:
        raise ArgumentError(f"{name}: a C-contiguous uint8 array is needed, {array.dtype} found")
    return int(array.ctypes.data)
