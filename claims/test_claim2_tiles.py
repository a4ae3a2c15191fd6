"""Claim 2: tiles keep the slice of activations in L1-d. Beyond: other control arms, shapes, caches; time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from claims.arms import fill_matrix, gemv_arm
from claims.conftest import Measure
from claims.l1 import METHOD, Product, as_wide_as_the_matrix, kernel_of, ratio
from claims.models import synthetic
from claims.recorded import TOKENS, WIDE_DOWN, recorded_pieces
from claims.run import SEED, ClaimsRun, Found
from claims.timing import Bench, open_bench, thread_cells, timed_cells
from engine.enums import Isa, PieceKind, Type
from engine.kernels import gemv, isa_default, tiles_bytes, unpack_tiles
from engine.probes import Arena
from engine.session import OptionValue
from harness.cachegrind import CachegrindError
from harness.cachesim import E5_2650, CacheGeometry, this_machine
from harness.counters import CounterError, HardwareCounters
from harness.evidence import Evidence, Hardware, Simulated
from harness.machine import caches
from harness.paired import run_pairs
from harness.reductions import Reduction
from harness.rounds import Figure, Side, Timed
from harness.verdict import NotMeasurable

DOWN_ROWS, DOWN_COLUMNS = 8192, 32768
SLICE = Product(1024, DOWN_COLUMNS)
SLICE_LIMIT = "A slice of rows: every row meets the same columns, so the ratio is that of the whole matrix."
MODEL_LIMITS = (
    SLICE_LIMIT,
    "A cache with LRU replacement and nothing else: no prefetcher, no second level, no other process.",
    "What the compiler adds to the kernel's own loads (spills, constants) is not in it; those hit.",
)
ROW_MAJOR = replace(SLICE, rows_per_pass=1)
SAME_PRODUCT = 1e-5
"""Largest relative difference of the products of two arms that compute the same."""
NOT_TOLD = NotMeasurable("the kernel does not tell this machine's L1-d (/sys/devices/system/cpu)")


@pytest.mark.check("2.l1.simulated")
def test_l1_simulated(measure: Measure) -> None:
    measure(lambda: ratio(ROW_MAJOR, SLICE, inputs={"matrix": f"{DOWN_ROWS} x {DOWN_COLUMNS}"}), MODEL_LIMITS)


@pytest.mark.check("2.l1.cachegrind")
def test_l1_cachegrind(measure: Measure, claims_run: ClaimsRun) -> None:
    small = claims_run.profile == "smoke"
    tiled = Product(256, 8192) if small else SLICE
    control = replace(tiled, rows_per_pass=1)

    def produce() -> Found:
        try:
            found = {one: one.cachegrind() for one in (control, tiled)}
        except CachegrindError as error:
            return NotMeasurable(str(error))

        def agreement(product: Product) -> Simulated:
            return Simulated(
                method=f"model: {METHOD}; cachegrind: D1mr of the function of {product.kernel.name}",
                inputs={"product": f"{product.rows} x {product.columns}"},
                observations={
                    "model_read_misses": product.simulated().read_misses,
                    "cachegrind_read_misses": found[product].read_misses,
                },
                reduction=Reduction("ratio", ("model_read_misses", "cachegrind_read_misses")),
                geometry=str(E5_2650),
            )

        return {
            "row-major over tiles": Simulated(
                method=f"valgrind --tool=cachegrind --D1={E5_2650.cachegrind()}; D1mr of each kernel",
                inputs={
                    "slice": f"{tiled.rows} rows x {tiled.columns} columns",
                    "control": control.kernel.name,
                    "tiled": tiled.kernel.name,
                },
                observations={
                    "control_read_misses": found[control].read_misses,
                    "tiled_read_misses": found[tiled].read_misses,
                    "control_reads": found[control].reads,
                    "tiled_reads": found[tiled].reads,
                },
                reduction=Reduction("ratio", ("control_read_misses", "tiled_read_misses")),
                geometry=str(E5_2650),
            ),
            "model over cachegrind, row-major": agreement(control),
            "model over cachegrind, tiles": agreement(tiled),
        }

    measure(
        produce,
        (
            SLICE_LIMIT,
            "AVX2 code: valgrind knows no AVX-512. Addresses of the two runs differ by chance.",
            "valgrind splits wide loads, 32 bytes into four: its reads are not the kernel's, its misses are.",
        ),
    )


@pytest.mark.check("2.l1.hardware")
def test_l1_hardware(measure: Measure, claims_run: ClaimsRun) -> None:
    rows = 1024 if claims_run.profile in ("smoke", "quick") else DOWN_ROWS
    event = "l1d_read_misses"

    def count(product: Product) -> int:
        work = product.work(own_pages=True)
        work()
        with HardwareCounters([event]) as counters:
            work()
        return counters.values[event]

    def produce() -> Found:
        tiled = Product(rows, DOWN_COLUMNS)
        control = replace(tiled, rows_per_pass=1)
        try:
            misses = [count(control), count(tiled)]
        except CounterError as error:
            return NotMeasurable(str(error))
        return Hardware(
            method="perf_event_open, user space, this thread; one product of each after a warm-up",
            inputs={"rows": rows, "columns": DOWN_COLUMNS, "L1-d": str(this_machine() or "not told")},
            observations={"control_read_misses": misses[0], "tiled_read_misses": misses[1]},
            reduction=Reduction("ratio", ("control_read_misses", "tiled_read_misses")),
            events=(event,),
        )

    measure(
        produce,
        (
            "What the event counts differs between processors: some leave out lines that a prefetcher "
            "brought, and row-major reads its vector in sequence.",
            "Preparing the vector is part of both counts: under 1 %.",
        ),
    )


# ---- beyond the paper ----


@pytest.mark.check("2.l1.session")
def test_l1_session(measure: Measure, claims_run: ClaimsRun) -> None:
    def produce() -> Found:
        path = synthetic(claims_run.cache, "wide_down", WIDE_DOWN)
        f32: dict[str, OptionValue] = {"q8_activations": 0, "isa": "avx2"}
        tiled = recorded_pieces(path, TOKENS[:1], options=f32)[PieceKind.DOWN]
        control = recorded_pieces(
            path, TOKENS[:1], options={**f32, "layout": "row_major", "residency": "copy"}
        )[PieceKind.DOWN]
        return Simulated(
            method=METHOD,
            inputs={"down": f"{WIDE_DOWN.d_model} x {WIDE_DOWN.ffn_hidden}", "threads": 1, "tokens": 1},
            observations={
                "control_read_misses": control.read_misses,
                "tiled_read_misses": tiled.read_misses,
                "control_weight_bytes": control.weight_bytes,
                "tiled_weight_bytes": tiled.weight_bytes,
            },
            reduction=Reduction("ratio", ("control_read_misses", "tiled_read_misses")),
            geometry=str(E5_2650),
        )

    measure(produce, MODEL_LIMITS[1:])


@pytest.mark.check("2.l1.here")
def test_l1_here(measure: Measure) -> None:
    here = this_machine()
    measure(lambda: NOT_TOLD if here is None else ratio(ROW_MAJOR, SLICE, here), MODEL_LIMITS)


def _control_arms(tiled: Product, rows_per_pass: Mapping[str, int]) -> Found:
    found = {label: ratio(replace(tiled, rows_per_pass=rows), tiled) for label, rows in rows_per_pass.items()}
    panels = as_wide_as_the_matrix(tiled)
    wide = {"control tile": f"{panels.tile_rows} x {panels.tile_cols}"}
    return {**found, "16-row panels, all columns": ratio(panels, tiled, inputs=wide)}


@pytest.mark.check("2.l1.rows")
def test_l1_rows(measure: Measure) -> None:
    measure(
        lambda: _control_arms(SLICE, {"2 rows": 2, "4 rows": 4, "8 rows": 8}),
        (*MODEL_LIMITS, "The layouts of llama.cpp itself are in 2.l1.llamacpp."),
    )


@pytest.mark.check("2.l1.q8")
def test_l1_q8(measure: Measure) -> None:
    q8 = replace(SLICE, q8=True)
    measure(
        lambda: _control_arms(q8, {"1 row": 1, "2 rows": 2, "4 rows": 4, "8 rows": 8}),
        MODEL_LIMITS,
    )


@pytest.mark.check("2.l1.matrices")
def test_l1_matrices(measure: Measure) -> None:
    columns = {
        "q, k, v, o, gate, up, experts' gate and up: 8,192 columns": 8192,
        "down: 32,768 columns": DOWN_COLUMNS,
        "experts' down: 4,096 columns": 4096,
    }

    def cell(count: int) -> Simulated:
        return ratio(replace(ROW_MAJOR, columns=count), replace(SLICE, columns=count))

    measure(lambda: {label: cell(count) for label, count in columns.items()}, MODEL_LIMITS)


@pytest.mark.check("2.l1.columns")
def test_l1_columns(measure: Measure) -> None:
    here = this_machine()
    kibi = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64)

    def sweep(geometry: CacheGeometry, q8: bool) -> Evidence:
        columns = [1024 * count for count in kibi]
        ratios = []
        for count in columns:
            tiled = Product(256, count, q8=q8)
            control = replace(tiled, rows_per_pass=1).simulated(geometry)
            ratios.append(control.read_misses / tiled.simulated(geometry).read_misses)
        return Simulated(
            method=METHOD,
            inputs={"rows": 256, "activations": "q8" if q8 else "f32"},
            observations={
                "columns": columns,
                "row_major_over_tiles": ratios,
                "columns_with_a_ratio_above_2": [
                    count for count, found in zip(columns, ratios, strict=True) if found > 2
                ],
            },
            reduction=Reduction("min", ("columns_with_a_ratio_above_2",)),
            geometry=str(geometry),
        )

    measure(
        lambda: {
            "f32 activations, E5-2650": sweep(E5_2650, False),
            "8-bit activations, E5-2650": sweep(E5_2650, True),
            "f32 activations, this machine": NOT_TOLD if here is None else sweep(here, False),
        },
        MODEL_LIMITS,
    )


@pytest.mark.check("2.l1.tiles")
def test_l1_tiles(measure: Measure) -> None:
    def produce() -> Found:
        paper = Product(512, DOWN_COLUMNS)
        base = paper.simulated().read_misses
        rows, columns, ratios = [], [], []
        for tile_rows in (16, 32, 64, 128, 256, 512):
            for tile_cols in (64, 128, 256, 512, 1024, 2048, 4096, 8192):
                misses = replace(paper, tile_rows=tile_rows, tile_cols=tile_cols).simulated().read_misses
                rows.append(tile_rows)
                columns.append(tile_cols)
                ratios.append(misses / base)
        return Simulated(
            method=METHOD,
            inputs={"slice": f"{paper.rows} rows x {paper.columns} columns", "misses at 128 x 256": base},
            observations={"tile_rows": rows, "tile_cols": columns, "misses_over_128_x_256": ratios},
            reduction=Reduction("min", ("misses_over_128_x_256",)),
            geometry=str(E5_2650),
        )

    measure(produce, MODEL_LIMITS)


# ---- time ----


def _common_isa() -> Isa:
    """The best instruction set of this machine with a tiled and a row-major kernel for f32 activations."""
    for isa in sorted((found for found in Isa if found <= isa_default()), reverse=True):
        try:
            kernel_of(isa, False, 0), kernel_of(isa, False, 1)
        except KeyError:
            continue
        return isa
    raise AssertionError("the scalar kernels always exist")


def _shape(place: str, threads: int) -> tuple[int, int] | NotMeasurable:
    """Rows and columns of a matrix that stays in L2, in L3, or in neither."""
    sizes = {item["level"]: int(item["size_bytes"]) for item in caches() if item["type"] != "instruction"}
    largest = max(sizes.values(), default=0)
    row_bytes = DOWN_COLUMNS // 32 * 18
    if place == "RAM":
        rows = max(DOWN_ROWS, min(4 * largest // row_bytes, 4 * DOWN_ROWS))
        return rows // 16 * 16, DOWN_COLUMNS
    if place not in ("L2", "L3") or int(place[1]) not in sizes:
        return NotMeasurable(f"the kernel does not tell of an {place} on this machine")
    if place == "L2":  # each worker has its own; the vector must fit beside the rows
        columns = 8192
        per_worker = int(0.6 * sizes[2]) // (columns // 32 * 18) // 16 * 16
        return max(16, per_worker) * threads, columns
    return max(16 * threads, int(0.3 * sizes[3]) // row_bytes // 16 * 16), DOWN_COLUMNS


@pytest.mark.check("2.time")
def test_time(measure: Measure, claims_run: ClaimsRun) -> None:
    isa = _common_isa()
    tiled, row_major = kernel_of(isa, False, 0), kernel_of(isa, False, 1)

    def cell(label: str, place: str, bench: Bench) -> Timed | NotMeasurable:
        shape = _shape(place, bench.pool.threads)
        if isinstance(shape, NotMeasurable):
            return shape
        rows, columns = shape
        size = tiles_bytes(Type.Q4_0, rows, columns)
        repeat = max(1, 16_000_000 // size)
        with Arena(bench.pool, size) as tiles, Arena(bench.pool, size) as blocks:
            fill_matrix(tiles, rows, columns)
            blocks.data()[:size] = unpack_tiles(Type.Q4_0, [rows], columns, tiles.data()[:size])[0].ravel()
            difference = _difference(tiles, blocks, rows, columns, isa)
            if not difference < SAME_PRODUCT:
                raise AssertionError(f"tiles and row-major differ by {difference}, allowed: {SAME_PRODUCT}")
            arms = [
                gemv_arm("tiles", bench.pool, tiles, tiled, rows, columns, repeat, streams=1),
                gemv_arm("row-major", bench.pool, blocks, row_major, rows, columns, repeat),
            ]
            return run_pairs(
                arms,
                Figure(Side("row-major", "time"), Side("tiles", "time")),
                bench.probes(),
                control_of="tiles",
                seed=SEED,
                rounds=claims_run.rounds("2.time"),
                inputs={
                    "tiles": tiled.name,
                    "row-major": row_major.name,
                    "matrix": f"{rows} x {columns}, {size} bytes",
                    "threads": bench.pool.threads,
                    "relative difference of the products": difference,
                },
                progress=claims_run.progress(label),
            )

    def with_bench(label: str, place: str, threads: int) -> Timed | NotMeasurable:
        with open_bench(threads) as bench:
            return cell(label, place, bench)

    measure(
        lambda: timed_cells(
            (label, partial(with_bench, label, place, threads))
            for name, threads in reversed(thread_cells(claims_run.threads))
            for place in ("RAM", "L3", "L2")
            for label in (f"{name}, matrix in {place}",)
        ),
        (
            "The kernels differ in more than their order: tiles need no sum across lanes.",
            "Tiles in one read stream, in the order of the file: several streams are no part of the claim.",
            "Where a matrix stays follows from its size; on a shared machine neighbours take part of L3.",
            "Prefetchers hide much of what the model counts as misses.",
        ),
    )


def _difference(tiles: Arena, blocks: Arena, rows: int, columns: int, isa: Isa) -> float:
    """Norm of the difference of the first rows' products over their norm: the arms compute the same."""
    rows = min(rows, 128)
    size = tiles_bytes(Type.Q4_0, rows, columns)
    x = np.random.default_rng(SEED).standard_normal(columns).astype(np.float32)
    first = gemv(kernel_of(isa, False, 0), tiles.data()[:size], rows, x)
    second = gemv(kernel_of(isa, False, 1), blocks.data()[:size], rows, x)
    return float(np.linalg.norm(first - second) / np.linalg.norm(second))
