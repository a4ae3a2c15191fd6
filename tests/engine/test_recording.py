"""libcflow_record: the same results as libcflow, and every load and store of the kernels in the record."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import native
from engine.enums import AccessField, AccessKind, PieceKind, Type
from engine.errors import LibraryError
from engine.geometry import Geometry
from engine.kernels import Kernel, gemm_kernels, gemv, kernels, tiles_bytes
from engine.model import Model
from engine.native import aligned_bytes, lib, recording_library
from engine.session import Session
from engine.tiles import row_bytes
from harness.cachesim import AccessCounts, Cache, CacheGeometry
from tests.engine.models import write_random_model

SUPPORTED = [kernel for kernel in kernels() if kernel.supported]
#: Holds everything that a small product touches: a miss is the first use of a line.
HUGE = CacheGeometry("everything", 1 << 26, 16, 64)
TILE = (128, 256)


def weights_of(kernel: Kernel, rows: int, columns: int, seed: int) -> np.ndarray:
    """Random stored bytes whose f16 and f32 numbers are finite."""
    rng = np.random.default_rng(seed)
    if kernel.rows_per_pass:
        size = rows * row_bytes(kernel.type, columns)
    else:
        size = tiles_bytes(kernel.type, rows, columns, *TILE)
    out = aligned_bytes(size)
    out[:] = rng.integers(0, 48, size, dtype=np.uint8)
    return out


def recorded(
    kernel: Kernel, weights: np.ndarray, rows: int, x: np.ndarray
) -> tuple[np.ndarray, AccessCounts]:
    with recording_library(), Cache(HUGE) as cache:
        with cache.recording():
            y = gemv(kernel, weights, rows, x, *TILE)
        return y, cache.counts()


@pytest.mark.parametrize("kernel", SUPPORTED, ids=lambda kernel: kernel.name)
def test_recording_changes_no_bit_and_misses_no_weight(kernel: Kernel) -> None:
    rows, columns = 150, 320
    weights = weights_of(kernel, rows, columns, kernel.index)
    x = np.random.default_rng(kernel.index).standard_normal(columns).astype(np.float32)
    y, counts = recorded(kernel, weights, rows, x)
    assert y.tobytes() == gemv(kernel, weights, rows, x, *TILE).tobytes()
    # Every stored byte is loaded once; with an even number of blocks no section is padded to 64 bytes.
    assert counts.weight_bytes == weights.size
    # Each line misses once. Rows begin anywhere in a line: a load over two absent ones is a single miss.
    lines = counts.of(AccessField.MISSES, AccessKind.WEIGHT, AccessKind.SCALE)
    assert lines == pytest.approx(weights.size / 64, rel=0.1 if kernel.rows_per_pass else 0.01)
    has_scales = kernel.type not in (Type.F16, Type.F32)
    assert (counts.of(AccessField.BYTES, AccessKind.SCALE) > 0) == has_scales
    # Activations: all columns at least once, and no line outside the prepared arrays.
    element = 1 if kernel.q8 else 4
    assert counts.of(AccessField.BYTES, AccessKind.ACTIVATION) >= columns * element
    lines = counts.of(AccessField.MISSES, AccessKind.ACTIVATION)
    assert columns * element / 64 <= lines <= (columns * element + 2 * columns / 32 * 4) / 64 + 4
    stored = counts.of(AccessField.BYTES, AccessKind.OUTPUT_STORE)
    if kernel.rows_per_pass:
        assert (stored, counts.of(AccessField.BYTES, AccessKind.OUTPUT_LOAD)) == (4 * rows, 0)
    else:
        assert stored == counts.of(AccessField.BYTES, AccessKind.OUTPUT_LOAD)
        assert stored % (4 * 160) == 0  # whole groups of 16 rows


@settings(max_examples=15)
@given(st.integers(1, 70), st.integers(1, 12).map(lambda blocks: 32 * blocks), st.sampled_from([1, 2, 4, 8]))
def test_loads_of_row_major_passes_follow_from_the_shape(rows: int, columns: int, per_pass: int) -> None:
    (kernel,) = [
        one for one in SUPPORTED if not one.q8 and one.rows_per_pass == per_pass and one.isa.name == "SCALAR"
    ]
    weights = weights_of(kernel, rows, columns, rows)
    _, counts = recorded(kernel, weights, rows, np.ones(columns, np.float32))
    assert counts.of(AccessField.ACCESSES, AccessKind.WEIGHT) == rows * columns // 2
    assert counts.of(AccessField.ACCESSES, AccessKind.SCALE) == rows * columns // 32


HAS_GEMM = any(kernel.supported for kernel in gemm_kernels())
GEOMETRY = Geometry.parse("d=128,layers=2,ffn=192,experts=4,top_k=2,expert_hidden=64,vocab=300,context=16")


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield write_random_model(tmp_path_factory.mktemp("recording") / "m.cflow", GEOMETRY, seed=4)


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_session_is_recorded_by_piece(model_path: Path, threads: int, batch: int) -> None:
    tokens = [3, 1, 4, 1, 5, 9, 2, 6]
    options = {"threads": threads, "context": 8, "prompt_batch": batch}
    with Model(model_path) as model, Session(model, **options) as session:
        plain = session.decode(tokens)
    with (
        recording_library(),
        Model(model_path) as model,
        Session(model, **options) as session,
        Cache(HUGE) as cache,
    ):
        with cache.recording():
            logits = session.decode(tokens)
        loaded = {piece: cache.counts(piece).weight_bytes for piece in PieceKind}
        outside = cache.counts()
        stored = dict.fromkeys(PieceKind, 0)
        for piece in session.schedule():
            stored[piece.kind] += piece.bytes * len(tokens)
    assert logits.tobytes() == plain.tobytes()
    assert loaded.pop(PieceKind.HEAD) == stored.pop(PieceKind.HEAD) // len(tokens)  # of the last token
    for piece, size in loaded.items():
        # Kernels for several tokens exist for quantised weights; vector kernels do the rest.
        if batch == 1 or piece in (PieceKind.ATTENTION, PieceKind.ROUTER):
            assert size == stored[piece]
        elif piece in (PieceKind.EXPERT_GATE_UP, PieceKind.EXPERT_DOWN):
            assert stored[piece] // batch <= size <= stored[piece]
        elif HAS_GEMM:
            # Of a group's 2,304 bytes 4 tokens share the loads of the codes; each loads the scales, 256.
            assert size * 4 * 2304 == stored[piece] * (2048 + 4 * 256)
        else:
            assert size == stored[piece]
    assert outside.reads == 0


def test_the_library_in_use_is_that_of_the_block_and_of_the_thread() -> None:
    ordinary = lib()
    seen = []
    with recording_library():
        inside = lib()
        thread = threading.Thread(target=lambda: seen.append(lib()))
        thread.start()
        thread.join()
    assert inside is not ordinary
    assert lib() is ordinary
    assert seen == [ordinary]


def test_what_is_built_beside_the_library_lies_beside_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(native.ENVIRONMENT_VARIABLE, str(tmp_path / "libcflow.so"))
    with pytest.raises(LibraryError, match="was not found"):
        native.built_beside_library("libcflow_record.so")
    (tmp_path / "libcflow.so").touch()
    assert native.built_beside_library("x.so") == tmp_path / "x.so"
