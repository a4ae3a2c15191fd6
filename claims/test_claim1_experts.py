"""Claim 1, conditional expert loading: addresses loaded, pages that become resident, time saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from claims.arms import decode_arm, read_whole
from claims.cold import cold_engine
from claims.conftest import Measure
from claims.critical_path import BYTES_PER_WEIGHT
from claims.experts import (
    GEMMA_LAYER,
    PAPER_LAYER,
    ExpertBank,
    geometries,
    model_name,
    random_ids,
    routing_entropy,
    text_ids,
    traced_reads,
    words,
)
from claims.models import schedule_session, synthetic
from claims.run import SEED, ClaimsRun
from claims.timing import open_bench, timed_cells
from engine.enums import Advice, Stream
from engine.errors import FileError
from engine.geometry import Geometry
from engine.model import Model
from engine.session import Session
from harness.cachestate import CacheStateError, residency
from harness.evidence import Counted, Derived, Evidence, Kernel
from harness.machine import storage
from harness.paired import Arm, run_pairs
from harness.reductions import Reduction
from harness.rounds import Figure, Sample, Side, Timed
from harness.verdict import NotMeasurable

TRACED_TOKENS = {"smoke": 8, "quick": 16, "full": 48, "paper": 48}
RESIDENT_AFTER = (1, 2, 4, 8)
TIMED_TOKENS = 4
START = 11
IDS = "SmolLM2's ids of claims/text.txt, modulo the vocabulary of 2,048"


def _ids(run: ClaimsRun, source: str, vocab: int, count: int) -> list[int]:
    return text_ids(run.cache, vocab, count) if source == "text" else random_ids(vocab, count)


def _sizes(geometry: Geometry) -> dict[str, int]:
    """What identifies a cell's layer, for its inputs."""
    return {
        "layers": geometry.layers,
        "d": geometry.d_model,
        "experts": geometry.experts,
        "experts per token": geometry.experts_per_token,
        "expert hidden": geometry.expert_hidden,
    }


@pytest.mark.check("1.addresses")
def test_addresses(measure: Measure, claims_run: ClaimsRun) -> None:
    count = TRACED_TOKENS[claims_run.profile]

    def cell(label: str, geometry: Geometry, source: str) -> Evidence | NotMeasurable:
        try:
            ids = _ids(claims_run, source, geometry.vocab, count)
        except FileError as error:
            return NotMeasurable(str(error))
        path = synthetic(claims_run.cache, model_name(label), geometry)
        with Model(path) as model, Session(model, threads=claims_run.threads, context=count) as session:
            bank = ExpertBank(model)
            reads = traced_reads(session, bank, ids)
        share = geometry.experts_per_token * bank.expert_bytes
        return Counted(
            method="distinct addresses of the trace that the workers record where they call the kernel",
            inputs={
                **_sizes(geometry),
                "ids": IDS if source == "text" else f"uniform, seed {SEED}",
                "bank bytes of a layer": geometry.experts * bank.expert_bytes,
                "k / E": geometry.experts_per_token / geometry.experts,
                "routing entropy over log E": routing_entropy([r.routed for r in reads], geometry.experts),
            },
            observations={
                "token": [read.token for read in reads],
                "layer": [read.layer for read in reads],
                "id": [ids[read.token] for read in reads],
                "loaded": [words(read.experts, read.bytes) for read in reads],
                "routed": [words(read.routed, share) for read in reads],
            },
            reduction=Reduction("count_unequal", ("loaded", "routed")),
        )

    measure(
        lambda: {
            f"{label}, {source}": cell(label, geometry, source)
            for label, geometry in geometries(claims_run.profile).items()
            for source in ("text", "random ids")
        },
        limits=[
            "Random weights: a trained model routes otherwise, but to as many experts.",
            "The trace holds what kernels are called with; the pages behind it are in 1.resident.",
        ],
    )


@pytest.mark.check("1.bytes")
def test_bytes(measure: Measure, claims_run: ClaimsRun) -> None:
    def of_a_layer(geometry: Geometry) -> tuple[list[float], list[float]]:
        """MB at 0.5 byte per weight of each piece of the experts of layer 0: routed, and all of them."""
        found = []
        for everything in (False, True):
            with schedule_session(geometry, claims_run.cache, read_all_experts=everything) as session:
                pieces = [p for p in session.schedule() if p.stream is Stream.EXPERT and p.layer == 0]
            found.append([piece.weights * BYTES_PER_WEIGHT / 1e6 for piece in pieces])
        return found[0], found[1]

    def evidence(geometry: Geometry, op: str, of: tuple[str, ...]) -> Derived:
        routed, everything = of_a_layer(geometry)
        return Derived(
            method="weights of the expert pieces that the executor runs in a layer, times 0.5 byte",
            inputs=_sizes(geometry),
            observations={"routed_mb": routed, "all_mb": everything},
            reduction=Reduction(op, of),
        )

    measure(
        lambda: {
            "128 top-8, routed": evidence(GEMMA_LAYER, "sum", ("routed_mb",)),
            "128 top-8, all": evidence(GEMMA_LAYER, "sum", ("all_mb",)),
            "128 top-8, all over routed": evidence(GEMMA_LAYER, "ratio", ("all_mb", "routed_mb")),
            "8 top-2, all over routed": evidence(PAPER_LAYER, "ratio", ("all_mb", "routed_mb")),
        },
        limits=[
            "Arithmetic on the schedule; that the addresses follow it is 1.addresses.",
            "0.5 byte per weight leaves out the scales: stored, q4_0 has 0.5625.",
        ],
    )


