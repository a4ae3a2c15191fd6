"""Claim 7, the delay-aware schedule: the paper's law; beyond it path, traffic and time. Never merged."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from claims.arms import decode_arm, read_whole
from claims.conftest import Measure
from claims.critical_path import (
    BYTES_PER_WEIGHT,
    MIB,
    Cost,
    law,
    longest_path,
    name_of,
    nominal_mib,
    stored_mib,
)
from claims.models import schedule_session, synthetic, undelayed
from claims.run import SEED, ClaimsRun, Found
from claims.timing import open_bench, thread_cells, timed_cells
from engine.enums import Type
from engine.geometry import Geometry
from engine.model import Model
from engine.session import Piece, Session
from engine.tiles import block_bytes
from harness.evidence import Counted, Derived
from harness.paired import run_pairs
from harness.reductions import Reduction
from harness.rounds import STREAM_BYTE_COUNTERS, Figure, Side, Timed

COMBINED = "arch2_4_combined"
ARCHITECTURES = ("arch1", COMBINED, "arch2_4_sync", "arch3", "arch4", "arch5")
LAW = "sum over layers of max(attention, dense / (dd + 1), top-k experts / (de + 1)); MiB = 2^20 bytes"
LAYER_COUNTERS = ("attention_bytes", "dense_bytes", "expert_bytes")
# The largest model that a profile has time for; its weights exceed the cache of most machines.
TIMED_GEOMETRY = {"quick": COMBINED, "full": "arch2_4_8k_4l", "paper": "arch2_4_8k_16l"}
TIMED_TOKENS = {"quick": 24, "full": 2, "paper": 1}


def _law_evidence(geometry: Geometry, folder: Path, cost: Cost) -> Derived:
    with schedule_session(geometry, folder) as session:
        found = law(session.schedule(), geometry.dd, geometry.de, cost)
    return Derived(
        method=LAW,
        inputs={"dd": geometry.dd, "de": geometry.de, "layers": geometry.layers},
        observations={
            "attention_mib": found.attention,
            "dense_over_dd_plus_1_mib": found.dense,
            "experts_over_de_plus_1_mib": found.expert,
            "binding_mib": found.binding,
        },
        reduction=Reduction("sum", ("binding_mib",)),
    )


def _law_ratio(geometry: Geometry, folder: Path, cost: Cost) -> Derived:
    with schedule_session(geometry, folder) as session:
        delayed = law(session.schedule(), geometry.dd, geometry.de, cost)
    with schedule_session(undelayed(geometry), folder) as session:
        plain = law(session.schedule(), 0, 0, cost)
    return Derived(
        method=LAW,
        inputs={"dd": geometry.dd, "de": geometry.de},
        observations={"undelayed_binding_mib": plain.binding, "delayed_binding_mib": delayed.binding},
        reduction=Reduction("ratio", ("undelayed_binding_mib", "delayed_binding_mib")),
    )


@pytest.mark.check("7.law")
def test_law(measure: Measure, claims_run: ClaimsRun) -> None:
    folder = claims_run.cache
    measure(
        lambda: {
            "(0, 0) over (1, 2)": _law_ratio(Geometry.named(COMBINED), folder, nominal_mib),
            **{name: _law_evidence(Geometry.named(name), folder, nominal_mib) for name in ARCHITECTURES},
        },
        limits=[
            "A formula, not a measurement: it divides bytes by delays as if all streams ran side by side.",
            "It is neither the dependency path (7.path) nor the traffic (7.traffic) nor the time (7.time).",
        ],
    )


@pytest.mark.check("7.law_stored")
def test_law_stored(measure: Measure, claims_run: ClaimsRun) -> None:
    combined, folder = Geometry.named(COMBINED), claims_run.cache
    measure(
        lambda: {
            "(0, 0) over (1, 2)": _law_ratio(combined, folder, stored_mib),
            COMBINED: _law_evidence(combined, folder, stored_mib),
        }
    )


@pytest.mark.check("7.law_sweep")
def test_law_sweep(measure: Measure, claims_run: ClaimsRun) -> None:
    def sweep() -> Derived:
        columns: dict[str, list[float]] = {
            name: [] for name in ("dd", "de", "ffn_over_d", "expert_over_d", "law_ratio")
        }
        base = undelayed(Geometry.named(COMBINED))
        for ffn in (2, 4, 6.25):
            for expert in (0.5, 1, 2):
                shape = replace(
                    base, ffn_hidden=int(base.d_model * ffn), expert_hidden=int(base.d_model * expert)
                )
                with schedule_session(shape, claims_run.cache) as session:
                    schedule = session.schedule()
                plain = law(schedule, 0, 0).mib
                for dd in range(4):
                    for de in range(4):
                        row = (dd, de, ffn, expert, plain / law(schedule, dd, de).mib)
                        for name, value in zip(columns, row, strict=True):
                            columns[name].append(value)
        return Derived(
            method=LAW,
            inputs={"d": base.d_model, "layers": base.layers},
            observations=columns,
            reduction=Reduction("max", ("law_ratio",)),
        )

    measure(
        lambda: {
            "largest of the sweep, d 512": sweep(),
            "arch2_4_8k_16l at (1, 2)": _law_ratio(
                Geometry.named("arch2_4_8k_16l"), claims_run.cache, nominal_mib
            ),
        }
    )


@pytest.mark.check("7.path")
def test_path(measure: Measure, claims_run: ClaimsRun) -> None:
    def produce() -> Found:
        def ran(dd: int, de: int) -> tuple[list[Piece], int]:
            """The longest path through a token that was decoded, and the phases that it took."""
            with Session(model, threads=1, context=1, dense_delay=dd, expert_delay=de) as session:
                session.decode([11])
                return longest_path(session.schedule()), session.counters()["phases"]

        with Model(synthetic(claims_run.cache, COMBINED, Geometry.named(COMBINED))) as model:
            plain, plain_phases = ran(0, 0)
            delayed, delayed_phases = ran(1, 2)
        return Counted(
            method="longest path through the pieces and dependencies that the executor runs; no head",
            inputs={"model": COMBINED, "phases at (0, 0)": plain_phases, "phases at (1, 2)": delayed_phases},
            observations={
                "path_at_0_0": [name_of(piece) for piece in plain],
                "path_at_0_0_mib": [nominal_mib(piece) for piece in plain],
                "path_at_1_2": [name_of(piece) for piece in delayed],
                "path_at_1_2_mib": [nominal_mib(piece) for piece in delayed],
            },
            reduction=Reduction("ratio", ("path_at_0_0_mib", "path_at_1_2_mib")),
        )

    measure(
        produce, limits=["Bytes on a path say how long it is, not how fast the machine walks it: see 7.time."]
    )


@pytest.mark.check("7.traffic")
def test_traffic(measure: Measure, claims_run: ClaimsRun) -> None:
    tokens = [11, 7454, 2402, 640]

    def counted(name: str, delays: list[tuple[int, int]]) -> dict[str, list[int]]:
        """Bytes of every stream per token, at each pair of delays, for the same tokens."""
        rows: dict[str, list[int]] = {counter: [] for counter in STREAM_BYTE_COUNTERS}
        with Model(synthetic(claims_run.cache, name, Geometry.named(name))) as model:
            for dd, de in delays:
                with Session(
                    model, threads=claims_run.threads, context=8, dense_delay=dd, expert_delay=de
                ) as session:
                    for token in tokens:
                        session.decode([token])
                    counters = session.counters()
                for counter, values in rows.items():
                    assert counters[counter] % len(tokens) == 0
                    values.append(counters[counter] // len(tokens))
        return rows

    def at_half_a_byte(rows: dict[str, list[int]], streams: tuple[str, ...]) -> Counted:
        stored = block_bytes(Type.Q4_0) / 32
        return Counted(
            method="bytes counted by the workers where they call the kernel, times 0.5 / 0.5625",
            inputs={"stored byte per weight": stored},
            observations={
                "stored_bytes": [rows[stream][0] for stream in streams],
                "mib_at_half_a_byte": [
                    rows[stream][0] * BYTES_PER_WEIGHT / stored / MIB for stream in streams
                ],
            },
            reduction=Reduction("sum", ("mib_at_half_a_byte",)),
        )

    def produce() -> Found:
        delays = [(0, 0), (1, 2), (1, 0), (0, 2)]
        rows = counted(COMBINED, delays)
        shared = counted("arch5", [(0, 0)])
        totals = [sum(values) for values in zip(*rows.values(), strict=True)]
        return {
            "(0, 0) over (1, 2)": Counted(
                method="weight bytes per token of all streams, counted by the workers, same tokens",
                inputs={"model": COMBINED, "delays": ", ".join(map(str, delays))},
                observations={
                    "at_0_0_bytes": totals[0],
                    "at_1_2_bytes": totals[1],
                    "all_delays_bytes": totals,
                },
                reduction=Reduction("ratio", ("at_0_0_bytes", "at_1_2_bytes")),
            ),
            f"{COMBINED}, layers": at_half_a_byte(rows, LAYER_COUNTERS),
            f"{COMBINED}, head": at_half_a_byte(rows, ("head_bytes",)),
            "arch5, layers": at_half_a_byte(shared, LAYER_COUNTERS),
        }

    measure(produce, limits=["The f32 router and the one row of the embedding are in the first figure only."])


@pytest.mark.check("7.time")
def test_time(measure: Measure, claims_run: ClaimsRun) -> None:
    def cell(label: str, threads: int) -> Timed:
        name = TIMED_GEOMETRY[claims_run.profile]
        tokens = TIMED_TOKENS[claims_run.profile]
        path = synthetic(claims_run.cache, name, Geometry.named(name))
        read_whole(path)
        with (
            open_bench(threads) as bench,
            Model(path) as model,
            Session(model, threads=threads, context=tokens, dense_delay=0, expert_delay=0) as plain,
            Session(model, threads=threads, context=tokens, dense_delay=1, expert_delay=2) as delayed,
        ):
            return run_pairs(
                [
                    decode_arm("(0, 0)", plain, path, 11, tokens, f"{name}, delays (0, 0)"),
                    decode_arm("(1, 2)", delayed, path, 11, tokens, f"{name}, delays (1, 2)"),
                ],
                Figure(Side("(1, 2)", "speed"), Side("(0, 0)", "speed")),
                bench.probes(),
                control_of="(0, 0)",
                seed=SEED,
                rounds=claims_run.rounds("7.time"),
                roof=bench.roof(),
                inputs={
                    "model": name,
                    "tokens": tokens,
                    "threads": threads,
                    "phases at (0, 0)": plain.phase_count,
                    "phases at (1, 2)": delayed.phase_count,
                    "weights": "page cache through a shared mapping",
                },
                progress=claims_run.progress(label),
            )

    measure(
        lambda: timed_cells(
            (label, partial(cell, label, threads)) for label, threads in thread_cells(claims_run.threads)
        ),
        limits=[
            "Random weights: time depends on bytes and phases, not on what the weights mean.",
            "Part of a model of this size may stay in the last-level cache between tokens.",
        ],
    )
