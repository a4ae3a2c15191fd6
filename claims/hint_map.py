"""Claim 6, beyond: kernels with every hint and distance while RAM is the limit, and what that comes to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from claims.arms import fill_matrix, gemv_arm
from claims.run import SEED
from claims.timing import open_bench
from engine.enums import Prefetch, Type
from engine.kernels import Kernel, tiles_bytes
from engine.probes import READ_STREAMS, Arena
from harness.cachestate import PAGE_BYTES
from harness.paired import Progress, alike, run_pairs
from harness.rounds import Figure, Side, Timed
from harness.statistics import MIN_ROUNDS, sign_interval
from harness.verdict import NotMeasurable

ROWS: Final = 8192
COLUMNS: Final = 32768
OFF: Final = "no hint"
DISTANCES: Final = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
FEW: Final = tuple((Prefetch.T0, distance) for distance in (256, 1024, 2048, 4096, 8192, 16384))
"""Hints and distances of a small map."""
MANY: Final = (
    *((Prefetch.T0, distance) for distance in DISTANCES),
    *(
        (hint, distance)
        for hint in (Prefetch.T1, Prefetch.T2, Prefetch.NTA)
        for distance in (1024, 4096, 16384)
    ),
)
GAIN: Final = 0.02
"""More than this is a gain, or a loss, as in the checks of claim 6."""


def arm_name(hint: Prefetch, distance_bytes: int) -> str:
    """ "T0 256 B", "NTA 4 KiB"."""
    distance = f"{distance_bytes} B" if distance_bytes < 1024 else f"{distance_bytes // 1024} KiB"
    return f"{hint.name} {distance}"


def map_cell(
    kernel: Kernel,
    last_level_bytes: int,
    points: Sequence[tuple[Prefetch, int]],
    wanted: int,
    progress: Progress | None = None,
    *,
    threads: int,
    huge: bool = True,
    streams: int = READ_STREAMS,
) -> Timed | NotMeasurable:
    """Products of one matrix without hints and with each of `points`, against one another.

    wanted: valid rounds. huge: pages of 2 MiB, else of 4 KiB. The figure is that of PREFETCHT0 4 KiB ahead; a
    map has no target.
    """
    size = tiles_bytes(Type.Q4_0, ROWS, COLUMNS)
    if size < 2 * last_level_bytes:
        return NotMeasurable(
            f"the matrix of {size} bytes is less than twice the last-level cache of {last_level_bytes}"
        )
    with open_bench(threads, huge=huge) as bench, Arena(bench.pool, size, huge=huge) as matrix:
        fill_matrix(matrix, ROWS, COLUMNS)
        arms = [gemv_arm(OFF, bench.pool, matrix, kernel, ROWS, COLUMNS, 1, streams)]
        for hint, distance in points:
            arms.append(
                gemv_arm(
                    arm_name(hint, distance),
                    bench.pool,
                    matrix,
                    kernel,
                    ROWS,
                    COLUMNS,
                    1,
                    streams,
                    hint,
                    distance,
                )
            )
        return run_pairs(
            alike(arms),
            Figure(Side(arm_name(Prefetch.T0, 4096), "speed"), Side(OFF, "speed")),
            bench.probes(),
            control_of=OFF,
            seed=SEED,
            rounds=wanted,
            inputs={
                "kernel": kernel.name,
                "matrix": f"{ROWS} x {COLUMNS}",
                "threads": threads,
                "page_bytes": 2 << 20 if huge else PAGE_BYTES,
                "read_streams": streams,
            },
            progress=progress,
        )


# ---- what the map comes to ----


@dataclass(frozen=True)
class Gain:
    """Speed of an arm over no hint: median of the valid rounds of a recorded cell, with its interval."""

    cell: str
    arm: str
    median: float
    low: float
    high: float

    @property
    def text(self) -> str:
        """ "T0 8 KiB 1.09x [1.07, 1.12]"."""
        return f"{self.arm} {self.median:.2f}x [{self.low:.2f}, {self.high:.2f}]"


def gains(record: Mapping[str, Any]) -> dict[str, list[Gain]]:
    """Arms of each cell of a map as recorded, in their order; none of a cell with too few valid rounds."""
    found: dict[str, list[Gain]] = {}
    for cell in record["cells"]:
        evidence = cell["evidence"]
        valid = [one["samples"] for one in evidence["rounds"] if not one["void"]] if evidence else []
        for arm in evidence["arms"] if evidence else []:
            name = arm["name"]
            if name == OFF or arm["control_of"] is not None:
                continue
            logs = [math.log(one[OFF]["ns"] / one[name]["ns"]) for one in valid]
            interval = sign_interval(logs, 0.95)
            if interval is not None and len(logs) >= MIN_ROUNDS:
                middle = sorted(logs)[len(logs) // 2]
                ends = math.exp(interval[0]), math.exp(interval[1])
                found.setdefault(cell["label"], []).append(Gain(cell["label"], name, math.exp(middle), *ends))
    return found


def sentence(found: Mapping[str, Sequence[Gain]]) -> str:
    """What the data support, in words: per cell the best and the worst hint, and whether they count."""
    parts = []
    for label, arms in found.items():
        best, worst = max(arms, key=lambda gain: gain.median), min(arms, key=lambda gain: gain.median)
        if best.low > 1 + GAIN:
            said = f"a hint helps: {best.text}"
        elif best.high < 1 + GAIN:
            said = f"no hint gains {GAIN:.0%}, the best is {best.text}"
        else:
            said = f"no gain of {GAIN:.0%} is certain, the best is {best.text}"
        if worst.high < 1 - GAIN:
            said += f", and the wrong one harms: {worst.text}"
        parts.append(f"{label}: {said}")
    return "; ".join(parts) + "."