# ---- pages ----


def _pages(
    run: ClaimsRun, advice: Advice, after: tuple[int, ...], reduction: Reduction
) -> Callable[[], Mapping[str, Evidence | NotMeasurable]]:
    disk = storage(run.cache)

    def cell(label: str, geometry: Geometry) -> Evidence | NotMeasurable:
        path = synthetic(run.cache, model_name(label), geometry)
        try:
            cold = cold_engine(
                path, random_ids(geometry.vocab, max(after)), advice, after, threads=run.threads
            )
        except CacheStateError as error:
            return NotMeasurable(str(error))
        return Kernel(
            method=f"mincore over the expert bank; file evicted before, MADV_{advice.name}",
            inputs={
                **_sizes(geometry),
                "file system": disk["filesystem"],
                "read_ahead_kb": disk["read_ahead_kb"],
                "ids": f"uniform, seed {SEED}",
            },
            observations=cold.observations(),
            reduction=reduction,
        )

    return lambda: {label: cell(label, geometry) for label, geometry in geometries(run.profile).items()}


@pytest.mark.check("1.resident")
def test_resident(measure: Measure, claims_run: ClaimsRun) -> None:
    reduction = Reduction("max_relative_error", ("resident_bytes", "routed_bytes"))
    measure(
        _pages(claims_run, Advice.RANDOM, RESIDENT_AFTER, reduction),
        limits=[
            "Under MADV_RANDOM a fault reads one page: it shows which pages are used, and loads slowly.",
            "Pages are whole: the last page of each expert counts in full.",
        ],
    )


@pytest.mark.check("1.readahead")
def test_readahead(measure: Measure, claims_run: ClaimsRun) -> None:
    reduction = Reduction("ratio", ("resident_bytes", "routed_bytes"))
    measure(
        _pages(claims_run, Advice.NORMAL, (1,), reduction),
        limits=["How much is read ahead depends on read_ahead_kb and on how the file was opened."],
    )


# ---- time ----


def _warmed(arm: Arm, path: Path) -> Arm:
    """The same arm; pages of the file that the system took away between two samples are read before."""

    def run() -> Sample:
        if residency(path).share < 1.0:
            read_whole(path)
        return arm.run()

    return replace(arm, run=run)


@pytest.mark.check("1.time")
def test_time(measure: Measure, claims_run: ClaimsRun) -> None:
    def cell(label: str, geometry: Geometry) -> Timed:
        path = synthetic(claims_run.cache, model_name(label), geometry)
        read_whole(path)
        threads = claims_run.threads
        with (
            open_bench(threads) as bench,
            Model(path) as model,
            Session(model, threads=threads, context=TIMED_TOKENS) as plain,
            Session(model, threads=threads, context=TIMED_TOKENS, read_all_experts=True) as everything,
        ):
            routed = _warmed(decode_arm("routed", plain, path, START, TIMED_TOKENS), path)
            control = _warmed(decode_arm("all experts", everything, path, START, TIMED_TOKENS), path)
            # The experts that were not chosen are computed with weight 0: both arms must give the same ids.
            return run_pairs(
                [routed, replace(control, expected_digest=routed.expected_digest)],
                Figure(Side("all experts", "time"), Side("routed", "time")),
                bench.probes(),
                control_of="routed",
                seed=SEED,
                rounds=claims_run.rounds("1.time"),
                roof=bench.roof(),
                inputs={
                    **_sizes(geometry),
                    "threads": threads,
                    "E / k": geometry.experts / geometry.experts_per_token,
                    "weights": "page cache through a shared mapping",
                },
                progress=claims_run.progress(label),
            )

    measure(
        lambda: timed_cells(
            (label, partial(cell, label, geometry))
            for label, geometry in geometries(claims_run.profile).items()
        ),
        limits=[
            "A token reads attention, router and head as well: its time falls by less than E / k.",
            "Routed experts that stay in the last-level cache between tokens make it fall by more.",
        ],
    )
