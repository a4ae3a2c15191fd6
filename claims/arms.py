"""Arms of timed checks: products of one matrix, and decoding with one session."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from claims.run import SEED
from claims.timing import digest, longest_wait_ns
from engine.enums import Prefetch, Type
from engine.kernels import TILE_COLS, TILE_ROWS, Kernel, tiles_bytes
from engine.native import check, lib
from engine.probes import READ_STREAMS, Arena, Pool
from engine.session import Session
from engine.tiles import BLOCK_COLUMNS
from harness.cachestate import residency
from harness.paired import Arm
from harness.rounds import STREAM_BYTE_COUNTERS, Sample, weight_bytes

DECODE_COUNTERS: Final = (*STREAM_BYTE_COUNTERS, "barrier_ns", "vector_ns", "phases")
"""Engine counters that a decoding sample keeps."""
IO_COUNTERS: Final = ("asked_bytes", "device_bytes", "io_wait_ns", "read_ns")
STORAGE_COUNTERS: Final = (*DECODE_COUNTERS, *IO_COUNTERS)
"""Those of a sample whose weights come from the file while it decodes."""


def fill_matrix(arena: Arena, rows: int, columns: int) -> int:
    """Seeded random q4_0 tiles at the start of the arena; their bytes. rows: of whole groups; columns: of
    whole tiles.
    """
    size = tiles_bytes(Type.Q4_0, rows, columns)
    groups = rows // 16 * (columns // TILE_COLS)
    assert rows % 16 == 0 and columns % TILE_COLS == 0
    check(
        lib().cflow_fill_groups(
            Type.Q4_0,
            SEED,
            0,
            groups,
            TILE_COLS // BLOCK_COLUMNS,
            columns**-0.5,
            arena.data().ctypes.data,
            size,
        )
    )
    return size


def gemv_arm(
    name: str,
    pool: Pool,
    arena: Arena,
    kernel: Kernel,
    rows: int,
    columns: int,
    repeat: int,
    streams: int = READ_STREAMS,
    hint: Prefetch = Prefetch.NONE,
    distance_bytes: int = 4096,
) -> Arm:
    """An arm that multiplies the arena's matrix `repeat` times; its output is checked every time.

    rows: a multiple of 16, so that tiles and rows of GGUF blocks have the same bytes. streams: runs of rows
    that a tiled kernel reads side by side. hint, distance_bytes: what it prefetches, and how far ahead.
    """
    x = np.random.default_rng(SEED).standard_normal(columns).astype(np.float32)
    y = np.zeros(rows, np.float32)
    size = tiles_bytes(Type.Q4_0, rows, columns, TILE_ROWS, TILE_COLS)

    def run() -> Sample:
        before = pool.run_delays_ns()
        elapsed = sum(
            arena.gemv(kernel, rows, x, y, streams=streams, hint=hint, distance_bytes=distance_bytes)
            for _ in range(repeat)
        )
        delay = longest_wait_ns(before, pool.run_delays_ns())
        return Sample(elapsed, size * repeat, digest(y), work=repeat, run_delay_ns=delay)

    expected = run().digest
    return Arm(name, run, expected, f"{kernel.name}, {rows} x {columns}, {repeat} products")


def decode_sample(
    session: Session,
    start: int,
    tokens: int,
    *,
    keep: Sequence[str] = DECODE_COUNTERS,
    resident: float | None = None,
) -> Sample:
    """Decodes `tokens` tokens greedily after `start`, from an empty context; their digest is the output.

    keep: engine counters in the sample. resident: share of the file in memory beforehand.
    """
    session.reset()
    session.reset_counters()
    before = session.run_delays_ns()
    generated, elapsed = session.generate(start, tokens)
    delay = longest_wait_ns(before, session.run_delays_ns())
    counters = session.counters()
    kept = {key: counters[key] for key in keep}
    return Sample(
        int(elapsed.sum()), weight_bytes(counters), digest(generated), tokens, delay, resident, kept
    )


def decode_arm(
    label: str, session: Session, path: Path, start: int, tokens: int, description: str = ""
) -> Arm:
    """An arm that decodes `tokens` tokens greedily after `start`, the model's file in the page cache."""

    def run() -> Sample:
        share = residency(path).share
        if share < 1.0:  # reclaimed meanwhile; decoding alone would never bring back experts that it skips
            read_whole(path)
            share = residency(path).share
        return decode_sample(session, start, tokens, resident=share)

    return Arm(label, run, run().digest, description or label, resident=(1.0, 1.0))


def stored_arm(name: str, session: Session, start: int, tokens: int, description: str) -> Arm:
    """An arm that decodes with experts, or all weights, read from the file."""

    def run() -> Sample:
        return decode_sample(session, start, tokens, keep=STORAGE_COUNTERS)

    return Arm(name, run, run().digest, description)


def read_whole(path: Path) -> None:
    """Brings a file into the page cache; whether it stays there is checked before every sample."""
    with path.open("rb", buffering=0) as file:
        buffer = bytearray(1 << 20)
        while file.readinto(buffer):
            pass
