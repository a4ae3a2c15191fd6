"""Claim 6, explicit PREFETCHT0: what hints do where storage is the limit; beyond it where RAM is."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from claims.arms import decode_arm, read_whole, stored_arm
from claims.cold import cold_engine
from claims.conftest import Measure
from claims.experts import geometries, model_name, random_ids
from claims.hint_map import FEW, MANY, gains, map_cell, sentence
from claims.hints import (
    HINT_NAMES,
    HINTS,
    PAPER,
    SCALED,
    bank_and_active_bytes,
    hint_cold,
    hinted_tokens,
    walk_arm,
)
from claims.kernel_cases import best_q8_kernel
from claims.models import synthetic
from claims.overlap import refused
from claims.run import SEED, ClaimsRun, Found
from claims.timing import open_bench, thread_cells, timed_cells
from engine.enums import Advice, Ahead
from engine.geometry import Geometry
from engine.kernels import isa_default
from engine.model import Model
from engine.probes import MIB
from engine.session import OptionValue, Session
from harness.cachestate import CacheStateError
from harness.evidence import Counted, Derived, Evidence, Kernel
from harness.machine import last_level_cache_bytes
from harness.paired import alike, run_pairs
from harness.reductions import Reduction
from harness.rounds import Figure, Side, Timed
from harness.verdict import NotMeasurable

COMBINED = "arch2_4_combined"
EXPERTS = "8 top-2"
HINTED_OFFSET = 16 * MIB
"""Past what opening a file reads ahead."""
HINTED_BYTES = 32 * MIB
TIER_BYTES_PER_S = 500_000_000
"""The paper's SATA desktop, emulated by waiting."""
SHORT_TOKENS = 2
"""Of a round: the shorter a round, the fewer lose a tick of the clock to the host and are void."""
CAVEAT = "A virtual machine's host keeps caches of its own: cold for this system, perhaps warm for its host."


def _combined(run: ClaimsRun) -> Path:
    return synthetic(run.cache, COMBINED, Geometry.named(COMBINED))


# ---- the mechanism ----


@pytest.mark.check("6.hint_reads")
def test_hints_read_nothing(measure: Measure, claims_run: ClaimsRun) -> None:
    def produce() -> Found:
        try:
            found = {
                hint: hint_cold(_combined(claims_run), HINTED_OFFSET, HINTED_BYTES, hint) for hint in HINTS
            }
        except CacheStateError as error:
            return dict.fromkeys(labels, NotMeasurable(str(error)))
        seen = {hint: one for hint, one in found.items() if one is not None}
        if len(seen) < len(found) or any(one.counted_bytes == 0 for one in seen.values()):
            reason = "the kernel does not count the bytes that this process fetches from storage"
            return dict.fromkeys(labels, NotMeasurable(reason))
        columns: dict[str, list[int] | list[str]] = {
            "hint": [HINT_NAMES[hint] for hint in seen],
            "hints": [one.hints for one in seen.values()],
            "device_bytes": [one.device_bytes for one in seen.values()],
            "pages": [one.pages for one in seen.values()],
            "faults": [one.faults for one in seen.values()],
            "device_bytes_when_read": [one.read_bytes for one in seen.values()],
        }
        return {
            label: Kernel(
                method="/proc/self/io, mincore and getrusage around hints at every line of a cold mapping",
                inputs={"model": COMBINED, "offset": HINTED_OFFSET, "bytes": HINTED_BYTES},
                observations=columns,
                reduction=Reduction("sum", (column,)),
            )
            for label, column in labels.items()
        }

    labels = {
        "bytes from storage": "device_bytes",
        "pages brought into memory": "pages",
        "page faults": "faults",
    }
    measure(
        produce,
        limits=["A hint for an absent page ends in the processor: the kernel is not entered.", CAVEAT],
    )


@pytest.mark.check("6.hint_places")
def test_hints_go_to_the_experts(measure: Measure, claims_run: ClaimsRun) -> None:
    geometry = geometries("smoke")[EXPERTS]

    def cell(which: str) -> Counted:
        path = synthetic(claims_run.cache, model_name(EXPERTS), geometry)
        with (
            Model(path) as model,
            Session(model, threads=claims_run.threads, context=8, expert_hints=which) as session,
        ):
            found = hinted_tokens(session, model, random_ids(geometry.vocab, 4), which == "linear")
            counted = session.counters()["hints"]
        return Counted(
            method="distinct lines of the ranges in the trace, recorded where the hints are given",
            inputs={"model": "2 layers, 8 experts top-2", "hints": which, "counted": counted},
            observations={
                "wrong": [int(not one.right) for one in found],
                "lines": [one.lines for one in found],
                "lines_of_the_experts": [one.wanted for one in found],
                "lines_elsewhere": [one.elsewhere for one in found],
            },
            reduction=Reduction("sum", ("wrong",)),
        )

    measure(lambda: {which: cell(which) for which in ("linear", "conditional")})


