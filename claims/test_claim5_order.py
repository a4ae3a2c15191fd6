"""Claim 5, compute-order layout: tiles lie in the order of their use; what that is worth when cold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from claims.conftest import Measure
from claims.experts import text_ids
from claims.file_order import (
    Offsets,
    PlacedTile,
    begun_tiles,
    compared,
    gguf_offsets,
    offsets_of,
    placed_tiles,
    shuffled,
    stream,
    tile_ranges,
)
from claims.models import smollm2, synthetic
from claims.run import SEED, ClaimsRun
from claims.timing import open_bench, timed_cells
from engine.enums import Order
from engine.errors import FileError
from engine.geometry import Geometry
from engine.gguf_source import GgufSource
from engine.model import Model
from engine.session import Session
from engine.smollm2 import gguf_path
from harness.cachestate import CacheStateError, evict, residency
from harness.counters import faults, process_io, run_delay_ns, waited_ns
from harness.evidence import Counted, Evidence, Kernel
from harness.paired import Arm, run_pairs
from harness.readahead import ReadAheadError, block_reads, read_ahead
from harness.reductions import Reduction
from harness.rounds import Figure, Sample, Side, Timed
from harness.verdict import NotMeasurable

COMBINED = "arch2_4_combined"
SMOLLM2 = "SmolLM2-135M-Instruct"
TOKENS = 2
STREAMED = "dense_246m"
SMALL_READ_AHEAD_KIB = 128
FOREIGN_SHARE = 0.01
ORDER_LIMITS = (
    "Norm gains and biases, some kilobytes a layer, are not in the trace.",
    "Inside one call of a fused kernel the tiles of q, k, v (or gate, up) advance side by side.",
    "A tile that a worker comes back to is counted where it began it.",
)


def _order(
    path: Path,
    ids: list[int],
    threads: int,
    delays: tuple[int, int],
    place: Callable[[list[PlacedTile]], Offsets] = offsets_of,
    where: str = "the .cflow file",
) -> Counted:
    """Tiles in the order of the trace, at the offsets that `place` gives them."""
    dd, de = delays
    with Model(path) as model:
        tiles = placed_tiles(model)
        offsets = place(tiles)
        columns: dict[str, list[int]] = {"token": [], "offset": [], "highest_before": []}
        with Session(
            model, threads=threads, context=len(ids), dense_delay=dd, expert_delay=de, read_streams=1
        ) as session:
            for index, token in enumerate(ids):
                own, before = compared(begun_tiles(session, tiles, token), offsets)
                columns["token"] += [index] * len(own)
                columns["offset"] += own
                columns["highest_before"] += before
            phases = session.phase_count
        name = model.name
    return Counted(
        method="first load of each tile in the trace that the workers record where they call the kernel",
        inputs={
            "model": name,
            "delays": f"({dd}, {de})",
            "threads": threads,
            "phases": phases,
            "tiles": len(tiles),
            "ids": ", ".join(map(str, ids)),
            "offsets in": where,
        },
        observations={key: list(values) for key, values in columns.items()},
        reduction=Reduction("fraction_greater", ("offset", "highest_before")),
    )


def _combined(run: ClaimsRun) -> Path:
    return synthetic(run.cache, COMBINED, Geometry.named(COMBINED))


def _smollm2(run: ClaimsRun, produce: Callable[[Path, list[int]], Evidence]) -> Evidence | NotMeasurable:
    """Evidence from SmolLM2 and the first ids of the text, or why there is none."""
    try:
        path = smollm2(run.cache)
        return produce(path, text_ids(run.cache, 1 << 31, TOKENS))
    except FileError as error:
        return NotMeasurable(str(error))


@pytest.mark.check("5.order")
def test_order(measure: Measure, claims_run: ClaimsRun) -> None:
    threads = claims_run.threads
    measure(
        lambda: {
            f"{COMBINED} at (0, 0)": _order(_combined(claims_run), [11, 7454], threads, (0, 0)),
            SMOLLM2: _smollm2(claims_run, lambda path, ids: _order(path, ids, threads, (0, 0))),
        },
        limits=[
            *ORDER_LIMITS,
            "Shared blocks (arch5) are used several times a token: no file order fits all passes.",
        ],
    )


@pytest.mark.check("5.order_control")
def test_order_control(measure: Measure, claims_run: ClaimsRun) -> None:
    threads = claims_run.threads

    def over_gguf(path: Path, ids: list[int]) -> Evidence:
        source = GgufSource(gguf_path())
        return _order(path, ids, threads, (0, 0), lambda tiles: gguf_offsets(tiles, source), "its GGUF file")

    measure(
        lambda: {
            "SmolLM2, order of its GGUF file": _smollm2(claims_run, over_gguf),
            f"{COMBINED}, tiles shuffled": _order(
                _combined(claims_run),
                [11, 7454],
                threads,
                (0, 0),
                lambda tiles: shuffled(offsets_of(tiles), SEED),
                f"a copy with its tiles shuffled, seed {SEED}",
            ),
        },
        limits=["A GGUF file keeps rows whole: a tile is placed where its first weight lies."],
    )


@pytest.mark.check("5.order_delayed")
def test_order_delayed(measure: Measure, claims_run: ClaimsRun) -> None:
    measure(
        lambda: {
            f"{COMBINED} at {delays}": _order(_combined(claims_run), [11, 7454], claims_run.threads, delays)
            for delays in ((1, 2), (1, 0))
        },
        limits=ORDER_LIMITS,
    )


@pytest.mark.check("5.order_staged")
def test_order_staged(measure: Measure, claims_run: ClaimsRun) -> None:
    def staged(order: Order) -> Counted:
        path = synthetic(claims_run.cache, COMBINED, Geometry.named(COMBINED), order=order)
        where = f"the .vflow file, by {order.name.lower()}"
        return _order(path, [11, 7454], claims_run.threads, (1, 2), where=where)

    measure(
        lambda: {
            f"{COMBINED} at (1, 2), by {order.name.lower()}": staged(order)
            for order in (Order.PHASE, Order.KIND)
        },
        limits=ORDER_LIMITS,
    )


# ---- cold storage ----

CAVEAT = "A virtual machine's host keeps caches of its own: cold for this system, perhaps warm for its host."


def _streamed_model(run: ClaimsRun) -> Path:
    return synthetic(run.cache, STREAMED, Geometry.named(STREAMED))


def _cold_passes(run: ClaimsRun, reduction: Reduction, alone: bool) -> dict[str, Evidence | NotMeasurable]:
    """One cold pass in either order, at either readahead. alone: nobody else may have used the disk."""

    def cell(kib: int | None, seed: int | None) -> Evidence | NotMeasurable:
        path = _streamed_model(run)
        with Model(path) as model:
            ranges = tile_ranges(placed_tiles(model), seed)
        try:
            with read_ahead(path.parent, kib) as holds:
                evict(path)
                disk, io, before = block_reads(path.parent), process_io(), faults()
                stream(path, ranges)
                disk_after, io_after, after = block_reads(path.parent), process_io(), faults()
        except (CacheStateError, ReadAheadError) as error:
            return NotMeasurable(str(error))
        if io is None or io_after is None or io_after.device_read_bytes == io.device_read_bytes:
            return NotMeasurable("the kernel does not count the bytes that this process fetches from storage")
        device_bytes = io_after.since(io).device_read_bytes
        requests, disk_bytes = (end - start for end, start in zip(disk_after, disk, strict=True))
        if alone and abs(disk_bytes - device_bytes) > FOREIGN_SHARE * device_bytes:
            return NotMeasurable(
                f"the disk read {disk_bytes} bytes, {device_bytes} of them for this process: others used it"
            )
        return Kernel(
            method="/proc/self/io, getrusage and the disk's stat around one pass over a file evicted before",
            inputs={
                "model": STREAMED,
                "read_ahead_kb": holds,
                "order": "of the file" if seed is None else f"tiles shuffled, seed {seed}",
                "tiles": len(ranges),
            },
            observations={
                "device_bytes": device_bytes,
                "needed_bytes": sum(end - offset for offset, end in ranges),
                "major_faults": after.major - before.major,
                "minor_faults": after.minor - before.minor,
                "disk_kilobytes": disk_bytes / 1000,
                "disk_requests": requests,
            },
            reduction=reduction,
        )

    return {
        f"{order}, {name} readahead": cell(kib, seed)
        for name, kib in (("default", None), ("128 KiB", SMALL_READ_AHEAD_KIB))
        for order, seed in (("in order", None), ("shuffled", SEED))
    }


@pytest.mark.check("5.stream")
def test_stream(measure: Measure, claims_run: ClaimsRun) -> None:
    measure(
        lambda: _cold_passes(claims_run, Reduction("ratio", ("device_bytes", "needed_bytes")), alone=False),
        limits=[
            CAVEAT,
            "RAM is ample: a page read too early is still there when it is needed.",
            "The kilobytes and requests of the disk count all processes.",
        ],
    )


@pytest.mark.check("5.requests")
def test_requests(measure: Measure, claims_run: ClaimsRun) -> None:
    measure(
        lambda: _cold_passes(claims_run, Reduction("ratio", ("disk_kilobytes", "disk_requests")), alone=True),
        limits=[CAVEAT, "Requests of the whole disk, while this process read what the disk read within 1 %."],
    )


@pytest.mark.check("5.stream_time")
def test_stream_time(measure: Measure, claims_run: ClaimsRun) -> None:
    def arm(name: str, path: Path, ranges: list[tuple[int, int]]) -> Arm:
        size = sum(end - offset for offset, end in ranges)

        def run() -> Sample:
            evict(path)
            share = residency(path).share
            before = run_delay_ns()
            taken_ns, total = stream(path, ranges)
            return Sample(
                taken_ns, size, str(total), run_delay_ns=waited_ns(before, run_delay_ns()), resident=share
            )

        return Arm(name, run, run().digest, f"{len(ranges)} tiles, {name}", resident=(0.0, 0.01))

    def cell(label: str, kib: int | None) -> Timed | NotMeasurable:
        path = _streamed_model(claims_run)
        with Model(path) as model:
            tiles = placed_tiles(model)
        try:
            with read_ahead(path.parent, kib) as holds, open_bench(1) as bench:
                in_order = arm("in order", path, tile_ranges(tiles, None))
                mixed = arm("shuffled", path, tile_ranges(tiles, SEED))
                # The same bytes in another order: one sum for both.
                return run_pairs(
                    [in_order, replace(mixed, expected_digest=in_order.expected_digest)],
                    Figure(Side("in order", "bandwidth"), Side("shuffled", "bandwidth")),
                    bench.probes(),
                    control_of="in order",
                    seed=SEED,
                    rounds=claims_run.rounds("5.stream_time"),
                    inputs={"model": STREAMED, "read_ahead_kb": holds, "threads": 1},
                    progress=claims_run.progress(label),
                )
        except (CacheStateError, ReadAheadError) as error:
            return NotMeasurable(str(error))

    measure(
        lambda: timed_cells(
            (
                ("default readahead", lambda: cell("default readahead", None)),
                ("128 KiB readahead", lambda: cell("128 KiB readahead", SMALL_READ_AHEAD_KIB)),
            )
        ),
        limits=[
            CAVEAT,
            "A virtual machine's host works for its disk on stolen time, which voids rounds there.",
            "One thread of Python touches the tiles: its own time is in both arms and draws the ratio to 1.",
        ],
    )
