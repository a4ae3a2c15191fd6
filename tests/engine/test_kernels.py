"""Kernels and tiles through the C interface, against NumPy: products, layout, quantisation, bad arguments."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from ctypes import byref, c_uint64, c_void_p

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import tiles
from engine.enums import Isa, Status, Type
from engine.errors import ArgumentError, FormatError, UnsupportedError
from engine.kernels import (
    Kernel,
    gemm,
    gemm_kernels,
    gemv,
    isa_default,
    isa_supported,
    kernels,
    pack_tiles,
    quantize_q8,
    tiles_bytes,
    unpack_tiles,
)
from engine.native import aligned_bytes, last_error, lib, pointer
from engine.tiles import TileLayout, TileShape, dequantise, row_bytes

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

ALL = kernels()
SUPPORTED = [kernel for kernel in ALL if kernel.supported]
GEMM = [kernel for kernel in gemm_kernels() if kernel.supported]
KERNEL_COUNT = len(ALL) + len(gemm_kernels())
TILED = [kernel for kernel in SUPPORTED if kernel.rows_per_pass == 0]
TILED_Q8 = [kernel for kernel in TILED if kernel.q8]
QUANTISED = (Type.Q4_0, Type.Q4_1, Type.Q8_0)
HEAD_BYTES = {Type.Q4_0: 2, Type.Q4_1: 4, Type.Q8_0: 2}
#: Zero, subnormal, smallest normal, ordinary, largest (65,504), and negative ones, as f16 bits.
SCALES = np.array(
    [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x2400, 0xA400, 0x3C00, 0x7BFF, 0xFBFF], dtype=np.uint16
)

shapes = st.tuples(st.integers(1, 300), st.integers(1, 20).map(lambda n: 32 * n))
tile_shapes = st.one_of(
    st.just((128, 256)),
    st.tuples(st.integers(1, 9).map(lambda n: 16 * n), st.integers(1, 9).map(lambda n: 32 * n)),
)
seeds = st.integers(0, 2**32 - 1)


def random_rows(kind: Type, rows: int, columns: int, rng: np.random.Generator, adversarial: bool) -> Bytes:
    """GGUF rows: any codes; ordinary scales or, adversarial, those of SCALES."""
    if kind in (Type.F32, Type.F16):
        values = rng.standard_normal((rows, columns)).astype(np.float32 if kind is Type.F32 else np.float16)
        return values.view(np.uint8)
    blocks = rng.integers(0, 256, (rows, columns // 32, tiles.block_bytes(kind)), dtype=np.uint8)
    head = (rows, columns // 32, HEAD_BYTES[kind] // 2)
    scales = rng.choice(SCALES, head) if adversarial else (rng.standard_normal(head) / 100).astype(np.float16)
    blocks[:, :, : HEAD_BYTES[kind]] = scales.view(np.uint8)
    return blocks.reshape(rows, -1)


def stored(kernel: Kernel, rows: Bytes, columns: int, shape: tuple[int, int]) -> Bytes:
    """What the kernel reads: tiles, or the rows themselves."""
    if kernel.rows_per_pass:
        return np.ascontiguousarray(rows).reshape(-1)
    return pack_tiles(kernel.type, [rows], columns, *shape)


def product(kernel: Kernel, rows: Bytes, x: Floats, shape: tuple[int, int]) -> Floats:
    return gemv(kernel, stored(kernel, rows, x.size, shape), rows.shape[0], x, *shape)


def seen_by(kernel: Kernel, x: Floats) -> npt.NDArray[np.float64]:
    """x as the kernel's arithmetic has it, in double precision."""
    if not kernel.q8:
        return x.astype(np.float64)
    codes, scales, _ = quantize_q8(x)
    return codes.astype(np.float64) * np.repeat(scales.astype(np.float64), 32)


