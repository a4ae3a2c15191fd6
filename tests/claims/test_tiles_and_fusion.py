"""What claims 2 and 4 rest on: slices stand for matrices, sessions for single products, shapes for loads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claims.l1 import METHOD, Product, as_wide_as_the_matrix, kernel_of, ratio
from claims.recorded import EQUAL_PARTS, recorded_pieces, shared_loads
from engine.enums import Isa, PieceKind
from engine.geometry import Geometry
from engine.kernels import isa_supported
from engine.synth import synthesise
from harness.cachesim import E5_2650

pytestmark = pytest.mark.skipif(not isa_supported(Isa.AVX2), reason="no AVX2")


def misses_ratio(rows: int, columns: int, rows_per_pass: int = 1) -> float:
    tiled = Product(rows, columns)
    return ratio(replace(tiled, rows_per_pass=rows_per_pass), tiled).value


@pytest.mark.parametrize("columns", [4096, 8192, 32768])
def test_a_slice_has_the_ratio_of_more_rows(columns: int) -> None:
    slices = [misses_ratio(rows, columns) for rows in (512, 1024, 2048)]
    assert slices == pytest.approx([slices[-1]] * len(slices), rel=0.02)


def test_the_ratio_is_what_the_bytes_give() -> None:
    tiled, control = Product(256, 32768), Product(256, 32768, rows_per_pass=1)
    lines_of_weights = tiled.weights_bytes / 64
    vector_lines = 32768 * 4 / 64
    assert control.simulated().read_misses == pytest.approx(
        lines_of_weights + control.rows * vector_lines, rel=0.01
    )
    # A slice of 256 columns and its sums miss once per 128 rows, the results hardly ever.
    per_tile_row = vector_lines * (1 + 1 / 32)
    wanted = lines_of_weights + tiled.rows / 128 * per_tile_row
    assert tiled.simulated().read_misses == pytest.approx(wanted, rel=0.03)


@pytest.mark.parametrize(("rows_per_pass", "bound"), [(1, 8.2), (2, 4.6), (4, 2.8), (8, 1.9)])
def test_more_rows_per_pass_leave_less(rows_per_pass: int, bound: float) -> None:
    found = misses_ratio(256, 32768, rows_per_pass)
    assert 0.9 * (0.5625 + 4 / rows_per_pass) / 0.5625 < found < bound


def test_panels_lie_between_rows_and_tiles() -> None:
    tiled = Product(256, 32768)
    assert 1.3 < ratio(as_wide_as_the_matrix(tiled), tiled).value < 1.45


def test_the_evidence_names_the_kernels_and_the_cache() -> None:
    tiled = Product(128, 1024)
    found = ratio(replace(tiled, rows_per_pass=1), tiled)
    assert found.method == METHOD
    assert found.inputs["control"] == "q4_0f32_gemv_r1_avx2"
    assert found.inputs["tiled"] == "q4_0f32_gemv_t16_avx2"
    assert found.geometry == str(E5_2650)


def test_a_product_runs_the_kernel_that_it_describes() -> None:
    y = Product(64, 1024).work(own_pages=True)()
    assert isinstance(y, np.ndarray)
    assert y.shape == (64,) and not np.any(y)
    assert kernel_of(Isa.AVX2, True, 8).name == "q4_0q8_gemv_r8_avx2"
    with pytest.raises(KeyError):
        kernel_of(Isa.AVX2, False, 3)


@st.composite
def attention_shapes(draw: st.DrawFn) -> Geometry:
    kv_heads = draw(st.integers(1, 3))
    heads = kv_heads * draw(st.integers(1, 4))
    head_dim = draw(st.sampled_from([32, 64, 96]))
    return Geometry(
        layers=1,
        d_model=draw(st.sampled_from([64, 320])),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn_hidden=draw(st.sampled_from([32, 96, 288])),
        vocab=40,
        context=4,
        blocks=1,
    )


@settings(max_examples=12)
@given(attention_shapes(), st.booleans())
def test_loads_follow_from_the_rows_of_the_parts(
    tmp_path_factory: pytest.TempPathFactory, geometry: Geometry, q8: bool
) -> None:
    path = tmp_path_factory.mktemp("fusion") / "m.cflow"
    synthesise(path, geometry)
    runs = [
        recorded_pieces(path, [1], options={"fused": fused, "q8_activations": q8}) for fused in (True, False)
    ]
    queries, keys = geometry.heads * geometry.head_dim, geometry.kv_heads * geometry.head_dim
    for piece, parts in (
        (PieceKind.QKV, [queries, keys, keys]),
        (PieceKind.GATE_UP, [geometry.ffn_hidden] * 2),
    ):
        fused, unfused = (one[piece].activation_loads for one in runs)
        groups, all_groups = shared_loads(parts)
        assert fused * all_groups == unfused * groups
        assert runs[0][piece].weight_bytes == runs[1][piece].weight_bytes > 0


def test_pieces_that_have_one_part_do_not_change(tmp_path: Path) -> None:
    path = tmp_path / "m.cflow"
    synthesise(path, EQUAL_PARTS)
    fused, unfused = (recorded_pieces(path, options={"fused": fused}) for fused in (True, False))
    for piece in (PieceKind.OUTPUT, PieceKind.DOWN, PieceKind.ROUTER, PieceKind.EXPERT_DOWN, PieceKind.HEAD):
        assert np.array_equal(fused[piece].values[:, :2], unfused[piece].values[:, :2])
        assert fused[piece].activation_loads > 0
