"""Claim 3: the vector kernels compute what the scalar reference does. Beyond: their speed, and the regime."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from claims.arms import fill_matrix, gemv_arm
from claims.conftest import Measure
from claims.kernel_cases import best_q8_kernel, cases, product, tiled_kernel
from claims.models import smollm2
from claims.run import SEED, ClaimsRun, Found, isa_cells
from claims.timing import (
    Bench,
    calibrated,
    digest,
    longest_wait_ns,
    open_bench,
    thread_cells,
    timed_cells,
)
from engine.enums import Isa, Type
from engine.kernels import isa_default, tiles_bytes
from engine.model import Model
from engine.probes import Arena
from engine.session import Session
from engine.tokenizer import Tokenizer
from harness.evidence import Counted, Evidence
from harness.machine import last_level_cache_bytes
from harness.paired import Arm, Progress, run_pairs
from harness.reductions import Reduction
from harness.rounds import Figure, Sample, Side, Timed
from harness.verdict import NotMeasurable

QUANTISED = (Type.Q4_0, Type.Q4_1, Type.Q8_0)
PROMPT = "The capital of France is"
NEW_TOKENS = 12
VECTOR_SETS = ("avx2", "avx512", "avx512vnni", "neondot")
NOT_FINITE = 1e300


def _fingerprints(isa: Isa) -> dict[str, str]:
    """Digest of every product with 8-bit activations, by matrix."""
    found = {}
    for kind in QUANTISED:
        kernel = tiled_kernel(kind, True, isa)
        assert kernel is not None
        for case in cases(kind):
            found[f"{kind.name.lower()} {case.name}"] = digest(product(kernel, case))
    return found


@pytest.mark.check("3.agree_q8")
def test_agree_q8(measure: Measure) -> None:
    def produce() -> Found:
        scalar = _fingerprints(Isa.SCALAR)

        def cell(name: str, isa: Isa) -> Evidence:
            return Counted(
                method="SHA-256 of each product, compared with the scalar kernel's",
                inputs={
                    "matrices": len(scalar),
                    "weights": "q4_0, q4_1, q8_0; random and adversarial scales",
                },
                observations={
                    "matrix": list(scalar),
                    "scalar": list(scalar.values()),
                    name: list(_fingerprints(isa).values()),
                },
                reduction=Reduction("count_unequal", ("scalar", name)),
            )

        return isa_cells(VECTOR_SETS, cell)

    measure(produce)


@pytest.mark.check("3.agree_f32")
def test_agree_f32(measure: Measure) -> None:
    def cell(_: str, isa: Isa) -> Evidence:
        names, errors = [], []
        for kind in Type:
            kernel = tiled_kernel(kind, False, isa)
            if kernel is None:
                continue
            for case in cases(kind):
                scale = float(np.linalg.norm(case.exact)) or 1.0
                names.append(f"{kind.name.lower()} {case.name}")
                error = float(np.linalg.norm(product(kernel, case) - case.exact)) / scale
                # A product that is not finite is wrong, and must be told from one that was not measured.
                errors.append(error if np.isfinite(error) else NOT_FINITE)
        return Counted(
            method="norm of (product - float64 product of the same weights) over the norm of the latter",
            inputs={"matrices": len(names)},
            observations={"matrix": names, "relative_error": errors},
            reduction=Reduction("max", ("relative_error",)),
        )

    measure(lambda: isa_cells(("avx2", "scalar", "avx512", "neondot"), cell))


@pytest.mark.check("3.tokens")
def test_tokens(measure: Measure, claims_run: ClaimsRun) -> None:
    def produce() -> Found:
        with Model(smollm2(claims_run.cache)) as model:
            json = model.tokenizer_json
            assert json is not None
            tokenizer = Tokenizer.from_json(json)
            prompt = tokenizer.encode(PROMPT)

            def continuation(isa: Isa) -> list[int]:
                with Session(model, threads=claims_run.threads, isa=isa, context=64) as session:
                    first = int(np.argmax(session.decode(prompt)))
                    return [first, *(int(token) for token in session.generate(first, NEW_TOKENS - 1)[0])]

            scalar = continuation(Isa.SCALAR)

            def cell(name: str, isa: Isa) -> Evidence:
                return Counted(
                    method="greedy ids, 8-bit activations, f16 KV cache",
                    inputs={
                        "model": model.name,
                        "prompt": PROMPT,
                        "scalar continues": tokenizer.decode(scalar),
                    },
                    observations={"scalar": scalar, name: continuation(isa)},
                    reduction=Reduction("count_unequal", ("scalar", name)),
                )

            return isa_cells(VECTOR_SETS, cell)

    measure(produce)


# ---- speed ----


@pytest.mark.check("3.speed")
def test_speed(measure: Measure, claims_run: ClaimsRun) -> None:
    rows, columns = 256, 1024  # 147 KB: inside any L2, outside L1

    def produce() -> Found:
        with open_bench(1) as bench, Arena(bench.pool, tiles_bytes(Type.Q4_0, rows, columns)) as arena:
            fill_matrix(arena, rows, columns)
            fast, slow = best_q8_kernel(isa_default()), best_q8_kernel(Isa.SCALAR)
            arms = [
                gemv_arm("vector", bench.pool, arena, fast, rows, columns, 400),
                gemv_arm("scalar", bench.pool, arena, slow, rows, columns, 20),
            ]
            return run_pairs(
                arms,
                Figure(Side("scalar", "time"), Side("vector", "time")),
                bench.probes(),
                control_of="vector",
                seed=SEED,
                rounds=claims_run.rounds("3.speed"),
                inputs={
                    "vector": fast.name,
                    "scalar": slow.name,
                    "matrix": f"{rows} x {columns}",
                    "threads": 1,
                },
                progress=claims_run.progress(),
            )

    measure(produce)


@pytest.mark.check("3.roof")
def test_roof(measure: Measure, claims_run: ClaimsRun) -> None:
    columns = 8192 if claims_run.profile == "smoke" else 32768

    size, cache = tiles_bytes(Type.Q4_0, 8192, columns), last_level_cache_bytes()

    def cell(label: str, threads: int) -> Timed | NotMeasurable:
        if claims_run.profile != "smoke" and size < 2 * cache:
            return NotMeasurable(
                f"the matrix of {size} bytes is less than twice the last-level cache of {cache}"
            )
        with open_bench(threads) as bench, Arena(bench.pool, size) as matrix:
            fill_matrix(matrix, 8192, columns)
            kernel = best_q8_kernel(isa_default())
            return run_pairs(
                [gemv_arm("gemv", bench.pool, matrix, kernel, 8192, columns, 2)],
                Figure(Side("gemv", "bandwidth"), "roof"),
                bench.probes(),
                control_of="gemv",
                seed=SEED,
                rounds=claims_run.rounds("3.roof"),
                roof=bench.roof(),
                inputs={"kernel": kernel.name, "matrix": f"8192 x {columns}", "threads": threads},
                progress=claims_run.progress(label),
            )

    measure(
        lambda: timed_cells(
            (label, partial(cell, label, threads)) for label, threads in thread_cells(claims_run.threads)
        ),
        limits=["A matrix that fits in the last-level cache reads faster than RAM: compare the sizes."],
    )


@pytest.mark.check("0.regime")
def test_regime(measure: Measure, claims_run: ClaimsRun) -> None:
    def produce() -> Found:
        with open_bench(claims_run.threads) as bench:
            return regime(bench, claims_run.rounds("0.regime"), claims_run.progress())

    measure(
        produce,
        limits=[
            "f32 multiply-adds of the widest vectors: integer dot products do more per second.",
            "Decode does 4 FLOP per byte of 4-bit codes, 3.56 with their scales counted.",
        ],
    )


def regime(bench: Bench, wanted: int, progress: Progress | None = None) -> Timed:
    """FLOP/s over bytes/s of the same workers. wanted: valid rounds."""
    pool, arena, isa = bench.pool, bench.arena, isa_default()
    iterations = calibrated(lambda count: pool.flops(isa, count)[1], 20_000_000)
    roof = bench.roof()
    best = max(range(len(roof.patterns)), key=lambda i: roof.patterns[i].bytes / min(roof.patterns[i].ns))

    def flops() -> Sample:
        before = pool.run_delays_ns()
        operations, elapsed = pool.flops(isa, iterations)
        delay = longest_wait_ns(before, pool.run_delays_ns())
        return Sample(elapsed, 0, str(operations), work=operations, run_delay_ns=delay)

    def read() -> Sample:
        before = pool.run_delays_ns()
        elapsed, total = arena.read(best)
        delay = longest_wait_ns(before, pool.run_delays_ns())
        return Sample(elapsed, arena.size_bytes, str(total), run_delay_ns=delay)

    arms = [
        Arm(
            "flops",
            flops,
            flops().digest,
            f"{iterations} rounds of independent multiply-adds, {isa.name.lower()}",
        ),
        Arm("read", read, read().digest, f"{roof.patterns[best].name}, {arena.size_bytes} bytes"),
    ]
    return run_pairs(
        arms,
        Figure(Side("flops", "speed"), Side("read", "bandwidth")),
        bench.probes(),
        control_of="read",
        seed=SEED,
        rounds=wanted,
        roof=roof,
        inputs={"isa": isa.name.lower(), "threads": pool.threads},
        progress=progress,
    )


@pytest.mark.skipif(
    "not config.getoption('--benchmark-only', default=False)", reason="run with --benchmark-only"
)
@pytest.mark.parametrize("isa", list(Isa), ids=lambda isa: isa.name.lower())
@pytest.mark.parametrize("kind", QUANTISED, ids=lambda kind: kind.name.lower())
def test_microbenchmark(benchmark: object, kind: Type, isa: Isa) -> None:
    """Products per second of each kernel on the largest case, by pytest-benchmark; a map, no verdict."""
    kernel = tiled_kernel(kind, True, isa)
    if kernel is None or not kernel.supported:
        pytest.skip(f"no {isa.name.lower()} kernel runs here")
    case = next(case for case in cases(kind) if case.name == "384 x 2048")
    result = benchmark(product, kernel, case)  # type: ignore[operator]
    assert result.shape == (case.rows,)
