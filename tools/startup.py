"""Time the start of a model: `python -m tools.startup MODEL.cflow`.

Opening and making a session over the mapping, then a session that copies the weights, beside the two things
that a copy cannot do without: touching as much new memory, and reading the file. Rounds are interleaved;
medians are printed. The page cache is emptied of the file before every read unless --warm is given.

A hypervisor that takes back free memory makes the first touch of a page slow, and takes it whenever it likes:
--rest waits before each part, so that all of them find their memory taken back.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path

from claims.arms import read_whole
from engine.errors import CflowError
from engine.model import Model
from engine.probes import Pool
from engine.session import Session
from engine.topology import read_topology
from harness.cachestate import evict
from harness.errors import HarnessError


@dataclass(frozen=True)
class Times:
    """One round, in nanoseconds. copy_ns: a session with residency `copy`, all of its creation."""

    open_ns: int
    session_ns: int
    touch_ns: int
    read_ns: int
    copy_ns: int


def clocked(work: Callable[[], Session]) -> int:
    """Nanoseconds of making a session, which is closed again."""
    start_ns = time.monotonic_ns()
    session = work()
    elapsed_ns = time.monotonic_ns() - start_ns
    session.close()
    return elapsed_ns


def one_round(path: Path, pool: Pool, prepare: Callable[[Path], object], order: int, rest_s: float) -> Times:
    """All parts once, `rest_s` seconds before each; `order` turns them round by round."""
    prepare(path)
    start_ns = time.monotonic_ns()
    model = Model(path)
    open_ns = time.monotonic_ns() - start_ns
    with model:
        session_ns = clocked(lambda: Session(model, threads=pool.threads, context=1))

        def read_ns() -> int:
            prepare(path)
            return pool.load(model)[0]

        def copy_ns() -> int:
            prepare(path)
            return clocked(lambda: Session(model, threads=pool.threads, context=1, residency="copy"))

        parts = [lambda: pool.touch(model.file_bytes), read_ns, copy_ns]
        found = {}
        for index in ((order + shift) % 3 for shift in range(3)):
            time.sleep(rest_s)
            found[index] = parts[index]()
    return Times(open_ns, session_ns, found[0], found[1], found[2])


def main() -> None:
    """Parses the arguments and prints the medians."""
    parser = argparse.ArgumentParser(prog="python -m tools.startup", description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, default=read_topology().threads)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--warm", action="store_true", help="leave the file in the page cache")
    parser.add_argument("--rest", type=float, default=0.0, metavar="S", help="seconds before each part")
    arguments = parser.parse_args()
    if arguments.rounds < 1 or arguments.rest < 0:
        parser.error("--rounds must be at least 1, --rest at least 0")
    try:
        _report(arguments)
    except (CflowError, HarnessError, OSError) as error:
        parser.error(str(error))


def _report(arguments: argparse.Namespace) -> None:
    size_bytes = arguments.model.stat().st_size
    # What an open model has touched, its front, stays in memory.
    prepare = read_whole if arguments.warm else partial(evict, allowed_share=1.0)
    with Pool(arguments.threads) as pool:
        first, *rounds = [
            one_round(arguments.model, pool, prepare, order, arguments.rest)
            for order in range(arguments.rounds + 1)
        ]
        with Model(arguments.model) as model:
            prepare(arguments.model)
            direct_bytes = pool.load(model)[1]
    print(
        f"{arguments.model.name}: {size_bytes / 1e6:.1f} MB, {arguments.threads} threads, "
        f"{arguments.rounds} rounds, {'warm' if arguments.warm else 'cold'} page cache, "
        f"{direct_bytes / size_bytes:.0%} read past it"
    )
    print(f"{'':<12}{'first':>10}{'median':>10}{'GB/s':>8}")
    for field in fields(Times):
        median_ns = statistics.median(getattr(one, field.name) for one in rounds)
        moved = field.name in ("touch_ns", "read_ns", "copy_ns")
        speed = f"{size_bytes / median_ns:8.2f}" if moved else ""
        name = field.name.removesuffix("_ns")
        print(f"{name:<12}{getattr(first, field.name) / 1e6:>7.1f} ms{median_ns / 1e6:>7.1f} ms{speed}")
    ratios = sorted(one.copy_ns / max(one.touch_ns, one.read_ns) for one in rounds)
    print(
        f"copy / slower of touch and read: median {statistics.median(ratios):.3f} "
        f"({ratios[0]:.3f} to {ratios[-1]:.3f})"
    )


if __name__ == "__main__":
    main()
