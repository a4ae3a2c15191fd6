"""What is run against itself: one kind of work for each kind of timed check.

Each material makes arms that do the same work, every one with sessions and memory of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from claims.arms import decode_arm, fill_matrix, gemv_arm, read_whole, stored_arm
from claims.file_order import placed_tiles, stream, tile_ranges
from claims.kernel_cases import best_q8_kernel
from claims.models import synthetic
from claims.timing import Bench, digest, longest_wait_ns
from engine.enums import Type
from engine.geometry import Geometry
from engine.kernels import isa_default, threads_default, tiles_bytes
from engine.model import Model
from engine.probes import Arena
from engine.session import OptionValue, Session
from harness.cachestate import evict, residency
from harness.counters import run_delay_ns, waited_ns
from harness.paired import Arm
from harness.rounds import Sample

MODEL: Final = "arch2_4_combined"
START: Final = 11
TOKENS: Final = 24
PROMPT_TOKENS: Final = 64
STORED_TOKENS: Final = 4
TIER_BYTES_PER_S: Final = 500_000_000
ROWS, COLUMNS, PRODUCTS = 8192, 32768, 2

Maker = Callable[[str], Arm]
"""Makes an arm of that name."""


@dataclass(frozen=True)
class Material:
    """A kind of work. one: on one thread instead of all. maker: of the open pool and the folder of models."""

    name: str
    description: str
    one: bool
    maker: Callable[[ExitStack, Bench, Path], Maker]

    @property
    def threads(self) -> int:
        """Workers on this machine."""
        return 1 if self.one else threads_default()


def _model(folder: Path) -> Path:
    return synthetic(folder, MODEL, Geometry.named(MODEL))


def _tiles(stack: ExitStack, bench: Bench, _folder: Path) -> Maker:
    kernel = best_q8_kernel(isa_default())
    size = tiles_bytes(Type.Q4_0, ROWS, COLUMNS)

    def make(name: str) -> Arm:
        arena = stack.enter_context(Arena(bench.pool, size))
        fill_matrix(arena, ROWS, COLUMNS)
        return gemv_arm(name, bench.pool, arena, kernel, ROWS, COLUMNS, PRODUCTS)

    return make


def _session(stack: ExitStack, bench: Bench, path: Path, **options: OptionValue) -> Session:
    model = stack.enter_context(Model(path))
    return stack.enter_context(Session(model, threads=bench.pool.threads, **options))


def _decode(stack: ExitStack, bench: Bench, folder: Path) -> Maker:
    path = _model(folder)
    read_whole(path)
    return lambda name: decode_arm(
        name, _session(stack, bench, path, context=TOKENS), path, START, TOKENS, f"{TOKENS} tokens"
    )


def _prompt(stack: ExitStack, bench: Bench, folder: Path) -> Maker:
    path = _model(folder)
    read_whole(path)

    def make(name: str) -> Arm:
        session = _session(stack, bench, path, context=PROMPT_TOKENS)
        ids = [int(i) for i in np.arange(PROMPT_TOKENS) % session.model.vocab]

        def run() -> Sample:
            session.reset()
            before, started_ns = session.run_delays_ns(), time.perf_counter_ns()
            logits = session.decode(ids)
            taken_ns = time.perf_counter_ns() - started_ns
            delay_ns = longest_wait_ns(before, session.run_delays_ns())
            return Sample(taken_ns, 0, digest(logits), PROMPT_TOKENS, delay_ns)

        return Arm(name, run, run().digest, f"a prompt of {PROMPT_TOKENS} tokens")

    return make


def _direct(stack: ExitStack, bench: Bench, folder: Path) -> Maker:
    path = _model(folder)

    def make(name: str) -> Arm:
        session = _session(
            stack,
            bench,
            path,
            context=STORED_TOKENS,
            residency="direct",
            verify="never",
            read_rate=TIER_BYTES_PER_S,
            expert_reads="sync",
        )
        return stored_arm(name, session, START, STORED_TOKENS, f"{STORED_TOKENS} tokens, experts on disk")

    return make


def _cold(stack: ExitStack, _bench: Bench, folder: Path) -> Maker:
    path = _model(folder)
    with Model(path) as model:
        ranges = tile_ranges(placed_tiles(model), None)
    size = sum(end - offset for offset, end in ranges)

    def make(name: str) -> Arm:
        def run() -> Sample:
            evict(path)
            share = residency(path).share
            before = run_delay_ns()
            taken_ns, total = stream(path, ranges)
            waited = waited_ns(before, run_delay_ns())
            return Sample(taken_ns, size, str(total), run_delay_ns=waited, resident=share)

        return Arm(name, run, run().digest, f"{len(ranges)} tiles in order", resident=(0.0, 0.01))

    return make


MATERIALS: Final = (
    Material("tiles", f"{PRODUCTS} products with a matrix of {ROWS} x {COLUMNS}, all threads", False, _tiles),
    Material("tiles, 1 thread", f"{PRODUCTS} products with a matrix of {ROWS} x {COLUMNS}", True, _tiles),
    Material("decode", f"{TOKENS} tokens of {MODEL}, mapped, in the page cache, all threads", False, _decode),
    Material("decode, 1 thread", f"{TOKENS} tokens of {MODEL}, mapped, in the page cache", True, _decode),
    Material("prompt", f"a prompt of {PROMPT_TOKENS} tokens, {MODEL}, all threads", False, _prompt),
    Material("direct", f"{STORED_TOKENS} tokens, experts read from disk at 500 MB/s emulated", True, _direct),
    Material("cold", f"a cold file of {MODEL}, read through a mapping in file order", True, _cold),
)


def material(name: str) -> Material:
    """The material of that name. Raises ValueError naming those that exist."""
    for one in MATERIALS:
        if one.name == name:
            return one
    raise ValueError(f"no material {name!r}; there are {', '.join(one.name for one in MATERIALS)}")