@pytest.mark.check("6.walk_reads")
def test_a_walk_over_cold_experts_reads_nothing(measure: Measure, claims_run: ClaimsRun) -> None:
    profile = "smoke" if claims_run.profile == "smoke" else "quick"
    geometry = geometries(profile)[EXPERTS]

    def cell(which: str) -> Evidence | NotMeasurable:
        name = model_name(EXPERTS)
        path = synthetic(claims_run.cache, name, geometry)
        counts = (1, 2, 4)
        try:
            run = cold_engine(
                path,
                random_ids(geometry.vocab, max(counts)),
                Advice.RANDOM,
                counts,
                threads=claims_run.threads,
                expert_hints=which,
            )
        except CacheStateError as error:
            return NotMeasurable(str(error))
        return Kernel(
            method="mincore over the expert bank after tokens from a cold mapping",
            inputs={"model": name, "hints": which, "bank_bytes": run.bank_bytes},
            observations=run.observations(),
            reduction=Reduction("max_relative_error", ("resident_bytes", "routed_bytes")),
        )

    measure(
        lambda: {which: cell(which) for which in ("none", "linear", "conditional")},
        limits=["Whole pages count; the kernel's readahead is off (MADV_RANDOM).", CAVEAT],
    )


# ---- time, storage as the limit ----


@pytest.mark.check("6.time")
def test_time_of_direct_reads(measure: Measure, claims_run: ClaimsRun) -> None:
    def produce() -> Found:
        options: dict[str, OptionValue] = {
            "threads": 1,
            "context": SHORT_TOKENS,
            "residency": "direct",
            "verify": "never",
            "read_rate": TIER_BYTES_PER_S,
        }
        with (
            open_bench(1) as bench,
            Model(_combined(claims_run)) as model,
            Session(model, expert_reads="sync", **options) as off,
            Session(model, expert_reads="sync", prefetch_hint="t0", **options) as on,
            Session(model, expert_reads="staged", **options) as early,
        ):
            reason = refused(off)
            if reason is not None:
                return reason
            return run_pairs(
                alike(
                    [
                        stored_arm("off", off, 11, SHORT_TOKENS, "no hint"),
                        stored_arm("T0", on, 11, SHORT_TOKENS, "PREFETCHT0 4 KiB ahead in every kernel"),
                        stored_arm(
                            "staged", early, 11, SHORT_TOKENS, "no hint, each read begun when it is known"
                        ),
                    ]
                ),
                Figure(Side("T0", "speed"), Side("off", "speed")),
                bench.probes(),
                control_of="off",
                seed=SEED,
                rounds=claims_run.rounds("6.time"),
                inputs={
                    "model": COMBINED,
                    "threads": 1,
                    "tier": f"emulated, {TIER_BYTES_PER_S} bytes/s",
                    "tokens": SHORT_TOKENS,
                },
                progress=claims_run.progress(),
            )

    measure(
        produce,
        limits=[
            "The tier is emulated: real reads whose ends are held back to its rate.",
            "On the disk as it is, over a mapping: 6.time_mapping.",
        ],
    )


