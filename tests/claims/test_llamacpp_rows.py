"""The model of llama.cpp's layouts: every byte once, in its order, and the misses that follow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claims.llamacpp_rows import PANEL_ROWS, Layout
from engine.enums import AccessField, AccessKind
from engine.errors import ArgumentError
from harness.cachesim import CacheGeometry

ENDLESS = CacheGeometry("endless", 1 << 24, 16, 64)
TINY = CacheGeometry("tiny", 1024, 4, 64)

layouts = st.builds(
    lambda panels, blocks, panel_rows: Layout(panels * panel_rows, blocks * 32, panel_rows),
    st.integers(1, 4),
    st.integers(1, 40),
    st.sampled_from([1, PANEL_ROWS]),
)


@given(layouts)
def test_every_byte_of_the_matrix_is_loaded_once_and_in_order(layout: Layout) -> None:
    accesses = np.concatenate(list(layout.passes()))
    of_matrix = accesses[np.isin(accesses[:, 2], (AccessKind.WEIGHT, AccessKind.SCALE))]
    ends = np.cumsum(of_matrix[:, 1])
    assert ends[-1] == layout.weight_bytes
    assert of_matrix[:, 0].tolist() == [0, *ends[:-1].tolist()]


@given(layouts)
def test_each_pass_loads_the_whole_vector_and_stores_its_rows(layout: Layout) -> None:
    passes = list(layout.passes())
    assert len(passes) == layout.rows // layout.panel_rows
    for accesses in passes:
        vector = accesses[accesses[:, 2] == AccessKind.ACTIVATION]
        assert int(vector[:, 1].sum()) == layout.vector_bytes
        assert int((vector[1:, 0] - vector[:-1, 0]).min()) > 0
        assert (accesses[:, 2] == AccessKind.OUTPUT_STORE).sum() == layout.panel_rows


@given(layouts)
def test_a_cache_that_holds_all_misses_each_line_once(layout: Layout) -> None:
    counts = layout.simulated(ENDLESS)
    assert counts.weight_bytes == layout.weight_bytes
    assert counts.read_misses == -(-layout.weight_bytes // 64) + -(-layout.vector_bytes // 64)
    assert counts.of(AccessField.ACCESSES, AccessKind.OUTPUT_STORE) == layout.rows


def test_a_vector_that_does_not_fit_is_fetched_anew_in_each_pass() -> None:
    columns = 32 * 64
    vector_lines = Layout(8, columns, 1).vector_bytes // 64
    rows, panels = Layout(64, columns, 1).simulated(TINY), Layout(64, columns, PANEL_ROWS).simulated(TINY)
    weights = Layout(64, columns, 1).weight_bytes // 64
    assert rows.read_misses == weights + 64 * vector_lines
    assert panels.read_misses == weights + 64 // PANEL_ROWS * vector_lines


@pytest.mark.parametrize(
    ("shape", "field"),
    [((8, 64, 4), "panel_rows"), ((7, 64, 8), "rows"), ((0, 64, 1), "rows"), ((8, 48, 1), "columns")],
)
def test_sizes_that_do_not_fit_are_named(shape: tuple[int, int, int], field: str) -> None:
    with pytest.raises(ArgumentError, match=rf"^{field}: "):
        Layout(*shape)