def error_scale(kind: Type, rows: Bytes, x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Per row the sum of the magnitudes that are added: |weight| |x|, and for q4 |scale| 16 |x|.

    The zero point and the minimum enter as terms of their own, so cancellation in a weight does not shrink
    the rounding error.
    """
    magnitudes = np.abs(dequantise(rows, kind).astype(np.float64))
    if kind in (Type.Q4_0, Type.Q4_1):
        blocks = np.ascontiguousarray(rows).reshape(rows.shape[0], -1, tiles.block_bytes(kind))
        scales = np.ascontiguousarray(blocks[:, :, :2]).view(np.float16).astype(np.float64)[:, :, 0]
        magnitudes += 16 * np.repeat(np.abs(scales), 32, axis=1)
    scale: npt.NDArray[np.float64] = magnitudes @ np.abs(x)
    return scale


def assert_close(kernel: Kernel, rows: Bytes, x: Floats, y: Floats, tolerance: float) -> None:
    exact = dequantise(rows, kernel.type).astype(np.float64) @ seen_by(kernel, x)
    bound = tolerance * error_scale(kernel.type, rows, seen_by(kernel, x)) + 1e-37
    worst = int(np.argmax(np.abs(y - exact) - bound))
    assert np.abs(y[worst] - exact[worst]) <= bound[worst], f"{kernel.name}: row {worst}"


def scalar_twin(kernel: Kernel) -> Kernel:
    name = kernel.name.removesuffix(kernel.isa.name.lower()) + "scalar"
    return next(k for k in ALL if k.name == name)


# ---- which kernels there are ----


def test_every_promised_kernel_exists_under_its_name() -> None:
    quantised = ("q4_0", "q4_1", "q8_0")
    # A set that has all that the scalar one has, and several vectors at once.
    whole = {f"{t}f32_gemv_t16_" for t in ("f16", "f32", *quantised)}
    whole |= {f"{t}q8_gemv_t16_" for t in quantised}
    whole |= {f"q4_0{act}_gemv_r{rows}_" for act in ("q8", "f32") for rows in (1, 2, 4, 8)}
    gemm = {f"{t}q8_gemm_t16x4_" for t in quantised}
    scalar = {name + "scalar" for name in whole}
    x86 = {name + "avx2" for name in whole | gemm}
    x86 |= {f"{t}{act}_gemv_t16_avx512" for t in quantised for act in ("q8", "f32")}
    x86 |= {f"{t}{act}_gemm_t16x4_avx512" for t in quantised for act in ("q8", "f32")}
    x86 |= {f"{t}q8_{shape}_avx512vnni" for t in quantised for shape in ("gemv_t16", "gemm_t16x4")}
    for rows in (1, 2, 4, 8):
        x86 |= {f"q4_0f32_gemv_r{rows}_avx512", f"q4_0q8_gemv_r{rows}_avx512vnni"}
    arm = {name + "neondot" for name in whole | gemm}
    names = [kernel.name for kernel in (*ALL, *gemm_kernels())]
    assert len(names) == len(set(names))
    promised = {"x86_64": scalar | x86, "aarch64": scalar | arm}
    assert set(names) == promised.get(platform.machine(), scalar)


def test_fields_agree_with_names_and_cpu() -> None:
    for kernel in ALL:
        operation = f"r{kernel.rows_per_pass}" if kernel.rows_per_pass else "t16"
        act = "q8" if kernel.q8 else "f32"
        assert kernel.name == f"{kernel.type.name}{act}_gemv_{operation}_{kernel.isa.name}".lower()
        assert kernel.supported == isa_supported(kernel.isa)
    for kernel in gemm_kernels():
        act = "q8" if kernel.q8 else "f32"
        assert kernel.name == f"{kernel.type.name}{act}_gemm_t16x4_{kernel.isa.name}".lower()
        assert (kernel.vectors, kernel.rows_per_pass) == (4, 0)
        assert kernel.supported == isa_supported(kernel.isa)
    assert lib().cflow_kernel_name(KERNEL_COUNT) is None
    fields = np.zeros(6, dtype=np.uint64)
    assert (
        lib().cflow_kernel_info(KERNEL_COUNT, pointer("fields", fields, np.uint64, 6)) == Status.ERR_ARGUMENT
    )
    assert str(KERNEL_COUNT) in last_error()


def test_names_of_types_and_instruction_sets() -> None:
    library = lib()
    assert [library.cflow_type_name(t) for t in range(-1, 6)] == [
        None, b"f32", b"f16", b"q4_0", b"q4_1", b"q8_0", None,
    ]  # fmt: skip
    assert [library.cflow_isa_name(i) for i in range(-1, 6)] == [
        None, b"scalar", b"avx2", b"avx512", b"avx512vnni", b"neondot", None,
    ]  # fmt: skip
    assert isa_supported(Isa.SCALAR)
    assert not (isa_supported(Isa.AVX2) and isa_supported(Isa.NEONDOT)), "sets of different processors"
    assert not library.cflow_isa_supported(-1) and not library.cflow_isa_supported(5)


@pytest.mark.parametrize("wanted", ["scalar", "avx2", "avx512", "avx512vnni", "neondot", "", "sse9"])
def test_environment_only_lowers_the_default(wanted: str) -> None:
    best = max(isa for isa in Isa if isa_supported(isa))
    named = {isa.name.lower(): isa for isa in Isa}.get(wanted, best)
    expected = named if named <= best and isa_supported(named) else best
    code = "from engine.kernels import isa_default; print(int(isa_default()))"
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=dict(os.environ, CFLOW_ISA=wanted),
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(result.stdout) == expected
    assert isa_default() <= best


# ---- products ----


@pytest.mark.parametrize("kernel", SUPPORTED, ids=lambda kernel: kernel.name)
@settings(max_examples=12)
@given(shape=shapes, tile=tile_shapes, seed=seeds, adversarial=st.booleans())
def test_product_equals_the_exact_one(
    kernel: Kernel, shape: tuple[int, int], tile: tuple[int, int], seed: int, adversarial: bool
) -> None:
    rng = np.random.default_rng(seed)
    rows = random_rows(kernel.type, *shape, rng, adversarial)
    x = rng.standard_normal(shape[1]).astype(np.float32)
    assert_close(kernel, rows, x, product(kernel, rows, x, tile), 1e-6)


@pytest.mark.parametrize("kernel", SUPPORTED, ids=lambda kernel: kernel.name)
def test_relative_error_of_a_long_product(kernel: Kernel) -> None:
    """The requirement: under 1e-5 in the norm, on ordinary weights."""
    rng = np.random.default_rng(7)
    rows = random_rows(kernel.type, 33, 8192, rng, adversarial=False)
    x = rng.standard_normal(8192).astype(np.float32)
    exact = dequantise(rows, kernel.type).astype(np.float64) @ seen_by(kernel, x)
    y = product(kernel, rows, x, (128, 256))
    assert np.linalg.norm(y - exact) < 1e-5 * np.linalg.norm(exact)


@pytest.mark.parametrize("kernel", TILED_Q8, ids=lambda kernel: kernel.name)
@settings(max_examples=15)
@given(shape=shapes, tile=tile_shapes, seed=seeds, adversarial=st.booleans())
def test_tiled_q8_has_the_bits_of_scalar(
    kernel: Kernel, shape: tuple[int, int], tile: tuple[int, int], seed: int, adversarial: bool
) -> None:
    rng = np.random.default_rng(seed)
    rows = random_rows(kernel.type, *shape, rng, adversarial)
    x = (rng.standard_normal(shape[1]) * 10.0 ** rng.integers(-6, 6)).astype(np.float32)
    expected = product(scalar_twin(kernel), rows, x, tile)
    np.testing.assert_array_equal(product(kernel, rows, x, tile).view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("kernel", GEMM, ids=lambda kernel: kernel.name)
@settings(max_examples=20)
@given(shape=shapes, tile=tile_shapes, vectors=st.integers(1, 32), seed=seeds, adversarial=st.booleans())
def test_several_vectors_have_the_bits_of_one_by_one(
    kernel: Kernel, shape: tuple[int, int], tile: tuple[int, int], vectors: int, seed: int, adversarial: bool
) -> None:
    rng = np.random.default_rng(seed)
    rows = random_rows(kernel.type, *shape, rng, adversarial)
    x = (rng.standard_normal((vectors, shape[1])) * 10.0 ** rng.integers(-6, 6)).astype(np.float32)
    (single,) = [k for k in TILED if (k.type, k.q8, k.isa) == (kernel.type, kernel.q8, kernel.isa)]
    y = gemm(kernel, stored(kernel, rows, shape[1], tile), shape[0], x, *tile)
    for found, vector in zip(y, x, strict=True):
        expected = product(single, rows, vector, tile)
        np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("kernel", TILED_Q8, ids=lambda kernel: kernel.name)
def test_bits_do_not_depend_on_the_tile_shape(kernel: Kernel) -> None:
    rng = np.random.default_rng(3)
    rows = random_rows(kernel.type, 77, 480, rng, adversarial=False)
    x = rng.standard_normal(480).astype(np.float32)
    results = [product(kernel, rows, x, shape) for shape in ((16, 32), (128, 256), (48, 480), (4096, 65536))]
    for y in results[1:]:
        np.testing.assert_array_equal(y, results[0])


@pytest.mark.parametrize("kernel", SUPPORTED, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("code", [0x00, 0x0F, 0x80, 0x7F, 0xFF])
def test_extreme_codes_do_not_saturate(kernel: Kernel, code: int) -> None:
    """All weights at one extreme against activations of one sign: the largest sums there are."""
    rows = random_rows(kernel.type, 17, 96, np.random.default_rng(0), adversarial=False)
    if kernel.type in QUANTISED:
        blocks = rows.reshape(17, 3, -1)
        blocks[:, :, HEAD_BYTES[kernel.type] :] = code
    for x in (np.full(96, 1.0, np.float32), np.full(96, -1.0, np.float32)):
        assert_close(kernel, rows, x, product(kernel, rows, x, (16, 64)), 1e-6)


@pytest.mark.parametrize("kernel", [k for k in SUPPORTED if k.q8], ids=lambda kernel: kernel.name)
def test_a_nonfinite_activation_shows_in_every_row(kernel: Kernel) -> None:
    rows = random_rows(kernel.type, 5, 64, np.random.default_rng(1), adversarial=False)
    x = np.ones(64, np.float32)
    x[40] = np.nan
    assert np.isnan(product(kernel, rows, x, (16, 64))).all()


# ---- q8 activations ----


@settings(max_examples=100)
@given(
    values=st.lists(
        st.floats(-(2.0**100), 2.0**100, width=32).filter(lambda value: value == 0 or abs(value) > 1e-30),
        min_size=32,
        max_size=32,
    ),
    blocks=st.integers(1, 3),
)
def test_quantisation_follows_its_formula(values: list[float], blocks: int) -> None:
    x = np.tile(np.array(values, dtype=np.float32), blocks)
    codes, scales, sums = quantize_q8(x)
    largest = np.abs(x[:32]).max()
    factor = np.float32(127) / largest if largest > 0 else np.float32(0)
    expected = np.rint(x[:32] * factor).astype(np.int32)
    np.testing.assert_array_equal(codes.reshape(blocks, 32), np.tile(expected, (blocks, 1)))
    np.testing.assert_array_equal(scales, np.full(blocks, largest / np.float32(127)))
    np.testing.assert_array_equal(sums, np.full(blocks, expected.sum()))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_quantisation_of_a_nonfinite_block(bad: float) -> None:
    x = np.ones(64, dtype=np.float32)
    x[3] = bad
    codes, scales, sums = quantize_q8(x)
    assert not np.isfinite(scales[0]) and not codes[:32].any() and sums[0] == 0
    assert scales[1] == np.float32(1) / np.float32(127) and (codes[32:] == 127).all()


@pytest.mark.parametrize("columns", [0, 31, 33])
def test_quantisation_refuses_odd_sizes(columns: int) -> None:
    x = np.zeros(64, np.float32)
    codes, blocks, sums = np.zeros(64, np.int8), np.zeros(2, np.float32), np.zeros(2, np.int32)
    status = lib().cflow_quantize_q8(
        pointer("x", x, np.float32, 64),
        columns,
        pointer("codes", codes, np.int8, 64),
        pointer("scales", blocks, np.float32, 2),
        pointer("sums", sums, np.int32, 2),
    )
    assert status == Status.ERR_ARGUMENT and str(columns) in last_error()


# ---- tiles ----


@settings(max_examples=60)
@given(
    kind=st.sampled_from(Type),
    part_rows=st.lists(st.integers(1, 200), min_size=1, max_size=3),
    columns=st.integers(1, 20).map(lambda n: 32 * n),
    tile=tile_shapes,
    seed=seeds,
)
def test_packing_is_that_of_the_reference_and_lossless(
    kind: Type, part_rows: list[int], columns: int, tile: tuple[int, int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    width = row_bytes(kind, columns)
    parts = [rng.integers(0, 256, (rows, width), dtype=np.uint8) for rows in part_rows]
    packed = pack_tiles(kind, parts, columns, *tile)
    layout = TileLayout(kind, tuple(part_rows), columns, TileShape(*tile))
    np.testing.assert_array_equal(packed, tiles.pack(layout, parts))
    for found, wanted in zip(unpack_tiles(kind, part_rows, columns, packed, *tile), parts, strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("kind", "size"), [(Type.Q4_0, 18432), (Type.Q4_1, 20480), (Type.Q8_0, 34816)])
def test_bytes_of_the_standard_tile(kind: Type, size: int) -> None:
    assert tiles_bytes(kind, 128, 256) == size


@pytest.mark.parametrize(
    ("kind", "rows", "columns", "tile", "named"),
    [
        (Type.Q4_0, 0, 256, (128, 256), "0 rows"),
        (Type.Q4_0, 16, 0, (128, 256), "columns is 0"),
        (Type.Q4_0, 16, 48, (128, 256), "columns is 48"),
        (Type.Q4_0, 16, 64, (0, 256), "tile_rows is 0"),
        (Type.Q4_0, 16, 64, (24, 256), "tile_rows is 24"),
        (Type.Q4_0, 16, 64, (4112, 256), "tile_rows is 4112"),
        (Type.Q4_0, 16, 64, (128, 0), "tile_cols is 0"),
        (Type.Q4_0, 16, 64, (128, 40), "tile_cols is 40"),
        (Type.Q4_0, 16, 64, (128, 65568), "tile_cols is 65568"),
        (5, 16, 64, (128, 256), "type is 5"),
        (-1, 16, 64, (128, 256), "type is -1"),
    ],
)
def test_bad_shapes_are_refused_by_name(
    kind: int, rows: int, columns: int, tile: tuple[int, int], named: str
) -> None:
    size = c_uint64(1234)
    assert lib().cflow_tiles_bytes(kind, rows, columns, *tile, byref(size)) == Status.ERR_ARGUMENT
    assert named in last_error()
    assert size.value == 1234, "nothing is written on failure"


@pytest.mark.parametrize(
    ("rows", "columns"),
    [(2**64 - 1, 32), (2**63, 2**40), (1, 2**64 - 32), (2**40, 2**40), (2**33, 2**32), (2**61, 32)],
)
@pytest.mark.parametrize("kind", list(Type))
def test_sizes_that_overflow_are_a_format_error(kind: Type, rows: int, columns: int) -> None:
    with pytest.raises(FormatError, match="overflow"):
        tiles_bytes(kind, rows, columns)


def _pack_status(kind: int, rows: Sequence[int], columns: int, size: int, parts: int) -> int:
    buffer = aligned_bytes(4096)
    counts = np.array(rows, dtype=np.uint64)
    addresses = (c_void_p * 3)(*[buffer.ctypes.data] * 3)
    status: int = lib().cflow_tiles_pack(
        kind,
        parts,
        pointer("rows", counts, np.uint64, len(rows)),
        columns,
        128,
        256,
        addresses,
        buffer.ctypes.data,
        size,
    )
    return status


def test_packing_refuses_bad_calls() -> None:
    need = tiles_bytes(Type.Q4_0, 16, 32)
    assert _pack_status(Type.Q4_0, [16], 32, need - 1, 1) == Status.ERR_ARGUMENT
    assert str(need) in last_error() and str(need - 1) in last_error()
    for parts in (0, 4, -1):
        assert _pack_status(Type.Q4_0, [16, 16, 16, 16], 32, need, parts) == Status.ERR_ARGUMENT
        assert f"parts is {parts}" in last_error()
    assert _pack_status(Type.Q4_0, [16, 0], 32, need, 2) == Status.ERR_ARGUMENT
    assert "part 1" in last_error()
    assert _pack_status(Type.Q4_0, [2**63, 2**63, 2**63], 32, need, 3) == Status.ERR_FORMAT


# ---- bad calls of cflow_gemv ----


def test_gemv_refuses_bad_calls() -> None:
    kernel = next(k for k in ALL if k.name == "q4_0q8_gemv_t16_scalar")
    weights = aligned_bytes(tiles_bytes(Type.Q4_0, 16, 64))
    x = np.zeros(64, np.float32)
    with pytest.raises(ArgumentError, match="weights_bytes"):
        gemv(kernel, weights[:-64], 16, x)
    with pytest.raises(ArgumentError, match="0 rows"):
        gemv(kernel, weights, 0, x)
    with pytest.raises(ArgumentError, match="columns is 48"):
        gemv(kernel, weights, 16, x[:48])
    y = np.zeros(16, np.float32)
    xp, yp = pointer("x", x, np.float32, 64), pointer("y", y, np.float32, 16)
    size = weights.size
    status = lib().cflow_gemv(kernel.index, weights.ctypes.data + 16, size, 16, 64, 128, 256, xp, yp)
    assert status == Status.ERR_ARGUMENT and "aligned" in last_error()
    status = lib().cflow_gemv(KERNEL_COUNT, weights.ctypes.data, size, 16, 64, 128, 256, xp, yp)
    assert status == Status.ERR_ARGUMENT and f"kernel is {KERNEL_COUNT}" in last_error()
    status = lib().cflow_gemv(kernel.index, None, size, 16, 64, 128, 256, xp, yp)
    assert status == Status.ERR_ARGUMENT and "NULL" in last_error()


def test_gemv_of_a_kernel_that_the_cpu_lacks_is_refused() -> None:
    x = np.zeros(32, np.float32)
    refused = [kernel for kernel in ALL if not kernel.supported]
    for kernel in refused:
        size = row_bytes(kernel.type, 32) if kernel.rows_per_pass else tiles_bytes(kernel.type, 1, 32)
        with pytest.raises(UnsupportedError, match=kernel.name):
            gemv(kernel, aligned_bytes(size), 1, x)
    assert len(refused) + len(SUPPORTED) == len(ALL)


# ---- bad calls of cflow_gemm ----


@pytest.mark.parametrize("kernel", GEMM[:1], ids=lambda kernel: kernel.name)
def test_gemm_refuses_bad_calls(kernel: Kernel) -> None:
    weights = aligned_bytes(tiles_bytes(kernel.type, 16, 64))
    x = np.zeros((5, 64), np.float32)
    with pytest.raises(ArgumentError, match="cflow_gemm: weights_bytes"):
        gemm(kernel, weights[:-64], 16, x)
    with pytest.raises(ArgumentError, match="vectors is 33; allowed: 1 to 32"):
        gemm(kernel, weights, 16, np.zeros((33, 64), np.float32))
    with pytest.raises(ArgumentError, match="vectors is 0"):
        gemm(kernel, weights, 16, np.zeros((0, 64), np.float32))
    with pytest.raises(ArgumentError, match="not a matrix-matrix kernel"):
        gemm(TILED[0], weights, 16, x)
    with pytest.raises(ArgumentError, match=f"{kernel.name} takes several vectors"):
        gemv(kernel, weights, 16, x[0])
