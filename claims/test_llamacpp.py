"""What the paper says of llama.cpp, beyond its own engine: "loads all experts" (1) and "row-major" (2)."""

from __future__ import annotations

import pytest

from claims.conftest import Measure
from claims.l1 import Product
from claims.llamacpp_rows import METHOD, PANEL_ROWS, Layout
from claims.run import Found
from harness.cachesim import E5_2650
from harness.evidence import Simulated
from harness.reductions import Reduction

DOWN_SLICE = Product(1024, 32768, q8=True)
"""Rows of the paper's dense-down matrix, 8,192 x 32,768, with 8-bit activations."""


@pytest.mark.check("2.l1.llamacpp")
def test_row_major(measure: Measure) -> None:
    def cell(panel_rows: int, tiled_read_misses: int) -> Simulated:
        theirs = Layout(DOWN_SLICE.rows, DOWN_SLICE.columns, panel_rows)
        return Simulated(
            method=METHOD,
            inputs={
                "slice": f"{DOWN_SLICE.rows} rows x {DOWN_SLICE.columns} columns",
                "control": f"llama.cpp, {panel_rows} rows a pass over the vector",
                "tiled": DOWN_SLICE.kernel.name,
                "tile": f"{DOWN_SLICE.tile_rows} x {DOWN_SLICE.tile_cols}",
                "vector bytes": theirs.vector_bytes,
            },
            observations={
                "control_read_misses": theirs.simulated().read_misses,
                "tiled_read_misses": tiled_read_misses,
                "control_weight_bytes": theirs.weight_bytes,
                "tiled_weight_bytes": DOWN_SLICE.weights_bytes,
            },
            reduction=Reduction("ratio", ("control_read_misses", "tiled_read_misses")),
            geometry=str(E5_2650),
        )

    def produce() -> Found:
        tiled = DOWN_SLICE.simulated().read_misses
        return {
            "panels of 8 rows, as it repacks on x86": cell(PANEL_ROWS, tiled),
            "plain rows, as in the file": cell(1, tiled),
        }

    measure(
        produce,
        (
            "A model of llama.cpp's layout from its public design, not a trace of its code.",
            "llama.cpp computes with 8-bit activations; 7.29x was measured with f32 ones: see 2.l1.rows.",
            "A slice of rows: every row meets the same columns, so the ratio is that of the whole matrix.",
            "A cache with LRU replacement and nothing else: no prefetcher, no second level.",
        ),
    )
