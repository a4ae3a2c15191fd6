"""Workers, memory probe and roof of the timed checks: one pool pinned to the cores that the arms use."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.probes import MIB, Arena, Pool, read_patterns
from harness.counters import steal_ticks
from harness.machine import last_level_cache_bytes
from harness.paired import Probes, Progress
from harness.rounds import Pattern, Roof, Timed
from harness.verdict import NotMeasurable

PROBE_NS: Final = 50_000_000
"""Length of the read probe beside each round."""
_ROOF_PASSES: Final = 4


@dataclass(frozen=True)
class Bench:
    """A pool of workers with an arena of at least four last-level caches."""

    pool: Pool
    arena: Arena
    probe_pattern: int
    """Index of the read pattern that was the fastest when the workers came to be."""

    def probes(self) -> Probes:
        """Probes of a paired run: the read probe runs on these workers, while the arms rest."""
        return Probes(bandwidth=self._bandwidth, steal=partial(steal_ticks, cpus=self.pool.worker_cpus))

    def _bandwidth(self) -> float:
        taken_ns = passes = 0
        while taken_ns < PROBE_NS:
            taken_ns += self.arena.read(self.probe_pattern)[0]
            passes += 1
        return passes * self.arena.size_bytes / taken_ns

    def roof(self) -> Roof:
        """Every read pattern, the first pass of each dropped."""
        patterns = []
        for index, name in enumerate(read_patterns()):
            passes = [self.arena.read(index)[0] for _ in range(_ROOF_PASSES + 1)][1:]
            patterns.append(Pattern(name, self.arena.size_bytes, tuple(passes)))
        return Roof(self.pool.threads, tuple(patterns))


def arena_bytes() -> int:
    """Size of the arena: at least four last-level caches."""
    return max(256 * MIB, 4 * last_level_cache_bytes())


@contextmanager
def open_bench(threads: int, *, huge: bool = True) -> Iterator[Bench]:
    """Workers and arena, freed at the end. huge: the arena's pages, as large as those of the weights beside
    it.
    """
    with Pool(threads) as pool, Arena(pool, arena_bytes(), huge=huge) as arena:
        yield Bench(pool, arena, _fastest_pattern(arena))


def _fastest_pattern(arena: Arena) -> int:
    """The first pass of each pattern is dropped."""
    taken_ns = {index: [arena.read(index)[0] for _ in range(3)][1:] for index in range(len(read_patterns()))}
    return min(taken_ns, key=lambda index: min(taken_ns[index]))


def digest(values: NDArray[np.generic]) -> str:
    """Fingerprint of an output, bit for bit."""
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()[:16]


def longest_wait_ns(before: Sequence[int] | None, after: Sequence[int] | None) -> int | None:
    """Longest run-queue delay of a worker between two readings: one that waits holds up all.

    None where the kernel keeps none.
    """
    if before is None or after is None:
        return None
    return max(end - start for start, end in zip(before, after, strict=True))


def timed_cells(
    cells: Iterable[tuple[str, Callable[[], Timed | NotMeasurable]]],
) -> Mapping[str, Timed | NotMeasurable]:
    """Measures the cells of a check one after another; the first that Ctrl-C cuts short is the last."""
    found: dict[str, Timed | NotMeasurable] = {}
    interrupted = False
    for label, measure in cells:
        one = NotMeasurable("the run was interrupted before this row") if interrupted else measure()
        interrupted = interrupted or (isinstance(one, Timed) and one.interrupted)
        found[label] = one
    return found


def progress_line(what: str) -> Progress | None:
    """Rounds on one line of a terminal; nothing elsewhere. For commands: runs of claims have a display."""
    if not sys.stderr.isatty():
        return None
    started = time.monotonic()

    def show(timed: Timed, planned: int) -> None:
        nonlocal started
        done, valid = len(timed.rounds), sum(not one.void for one in timed.rounds)
        if done == 0:
            started = time.monotonic()
            return
        left_s = (time.monotonic() - started) / done * (planned - done)
        end = "\n" if done == planned else ""
        sys.stderr.write(
            f"\r{what}: round {done} of {planned}, {valid} valid, {left_s:.0f} s left \x1b[K{end}"
        )
        sys.stderr.flush()

    return show


def thread_cells(threads: int) -> Sequence[tuple[str, int]]:
    """The two cells of a check that is measured on all threads and on one."""
    return (("all threads", threads), ("1 thread", 1))


def calibrated(run: Callable[[int], int], target_ns: int) -> int:
    """Iterations of `run` (which returns the ns it took) that last about `target_ns`."""
    iterations = 1024
    while (taken_ns := run(iterations)) < target_ns // 4:
        iterations *= 2
    return max(1, iterations * target_ns // taken_ns)
