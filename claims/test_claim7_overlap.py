"""Claim 7, overlap: staged expert reads against reads when needed, and what computing and reading take alone.

Cells aim at a ratio of computing to reading; what they hit is measured (7.overlap_ratio). The rounds of a
cell are measured once; every figure of it looks at the same rounds.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import pytest

from claims.conftest import Measure
from claims.models import synthetic
from claims.overlap import COMPUTE, CPU_COUNTER, STAGED, START, SYNC, refused, routed_bytes
from claims.overlap_grid import (
    COMPUTING,
    DELAYS,
    EMULATED,
    NATIVE,
    READING,
    STORAGE,
    WASHES,
    Cell,
    Grid,
    Measured,
    Wash,
    computed_over_read,
    tier,
)
from claims.overlap_model import BESIDE, SERIAL, Terms, pipeline, scheduled, windows
from claims.overlap_shapes import LAYERS, SMALL, SMALL_WIDTH
from claims.run import ClaimsRun
from claims.timing import timed_cells
from engine.enums import ExpertReads, Reader
from engine.errors import NonFiniteError
from engine.model import Model
from engine.session import OptionValue, Session
from harness.cachestate import CacheStateError, evict
from harness.evidence import Counted, Evidence, Kernel
from harness.reductions import Reduction
from harness.rounds import Figure, Paths, Side, Timed
from harness.verdict import NotMeasurable

CELLS = (*EMULATED, *NATIVE)
TOKENS = 8
NEAR = (0.6, 1.6)
"""C / IO between which the model, 16 steps, promises more than 1.5."""
FAR = (0.05, 20)
"""C / IO up to and from which the model promises less than 1.05."""
GAIN = Figure(Side(SYNC, "time"), Side(STAGED, "time"))
CAVEATS = (
    "An emulated rate holds a read back until a queue of that rate would have served it.",
    "Reads past the page cache: a virtual machine's host may still have the file in its memory (guest-cold, "
    "host-warm).",
    "Random weights: every expert is about equally likely.",
)
FILL = (
    f"A token is {LAYERS} steps, one per layer; nothing is read ahead across tokens, so each token pays one "
    "step to fill the pipeline."
)


def over(subject: str, terms: Terms) -> Figure:
    """Time of an arm over what a model predicts from computing in place and reading alone."""
    return Figure(Side(subject, "time"), Paths(COMPUTING, READING, terms))


@pytest.fixture(scope="module")
def grid(claims_run: ClaimsRun) -> Grid:
    return Grid(claims_run)


View = Callable[[Measured], Figure]


def viewed(
    grid: Grid, check: str, cells: Sequence[Cell | Wash], figure: Figure | View
) -> Mapping[str, Timed | NotMeasurable]:
    """A figure of the rounds of every cell. figure: may depend on the schedule that ran."""

    def one(cell: Cell | Wash) -> Timed | NotMeasurable:
        chosen = figure if isinstance(figure, Figure) else figure(grid.cell(cell, check))
        return grid.view(cell, check, cell.label, chosen)

    return timed_cells((cell.label, partial(one, cell)) for cell in cells)


def small(run: ClaimsRun) -> Model:
    """The small model, not in the page cache."""
    path = synthetic(run.cache, SMALL.name, SMALL.geometry(SMALL_WIDTH))
    evict(path)
    return Model(path)


# ---- outputs and counts ----


@pytest.mark.check("7.overlap_tokens")
def test_tokens(measure: Measure, claims_run: ClaimsRun) -> None:
    def greedy(session: Session) -> list[int]:
        return [int(token) for token in session.generate(START, TOKENS)[0]]

    def tried(session: Session) -> list[int]:
        try:
            return greedy(session)
        except NonFiniteError:
            return [-1] * TOKENS  # no token is that one

    def produce() -> Evidence:
        kinds = (
            (1, claims_run.threads),
            (0, 500_000_000, 2_000_000_000),
            (Reader.IO_URING, Reader.THREADS),
            (ExpertReads.SYNC, ExpertReads.STAGED),
        )
        labels, found, wanted, ran = [], [], [], set()
        with small(claims_run) as model:
            with Session(model, threads=1, context=TOKENS) as session:
                reference = greedy(session)
            for threads, rate, reader, reads in itertools.product(*kinds):
                options: dict[str, OptionValue] = {
                    "threads": threads,
                    "read_rate": rate,
                    "reader": int(reader),
                    "expert_reads": int(reads),
                }
                with Session(model, context=TOKENS, residency="direct", verify="never", **options) as session:
                    found += tried(session)
                    ran.add(Reader(session.options["reader"]).name.lower())
                wanted += reference
                labels.append(f"{threads} threads, {tier(rate)}, {reader.name}, {reads.name}".lower())
        return Counted(
            method="greedy tokens with the experts read from the file, against the mapped file",
            inputs={
                "model": SMALL.name,
                "combinations": len(labels),
                "tokens": TOKENS,
                "readers that ran": ", ".join(sorted(ran)),
            },
            observations={"combination": labels, "token": found, "token_of_the_mapped_file": wanted},
            reduction=Reduction("count_unequal", ("token", "token_of_the_mapped_file")),
        )

    measure(produce, limits=["In every timed round the tokens are compared as well: another one voids it."])


@pytest.mark.check("7.overlap_bytes")
def test_bytes(measure: Measure, claims_run: ClaimsRun) -> None:
    def counted(reads: ExpertReads) -> Evidence | NotMeasurable:
        rows: dict[str, list[int]] = {"device_bytes": [], "asked_bytes": [], "routed_bytes": []}
        with (
            small(claims_run) as model,
            Session(
                model,
                threads=claims_run.threads,
                context=TOKENS,
                residency="direct",
                verify="never",
                expert_reads=int(reads),
            ) as session,
        ):
            reason = refused(session)
            if reason is not None:
                return reason
            token = START
            for _ in range(TOKENS):
                session.reset_counters()
                token = int(np.argmax(session.decode([token])))
                counters = session.counters()
                rows["device_bytes"].append(counters["device_bytes"])
                rows["asked_bytes"].append(counters["asked_bytes"])
                rows["routed_bytes"].append(routed_bytes(model, session.routing()[0][None]))
        return Kernel(
            method="read_bytes of /proc/self/io around each token; its routing and the tables of the file",
            inputs={"model": SMALL.name, "tokens": TOKENS, "storage": STORAGE},
            observations={name: list(values) for name, values in rows.items()},
            reduction=Reduction("count_unequal", ("device_bytes", "routed_bytes")),
        )

    def produce() -> dict[str, Evidence | NotMeasurable]:
        try:
            return {reads.name.lower(): counted(reads) for reads in ExpertReads}
        except CacheStateError as error:
            return {reads.name.lower(): NotMeasurable(str(error)) for reads in ExpertReads}

    measure(produce, limits=["Experts are read in whole pages of 4 KiB."])


@pytest.mark.check("7.overlap_window")
def test_window(measure: Measure, claims_run: ClaimsRun) -> None:
    def window(delay: int) -> Counted:
        with (
            small(claims_run) as model,
            Session(model, threads=1, context=1, residency="direct", expert_delay=delay) as session,
        ):
            found = windows(session.schedule())
        first = found[0]
        last = [int(one.layer >= LAYERS - delay) for one in found]
        return Counted(
            method="exported phases: from the router of a layer to the first use of its experts",
            inputs={"model": SMALL.name, "expert_delay": delay, "layers": LAYERS},
            observations={
                "router_phase": [one.routed for one in found],
                "phase_of_first_use": [one.needed for one in found],
                "window_bytes": [one.bytes for one in found],
                "shorter_than_the_first": [
                    (one.bytes < first.bytes) - (one.bytes > first.bytes) for one in found
                ],
                "among_the_last_expert_delay": last,
            },
            reduction=Reduction("count_unequal", ("shorter_than_the_first", "among_the_last_expert_delay")),
        )

    measure(lambda: {f"expert_delay {delay}": window(delay) for delay in range(4)})


# ---- what decides ----


@pytest.mark.check("7.overlap_sync")
def test_sync(measure: Measure, grid: Grid) -> None:
    measure(lambda: viewed(grid, "7.overlap_sync", EMULATED, over(SYNC, SERIAL)), limits=CAVEATS)


@pytest.mark.check("7.overlap_staged")
def test_staged(measure: Measure, grid: Grid) -> None:
    measure(
        lambda: viewed(grid, "7.overlap_staged", EMULATED, over(STAGED, pipeline(LAYERS))),
        limits=[
            *CAVEATS,
            FILL,
            "C is the time of this arm without what it waited for reads, under concurrent reads; "
            "7.overlap_quiet sets it beside C without any.",
        ],
    )


@pytest.mark.check("7.overlap_gain")
def test_gain(measure: Measure, grid: Grid) -> None:
    def gain(cell: Cell) -> Timed | NotMeasurable:
        check = "7.overlap_gain"
        measured = grid.cell(cell, check).found
        if isinstance(measured, NotMeasurable):
            return measured
        ratio = computed_over_read(measured)
        if ratio is not None and not NEAR[0] <= ratio <= NEAR[1]:
            return NotMeasurable(
                f"C / IO is {ratio:.2f}; near IO is {NEAR[0]} to {NEAR[1]}, no model comes closer"
            )
        return grid.view(cell, check, cell.label, GAIN)

    near = [cell for cell in EMULATED if cell.aim == 1]
    measure(
        lambda: timed_cells((cell.label, partial(gain, cell)) for cell in near),
        limits=[*CAVEATS, FILL],
    )


@pytest.mark.check("7.overlap_wash")
def test_wash(measure: Measure, grid: Grid) -> None:
    def wash(cell: Wash) -> Timed | NotMeasurable:
        measured = grid.cell(cell, "7.overlap_wash").found
        ratio = computed_over_read(measured) if isinstance(measured, Timed) else None
        if ratio is not None and FAR[0] < ratio < FAR[1]:
            return NotMeasurable(
                f"C / IO is {ratio:.2f}; next to nothing is up to {FAR[0]}, or from {FAR[1]}"
            )
        return grid.view(cell, "7.overlap_wash", cell.label, GAIN)

    measure(lambda: timed_cells((cell.label, partial(wash, cell)) for cell in WASHES), limits=CAVEATS)


# ---- recorded ----


@pytest.mark.check("7.overlap_ratio")
def test_ratio(measure: Measure, grid: Grid) -> None:
    measure(
        lambda: viewed(grid, "7.overlap_ratio", (*CELLS, *WASHES), Figure(COMPUTING, READING)),
        limits=["The shape of the model aims at a ratio, out of a few that there are; this is what it hit."],
    )


@pytest.mark.check("7.overlap_speedup")
def test_speedup(measure: Measure, grid: Grid) -> None:
    measure(lambda: viewed(grid, "7.overlap_speedup", CELLS, GAIN), limits=[*CAVEATS, FILL])


@pytest.mark.check("7.overlap_quotient")
def test_quotient(measure: Measure, grid: Grid) -> None:
    effective = Paths(COMPUTING, Side(STAGED, "reading"), BESIDE)
    quotient = Figure(GAIN.subject, GAIN.reference, expected=(Paths(COMPUTING, READING, SERIAL), effective))
    measure(
        lambda: viewed(grid, "7.overlap_quotient", CELLS, quotient),
        limits=[
            *CAVEATS,
            "IO_eff is read as the time in which the staged arm had a read under way, as far as it saw.",
            "The paper's formula has no fill: of 16 steps it promises up to 6 % too much.",
        ],
    )


@pytest.mark.check("7.overlap_native")
def test_native(measure: Measure, grid: Grid) -> None:
    rows = {f"sync, {cell.label}": (cell, over(SYNC, SERIAL)) for cell in NATIVE}
    rows |= {f"staged, {cell.label}": (cell, over(STAGED, pipeline(LAYERS))) for cell in NATIVE}
    check = "7.overlap_native"
    measure(
        lambda: timed_cells(
            (label, partial(grid.view, cell, check, label, figure)) for label, (cell, figure) in rows.items()
        ),
        limits=[
            *CAVEATS[1:],
            "A virtual machine shares the device with others: its speed is not the same in all rounds.",
        ],
    )


@pytest.mark.check("7.overlap_quiet")
def test_quiet(measure: Measure, grid: Grid) -> None:
    measure(
        lambda: viewed(grid, "7.overlap_quiet", CELLS, Figure(COMPUTING, Side(COMPUTE, "time"))),
        limits=["The same schedule, barriers and tokens; the quiet one finds every expert in memory."],
    )


@pytest.mark.check("7.overlap_schedule")
def test_schedule(measure: Measure, grid: Grid) -> None:
    def figure(measured: Measured) -> Figure:
        terms = scheduled(measured.schedule, staged=True) if measured.schedule else SERIAL
        return over(STAGED, terms)

    delayed = [cell for cell in DELAYS if cell not in CELLS]
    measure(
        lambda: viewed(grid, "7.overlap_schedule", [*CELLS, *delayed], figure),
        limits=["Computing is shared out to phases by bytes; barriers and vector work are spread alike."],
    )


@pytest.mark.check("7.overlap_delays")
def test_delays(measure: Measure, grid: Grid) -> None:
    def one(cell: Cell) -> Timed | NotMeasurable:
        return grid.view(cell, "7.overlap_delays", f"expert_delay {cell.expert_delay}", GAIN)

    measure(
        lambda: timed_cells((f"expert_delay {cell.expert_delay}", partial(one, cell)) for cell in DELAYS),
        limits=[*CAVEATS, "expert_delay 0 leaves the phase of the dense FFN as the only window."],
    )


@pytest.mark.check("7.overlap_cpu")
def test_cpu(measure: Measure, grid: Grid) -> None:
    def cost(cell: Cell) -> Evidence | NotMeasurable:
        measured = grid.cell(cell, "7.overlap_cpu").found
        if isinstance(measured, NotMeasurable):
            return measured
        valid = [one.samples for one in measured.rounds if not one.void]
        if not valid:
            return NotMeasurable("no round is valid")
        staged = [samples[STAGED].sample for samples in valid]
        computed = [samples[COMPUTE].sample for samples in valid]
        used = [sample.counters[CPU_COUNTER] / 1e6 for sample in staged]
        quiet = [sample.counters[CPU_COUNTER] / 1e6 for sample in computed]
        return Kernel(
            method="processor time of the process, the staged arm minus the compute-only arm, per GB read",
            inputs=measured.inputs,
            observations={
                "staged_cpu_ms": used,
                "compute_only_cpu_ms": quiet,
                "more_cpu_ms": [more - less for more, less in zip(used, quiet, strict=True)],
                "read_gb": [sample.counters["asked_bytes"] / 1e9 for sample in staged],
            },
            reduction=Reduction("ratio", ("more_cpu_ms", "read_gb")),
        )

    measure(
        lambda: {cell.label: cost(cell) for cell in CELLS},
        limits=["Valid rounds only. With several threads it holds what workers spin while a read is late."],
    )
