"""Claim 4: projections that share each activation load, in sessions with fused = 1 and 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from claims.arms import decode_arm, read_whole
from claims.conftest import Measure
from claims.models import synthetic
from claims.recorded import EQUAL_PARTS, GROUPED_QUERIES, TOKENS, recorded_pieces, shared_loads
from claims.run import SEED, ClaimsRun, Found
from claims.timing import digest, open_bench, thread_cells, timed_cells
from engine.enums import Isa, PieceKind
from engine.geometry import Geometry
from engine.kernels import isa_default, isa_supported
from engine.model import Model
from engine.session import Session
from harness.cachesim import E5_2650, AccessCounts
from harness.evidence import Counted, Simulated
from harness.paired import run_pairs
from harness.reductions import Reduction
from harness.rounds import Figure, Side, Timed

ACTIVATIONS = {"f32": 0, "q8": 1}
TIMED_TOKENS = {"quick": 8, "full": 2, "paper": 1}
TIMED_GEOMETRY = {"quick": "arch2_4_combined", "full": "arch2_4_8k_4l", "paper": "arch2_4_8k_16l"}
KERNELS_ONLY = "The matrix kernels alone: preparing activations, attention, norms and sums are not in it."

# form of activations -> fused? -> counts by piece
Runs = Mapping[str, Mapping[bool, Mapping[PieceKind, AccessCounts]]]


def _runs(path: Path) -> Runs:
    return {
        form: {
            fused: recorded_pieces(path, options={"fused": fused, "q8_activations": q8})
            for fused in (True, False)
        }
        for form, q8 in ACTIVATIONS.items()
    }


def _equal_parts(run: ClaimsRun) -> Path:
    return synthetic(run.cache, "equal_parts", EQUAL_PARTS)


def _grouped_queries(run: ClaimsRun) -> Path:
    return synthetic(run.cache, "grouped_queries", GROUPED_QUERIES)


@pytest.mark.check("4.loads")
def test_loads(measure: Measure, claims_run: ClaimsRun) -> None:
    def cell(runs: Runs, piece: PieceKind, part_rows: list[int]) -> Counted:
        fused, unfused = shared_loads(part_rows)
        return Counted(
            method="loads of prepared activations, recorded by the kernels where they load",
            inputs={
                "rows of the parts": ", ".join(map(str, part_rows)),
                "from the shapes": f"{fused} of {unfused} row groups",
                "isa": isa_default().name.lower(),
                "tokens": len(TOKENS),
            },
            observations={
                "activations": list(runs),
                "fused_loads": [one[True][piece].activation_loads for one in runs.values()],
                "unfused_loads": [one[False][piece].activation_loads for one in runs.values()],
            },
            reduction=Reduction("ratio", ("fused_loads", "unfused_loads")),
        )

    def produce() -> Found:
        equal, grouped = _runs(_equal_parts(claims_run)), _runs(_grouped_queries(claims_run))
        d, hidden, expert = EQUAL_PARTS.d_model, EQUAL_PARTS.ffn_hidden, EQUAL_PARTS.expert_hidden
        heads, kv_heads, dim = GROUPED_QUERIES.heads, GROUPED_QUERIES.kv_heads, GROUPED_QUERIES.head_dim
        return {
            "q, k, v of one size": cell(equal, PieceKind.QKV, [d, d, d]),
            "gate, up": cell(equal, PieceKind.GATE_UP, [hidden, hidden]),
            "gate, up of the experts": cell(equal, PieceKind.EXPERT_GATE_UP, [expert, expert]),
            "q, k, v, 9 query heads on 3 (GQA): 36 of 36 + 12 + 12 row groups": cell(
                grouped, PieceKind.QKV, [heads * dim, kv_heads * dim, kv_heads * dim]
            ),
        }

    measure(
        produce,
        (
            KERNELS_ONLY,
            "One worker. More workers split the rows at the same groups, unless a part ends in between.",
        ),
    )


@pytest.mark.check("4.l1")
def test_l1(measure: Measure, claims_run: ClaimsRun) -> None:
    def cell(runs: Runs, piece: PieceKind) -> Simulated:
        def each(fused: bool, field: str) -> list[int]:
            return [getattr(one[fused][piece], field) for one in runs.values()]

        return Simulated(
            method="LRU model fed by the loads and stores of the kernels themselves; reads, hits or not",
            inputs={"isa": isa_default().name.lower(), "tokens": len(TOKENS)},
            observations={
                "activations": list(runs),
                "fused_reads": each(True, "reads"),
                "unfused_reads": each(False, "reads"),
                "fused_read_misses": each(True, "read_misses"),
                "unfused_read_misses": each(False, "read_misses"),
            },
            reduction=Reduction("ratio", ("fused_reads", "unfused_reads")),
            geometry=str(E5_2650),
        )

    def produce() -> Found:
        runs = _runs(_equal_parts(claims_run))
        return {
            "q, k, v of one size": cell(runs, PieceKind.QKV),
            "gate, up": cell(runs, PieceKind.GATE_UP),
        }

    measure(
        produce,
        (
            KERNELS_ONLY,
            "Reads are saved, misses hardly: the slice of the vector is in L1 either way, and weights miss.",
        ),
    )


@pytest.mark.check("4.bytes")
def test_bytes(measure: Measure, claims_run: ClaimsRun) -> None:
    def produce() -> Found:
        fused, unfused, names = [], [], []
        for model, path in (("equal", _equal_parts(claims_run)), ("grouped", _grouped_queries(claims_run))):
            for form, one in _runs(path).items():
                for piece in (PieceKind.QKV, PieceKind.GATE_UP, PieceKind.EXPERT_GATE_UP):
                    if one[True][piece].weight_bytes or one[False][piece].weight_bytes:
                        names.append(f"{model}, {form}, {piece.name.lower()}")
                        fused.append(one[True][piece].weight_bytes)
                        unfused.append(one[False][piece].weight_bytes)
        return Counted(
            method="bytes of codes and scales, recorded by the kernels where they load",
            inputs={"tokens": len(TOKENS)},
            observations={"pieces": names, "fused_bytes": fused, "unfused_bytes": unfused},
            reduction=Reduction("count_unequal", ("fused_bytes", "unfused_bytes")),
        )

    measure(produce, (KERNELS_ONLY,))


@pytest.mark.check("4.equal")
def test_equal(measure: Measure, claims_run: ClaimsRun) -> None:
    def logits(path: Path, isa: Isa, q8: int, threads: int, fused: bool) -> list[str]:
        options = {"isa": int(isa), "q8_activations": q8, "fused": int(fused)}
        with (
            Model(path) as model,
            Session(model, threads=threads, context=len(TOKENS), **options) as session,
        ):
            return [digest(session.decode([token])) for token in TOKENS]

    def produce() -> Found:
        rows: dict[str, list[str]] = {"session": [], "fused": [], "unfused": []}
        paths = {"equal": _equal_parts(claims_run), "grouped": _grouped_queries(claims_run)}
        for name, path in paths.items():
            for isa in filter(isa_supported, Isa):
                for form, q8 in ACTIVATIONS.items():
                    for threads in sorted({1, claims_run.threads}):
                        label = f"{name}, {isa.name.lower()}, {form}, {threads} threads"
                        rows["session"] += [f"{label}, position {at}" for at in range(len(TOKENS))]
                        rows["fused"] += logits(path, isa, q8, threads, True)
                        rows["unfused"] += logits(path, isa, q8, threads, False)
        return Counted(
            method="SHA-256 of the logits of every position, ordinary library",
            inputs={"positions": len(rows["fused"]), "distinct logits": len(set(rows["fused"]))},
            observations=rows,
            reduction=Reduction("count_unequal", ("fused", "unfused")),
        )

    measure(produce)


@pytest.mark.check("4.time")
def test_time(measure: Measure, claims_run: ClaimsRun) -> None:
    def cell(label: str, threads: int) -> Timed:
        name, tokens = TIMED_GEOMETRY[claims_run.profile], TIMED_TOKENS[claims_run.profile]
        path = synthetic(claims_run.cache, name, Geometry.named(name))
        read_whole(path)
        with (
            open_bench(threads) as bench,
            Model(path) as model,
            Session(model, threads=threads, context=tokens, fused=1, read_streams=1) as fused,
            Session(model, threads=threads, context=tokens, fused=0, read_streams=1) as unfused,
        ):
            together = decode_arm("fused", fused, path, 11, tokens, f"{name}, parts share activation loads")
            apart = decode_arm("unfused", unfused, path, 11, tokens, f"{name}, parts one after another")
            # Fusion changes no bit: both arms must give the same ids.
            return run_pairs(
                [together, replace(apart, expected_digest=together.expected_digest)],
                Figure(Side("fused", "speed"), Side("unfused", "speed")),
                bench.probes(),
                control_of="fused",
                seed=SEED,
                rounds=claims_run.rounds("4.time"),
                roof=bench.roof(),
                inputs={"model": name, "tokens": tokens, "threads": threads},
                progress=claims_run.progress(label),
            )

    measure(
        lambda: timed_cells(
            (label, partial(cell, label, threads)) for label, threads in thread_cells(claims_run.threads)
        ),
        (
            "8-bit activations, the engine's default: activation loads are a small part of a kernel's work.",
            "Whole tokens: output, down and head, which are never fused, are in both arms.",
            "One read stream: several runs of rows side by side share activation loads without any fusion.",
        ),
    )
