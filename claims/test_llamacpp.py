"""What the paper says of llama.cpp, beyond its own engine: "loads all experts" (1) and "row-major" (2)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from baselines.errors import BaselineError
from claims.cold import ColdRun, cold_engine, cold_llamacpp
from claims.conftest import Measure
from claims.experts import geometries, random_ids
from claims.l1 import METHOD as LRU
from claims.l1 import Product
from claims.llamacpp_rows import METHOD, PANEL_ROWS, Layout
from claims.llamacpp_trace import BACK_END, COLUMNS, FUNCTIONS, ROWS, down_gguf, traced
from claims.models import as_gguf, synthetic
from claims.moe_gguf import expert_file
from claims.run import SEED, ClaimsRun, Found
from engine.enums import Activation, Advice
from harness.cachegrind import CachegrindError
from harness.cachesim import E5_2650
from harness.cachestate import CacheStateError
from harness.evidence import Kernel, Simulated
from harness.machine import storage
from harness.reductions import Reduction
from harness.verdict import NotMeasurable

RESIDENT_AFTER = (1, 2, 4, 8)
SHAPE = replace(geometries("quick")["64 top-4"], activation=Activation.SWIGLU)
"""GGUF knows no other activation."""
ALL = 0.95
"""Of the bank: what start-up must have shown in memory, for the measure to count when it shows less."""
DOWN_SLICE = Product(1024, 32768, q8=True)
"""Rows of the paper's dense-down matrix, 8,192 x 32,768, with 8-bit activations."""


@pytest.mark.check("1.llamacpp")
def test_loads_all_experts(measure: Measure, claims_run: ClaimsRun) -> None:
    disk = storage(claims_run.cache)
    ids = random_ids(SHAPE.vocab, max(RESIDENT_AFTER))

    def produce() -> Found:
        ours = synthetic(claims_run.cache, "llamacpp-64-top-4", SHAPE)
        file = expert_file(as_gguf(ours), SHAPE)
        threads = claims_run.threads
        try:
            cold = cold_llamacpp(file, ids, RESIDENT_AFTER, threads=threads, readahead=False)
            control = cold_llamacpp(file, ids, (1,), threads=threads, readahead=True)
            engine = cold_engine(ours, ids, Advice.RANDOM, (1,), threads=threads)
        except (BaselineError, CacheStateError) as error:
            return NotMeasurable(str(error))
        if cold.started_bytes < ALL * file.bank_bytes:
            share = cold.started_bytes / file.bank_bytes
            return NotMeasurable(
                f"after start-up {share:.1%} of the experts are in memory: the control does not show all"
            )

        def share_of(name: str, run: ColdRun, resident_bytes: int, method: str) -> Kernel:
            return Kernel(
                method=method,
                inputs={
                    "experts": f"{SHAPE.experts} top-{SHAPE.experts_per_token}, {SHAPE.layers} layers",
                    "engine": name,
                    "threads": threads,
                    "file system": disk["filesystem"],
                    "read_ahead_kb": disk["read_ahead_kb"],
                    "ids": f"uniform, seed {SEED}",
                },
                observations={
                    "resident_bytes": resident_bytes,
                    "bank_bytes": run.bank_bytes,
                    **{f"{key} by token": values for key, values in run.observations().items()},
                },
                reduction=Reduction("ratio", ("resident_bytes", "bank_bytes")),
            )

        theirs = f"llama.cpp {cold.info.version} {cold.info.commit}, back end {cold.info.back_end}"
        mapped = "mincore over its expert tensors; plain mapping, evicted after start-up and verified empty"
        random = f"{mapped}, MADV_RANDOM"
        return {
            **{
                f"after {count} token{'s' if count > 1 else ''}": share_of(theirs, cold.run, size, random)
                for count, size in zip(cold.run.tokens, cold.run.resident_bytes, strict=True)
            },
            "largest difference from the routed bytes": Kernel(
                method=f"{random}; routed experts from llama.cpp's own graph",
                observations=cold.run.observations(),
                reduction=Reduction("max_relative_error", ("resident_bytes", "routed_bytes")),
            ),
            "control: after start-up, nothing evicted": share_of(
                theirs, cold.run, cold.started_bytes, "mincore over its expert tensors, after loading"
            ),
            "control: after 1 token, default readahead": share_of(
                theirs, control.run, control.run.resident_bytes[0], f"{mapped}, MADV_NORMAL"
            ),
            "this engine, the same weights, after 1 token": share_of(
                "cflow", engine, engine.resident_bytes[0], "mincore over the expert bank, MADV_RANDOM"
            ),
        }

    measure(
        produce,
        (
            "Start-up, warm-up and repacking do touch all experts, once; tokens do not.",
            "With MADV_RANDOM, which llama.cpp does not ask for, a fault reads one page: what is used shows. "
            "With readahead more comes in, whichever engine reads: see 1.readahead.",
            "Random weights: a trained model routes otherwise, but to as many experts.",
        ),
    )


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


@pytest.mark.check("2.l1.llamacpp_trace")
def test_row_major_traced(measure: Measure, claims_run: ClaimsRun) -> None:
    names = {PANEL_ROWS: "panels of 8 rows", 1: "plain rows"}

    def produce() -> Found:
        gguf = down_gguf(claims_run.cache)
        tiled = Product(ROWS, COLUMNS, q8=True)
        ours = tiled.simulated().read_misses
        cells: dict[str, Simulated] = {}
        agreement: dict[str, Simulated] = {}
        for panel_rows, name in names.items():
            try:
                counted = traced(gguf, panel_rows)
            except (BaselineError, CachegrindError) as error:
                return NotMeasurable(str(error))
            modelled = Layout(ROWS, COLUMNS, panel_rows).simulated().read_misses
            inputs = {
                "matrix": f"{ROWS} x {COLUMNS}",
                "function": FUNCTIONS[panel_rows],
                "back end": BACK_END,
                "tiled": tiled.kernel.name,
            }
            cells[f"{name} over tiles"] = Simulated(
                method=f"cachegrind --D1={E5_2650.cachegrind()}, D1mr of llama.cpp's function; tiles: {LRU}",
                inputs=inputs,
                observations={"control_read_misses": counted.read_misses, "tiled_read_misses": ours},
                reduction=Reduction("ratio", ("control_read_misses", "tiled_read_misses")),
                geometry=str(E5_2650),
            )
            agreement[f"model over cachegrind, {name}"] = Simulated(
                method=f"model: {METHOD}; cachegrind: D1mr of llama.cpp's function",
                inputs=inputs,
                observations={
                    "model_read_misses": modelled,
                    "cachegrind_read_misses": counted.read_misses,
                },
                reduction=Reduction("ratio", ("model_read_misses", "cachegrind_read_misses")),
                geometry=str(E5_2650),
            )
        return {**cells, **agreement}

    measure(
        produce,
        (
            "The AVX2 back end: valgrind knows no AVX-512.",
            "Its functions widen f16 scales by a table, whose lines the model of the layout lacks.",
            "Addresses of two runs differ by chance.",
        ),
    )