@pytest.mark.check("6.time_mapping")
def test_time_over_a_cold_mapping(measure: Measure, claims_run: ClaimsRun) -> None:
    def cell(label: str, advice: Advice, size: int, block: int) -> Timed | NotMeasurable:
        path = _combined(claims_run)
        try:
            with open_bench(1) as bench:
                return run_pairs(
                    alike(
                        [
                            walk_arm(path, HINTED_OFFSET, size, block, advice, ahead)
                            for ahead in (Ahead.NONE, Ahead.T0, Ahead.WILLNEED)
                        ]
                    ),
                    Figure(Side("T0", "speed"), Side("NONE", "speed")),
                    bench.probes(),
                    control_of="NONE",
                    seed=SEED,
                    rounds=claims_run.rounds("6.time_mapping", label),
                    inputs={"model": COMBINED, "bytes": size, "block_bytes": block, "advice": advice.name},
                    progress=claims_run.progress(label),
                )
        except CacheStateError as error:
            return NotMeasurable(str(error))

    measure(
        lambda: timed_cells(
            (
                (label, partial(cell, label, advice, size, block))
                for label, advice, size, block in (
                    ("no readahead", Advice.RANDOM, 2 * MIB, MIB // 4),
                    ("the kernel's readahead", Advice.NORMAL, 32 * MIB, MIB),
                )
            )
        ),
        limits=[
            CAVEAT,
            "Where the kernel reads ahead by itself, WILLNEED has little to add: recorded alone.",
            "A disk that repeats itself within 2 % is needed, or many rounds.",
        ],
    )


# ---- hints over the experts, in RAM ----


@pytest.mark.check("6.expert_walk")
def test_time_of_walking_the_experts(measure: Measure, claims_run: ClaimsRun) -> None:
    whole = claims_run.profile == "paper"
    name, geometry = ("arch2_4_8k_16l", PAPER) if whole else ("wide_1k_16l", SCALED)
    tokens = 1 if whole else SHORT_TOKENS
    bank, active = bank_and_active_bytes(geometry)

    def cell(which: str, stride: int) -> Timed:
        path = synthetic(claims_run.cache, name, geometry)
        read_whole(path)
        with (
            open_bench(claims_run.threads, huge=False) as bench,
            Model(path) as model,
            Session(model, threads=claims_run.threads, context=tokens) as off,
            Session(
                model,
                threads=claims_run.threads,
                context=tokens,
                expert_hints=which,
                expert_hint_stride=stride,
            ) as on,
        ):
            arms = [
                decode_arm("off", off, path, 11, tokens, "no hint"),
                decode_arm("hints", on, path, 11, tokens, f"{which}, every {stride} bytes"),
            ]
            return run_pairs(
                alike(arms),
                Figure(Side("hints", "speed"), Side("off", "speed")),
                bench.probes(),
                control_of="off",
                seed=SEED,
                rounds=claims_run.rounds("6.expert_walk"),
                inputs={
                    "model": name,
                    "threads": claims_run.threads,
                    "bank_bytes": bank,
                    "active_bytes": active,
                    "bank_over_active": bank / active,
                    "hints_per_token": on.counters()["hints"] / tokens,
                },
                progress=claims_run.progress(f"{which}, every {stride} B"),
            )

    measure(
        lambda: timed_cells(
            (f"{which}, every {text}", partial(cell, which, stride))
            for which in ("linear", "conditional")
            for stride, text in ((64, "64 B"), (4096, "4 KiB"))
        ),
        limits=[
            "Weights lie in the page cache, on pages of 4 KiB, as in the paper's engine.",
            "Each worker hints at its share when the router of a layer has decided; the paper does not say "
            "which thread walked, and when.",
        ],
    )


# ---- RAM as the limit ----

MAP_LIMITS = (
    "Exploratory: no verdict; the figure is that of PREFETCHT0 4 KiB ahead, every arm is in the rounds.",
)


@pytest.mark.check("6.map")
def test_map(measure: Measure, claims_run: ClaimsRun) -> None:
    kernel, cache = best_q8_kernel(isa_default()), last_level_cache_bytes()

    def cell(label: str, threads: int) -> Timed | NotMeasurable:
        wanted, progress = claims_run.rounds("6.map"), claims_run.progress(label)
        return map_cell(kernel, cache, FEW, wanted, progress, threads=threads)

    measure(
        lambda: timed_cells(
            (label, partial(cell, label, threads)) for label, threads in thread_cells(claims_run.threads)
        ),
        limits=MAP_LIMITS,
    )


@pytest.mark.check("6.map_large")
def test_large_map(measure: Measure, claims_run: ClaimsRun) -> None:
    kernel, cache = best_q8_kernel(isa_default()), last_level_cache_bytes()

    def cell(label: str, threads: int, huge: bool, streams: int) -> Timed | NotMeasurable:
        wanted, progress = claims_run.rounds("6.map_large"), claims_run.progress(label)
        return map_cell(kernel, cache, MANY, wanted, progress, threads=threads, huge=huge, streams=streams)

    measure(
        lambda: timed_cells(
            (label, partial(cell, label, threads, huge, streams))
            for name, threads in thread_cells(claims_run.threads)
            for pages, huge in (("2 MiB", True), ("4 KiB", False))
            for streams in (1, 4)
            for label in (f"{name}, {pages} pages, {streams} stream{'s' if streams > 1 else ''}",)
        ),
        limits=MAP_LIMITS,
    )


@pytest.mark.check("6.ram")
def test_what_the_map_says(measure: Measure, claims_run: ClaimsRun) -> None:
    def produce() -> Found:
        records = [claims_run.recorder.record(name) for name in ("6.map_large", "6.map")]
        record = next((one for one in records if one is not None and gains(one)), None)
        if record is None:
            return NotMeasurable("6.map was not measured in this run")
        found = gains(record)
        every = [gain for cell in found.values() for gain in cell]
        return Derived(
            method="median over the valid rounds of the time without a hint over the time with it",
            inputs={"of": record["id"], "what the data support": sentence(found)},
            observations={
                "cell": [gain.cell for gain in every],
                "hint": [gain.arm for gain in every],
                "speed": [gain.median for gain in every],
                "low": [gain.low for gain in every],
                "high": [gain.high for gain in every],
            },
            reduction=Reduction("max", ("speed",)),
        )

    measure(
        produce,
        limits=["Intervals of 95 % each: of so many hints the best one looks better than it is."],
    )
