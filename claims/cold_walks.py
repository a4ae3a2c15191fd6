"""Claim 8: the grid of conditions, and cold walks over files of each layout under one of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final, TypeVar

from claims import walk_child
from claims.layouts import COPY, LAYER, LAYOUTS, PARTS, PHASE, STAGED, Layouts, Walk
from claims.run import SEED
from claims.timing import Bench
from engine import probes
from engine.enums import WalkWay
from engine.errors import UnsupportedError
from engine.native import library_path
from harness.cachestate import CacheStateError, evict
from harness.counters import process_io, run_delay_ns, waited_ns
from harness.evidence import Kernel
from harness.memory_limit import MemoryGroup, MemoryLimitError, memory_limit
from harness.paired import Arm, Progress, run_pairs
from harness.readahead import ReadAheadError, read_ahead
from harness.reductions import Reduction
from harness.rounds import Figure, Sample, Side, Timed, views
from harness.verdict import NotMeasurable

Files = Callable[[str], "Layouts | NotMeasurable"]
"""The files of a size, or why they cannot be had."""
Found = TypeVar("Found", Kernel, Timed)

READ_AHEADS: Final[Mapping[str, int]] = {"128 KiB": 128, "8 MiB": 8192}
RAM_SHARE: Final = 4
"""With little RAM the process and its page cache may have a quarter of the file."""
EVICTIONS: Final = 40
SETTLE_S: Final = 0.005


@dataclass(frozen=True)
class Condition:
    """How a file is read. kib: readahead; None with O_DIRECT: no readahead, no page cache."""

    part: str
    way: WalkWay
    kib: int | None
    little_ram: bool

    @property
    def label(self) -> str:
        """As the rows of the grid begin."""
        names = {kib: name for name, kib in READ_AHEADS.items()}
        words = [self.part, self.way.name.lower()]
        if self.kib is not None:
            words += [f"{names[self.kib]} ahead", "little RAM" if self.little_ram else "ample RAM"]
        return ", ".join(words)


_CACHED: Final = tuple(product(READ_AHEADS.values(), (False, True)))
GRID: Final = tuple(
    Condition(part, way, kib, little)
    for part, way in product(PARTS, WalkWay)
    for kib, little in ([(None, False)] if way is WalkWay.DIRECT else _CACHED)
)


@dataclass(frozen=True)
class Taken:
    """One cold walk. resident: share of the file in memory before it."""

    ns: int
    digest: int
    device_bytes: int
    resident: float
    run_delay_ns: int | None


@dataclass(frozen=True)
class Setting:
    """What holds while a condition is measured."""

    read_ahead_kib: int | None
    group: MemoryGroup | None

    def inputs(self, files: Layouts, condition: Condition) -> dict[str, int | str | None]:
        """What was fixed, and which privileges it took."""
        used = ["sets the readahead"] if condition.kib is not None else []
        used += ["memory cgroup"] if self.group is not None else []
        return {
            "model": files.geometry,
            "file_bytes": files.file_bytes,
            "read_ahead_kb": self.read_ahead_kib,
            "memory_limit_bytes": None if self.group is None else self.group.limit_bytes,
            "threads": 1,
            "request_bytes": probes.MIB if condition.way is not WalkWay.MMAP else None,
            "cold by": "fsync and POSIX_FADV_DONTNEED, 0 pages by mincore",
            "root": ", ".join(used) or "not used",
        }


@contextmanager
def setting(files: Layouts, condition: Condition) -> Iterator[Setting]:
    """Sets readahead and memory limit, and takes both back. Raises ReadAheadError and MemoryLimitError, but
    not for a condition that has neither.
    """
    folder = files.files[LAYER].parent
    ahead = nullcontext() if condition.kib is None else read_ahead(folder, condition.kib)
    limited = memory_limit(files.file_bytes // RAM_SHARE) if condition.little_ram else nullcontext()
    with ahead as holds, limited as group:
        yield Setting(holds, group)


def take(walk: Walk, condition: Condition, group: MemoryGroup | None) -> Taken:
    """One walk from a cold page cache. Raises CacheStateError when it is not cold, or nothing comes from
    storage; UnsupportedError without O_DIRECT.
    """
    share = _emptied(walk.path)
    if group is not None:
        taken = _in_child(walk, condition, group, share)
    else:
        taken = _in_process(walk, condition, share)
    if taken.device_bytes == 0:
        raise CacheStateError("nothing came from storage as the kernel counts it: FUSE, or a network?")
    return taken


def _in_process(walk: Walk, condition: Condition, share: float) -> Taken:
    delay, before = run_delay_ns(), process_io()
    walked = probes.walk(walk.path, condition.way, walk.ranges)
    after = process_io()
    if before is None or after is None:
        raise CacheStateError("the kernel does not count the bytes that this process fetches from storage")
    device_bytes = after.since(before).device_read_bytes
    return Taken(walked.ns, walked.digest, device_bytes, share, waited_ns(delay, run_delay_ns()))


def _emptied(path: Path) -> float:
    """Resident share after eviction: 0. Pages that are being read ahead stay for some time."""
    for _ in range(EVICTIONS):
        left = evict(path, allowed_share=1.0)
        if left.resident_pages == 0:
            return left.share
        time.sleep(SETTLE_S)
    raise CacheStateError(f"{path}: {left.share:.1%} still resident after {EVICTIONS} evictions")


def _in_child(walk: Walk, condition: Condition, group: MemoryGroup, share: float) -> Taken:
    """The walk in a process of its own inside the memory group."""
    command = [sys.executable, "-I", "-S", walk_child.__file__, str(library_path())]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        group.add(child.pid)
        job = {
            "path": os.fspath(walk.path),
            "way": int(condition.way),
            "ranges": walk.ranges.tolist(),
            "request_bytes": probes.MIB,
        }
        output, _ = child.communicate(json.dumps(job) + "\n")
    answer = json.loads(output or '{"error": "it ended without an answer"}')
    if "error" in answer:
        raise MemoryLimitError(f"walk inside {group.limit_bytes} bytes of memory: {answer['error']}")
    return Taken(answer["ns"], answer["digest"], answer["device_bytes"], share, answer["run_delay_ns"])


_IMPOSSIBLE = (CacheStateError, ReadAheadError, MemoryLimitError, UnsupportedError)


def counted(files: Layouts, condition: Condition) -> dict[str, Kernel | NotMeasurable]:
    """Bytes fetched from storage over bytes needed, one walk per layout; cells labelled with the layout."""
    found: dict[str, Kernel | NotMeasurable] = {}
    labels = {layout: f"{condition.label}: {layout}" for layout in LAYOUTS if layout != COPY}
    try:
        with setting(files, condition) as held:
            for layout, label in labels.items():
                found[label] = _counted(files, condition, held, layout)
    except _IMPOSSIBLE as error:
        found = {label: NotMeasurable(str(error)) for label in labels.values()}
    return found


def _counted(files: Layouts, condition: Condition, held: Setting, layout: str) -> Kernel | NotMeasurable:
    walk = files.walks[condition.part, layout]
    taken = take(walk, condition, held.group)
    if taken.digest != walk.digest:
        return NotMeasurable("the walk has read other bytes than the token uses")
    return Kernel(
        method="/proc/self/io around one walk in the order of use over a file evicted before",
        inputs={**held.inputs(files, condition), "ranges": len(walk.ranges)},
        observations={"device_bytes": taken.device_bytes, "needed_bytes": walk.needed_bytes, "ns": taken.ns},
        reduction=Reduction("ratio", ("device_bytes", "needed_bytes")),
    )


def fewer_bytes(
    cells: Mapping[str, Kernel | NotMeasurable],
) -> dict[str, Kernel | NotMeasurable]:
    """What layer-major fetches over what either stage-major layout does, from the cells of `counted`."""
    found: dict[str, Kernel | NotMeasurable] = {}
    for condition, layout in product(GRID, STAGED):
        label = f"{condition.label}: {layout}"
        base, staged = cells[f"{condition.label}: {LAYER}"], cells[label]
        if isinstance(base, NotMeasurable):
            found[label] = base
        elif isinstance(staged, NotMeasurable):
            found[label] = staged
        else:
            observations = {
                "layer_major_bytes": base.observations["device_bytes"],
                "stage_major_bytes": staged.observations["device_bytes"],
                "needed_bytes": base.observations["needed_bytes"],
            }
            reduction = Reduction("ratio", ("layer_major_bytes", "stage_major_bytes"))
            found[label] = Kernel(base.method, observations, reduction, staged.inputs)
    return found


def timed(
    files: Layouts,
    condition: Condition,
    bench: Bench,
    check_id: str,
    wanted: int,
    progress: Progress | None = None,
) -> dict[str, Timed | NotMeasurable]:
    """Bytes per second of either stage-major layout over layer-major, from the same rounds; the control arm
    is the fresh copy. Cells labelled with the layout. wanted: valid rounds.
    """
    labels = {layout: f"{condition.label}: {layout}" for layout in STAGED}
    try:
        with setting(files, condition) as held:
            arms = {layout: _arm(files, condition, held, layout) for layout in LAYOUTS}
            rounds = run_pairs(
                [arms[LAYER], *(arms[layout] for layout in STAGED)],
                Figure(Side(PHASE, "bandwidth"), Side(LAYER, "bandwidth")),
                bench.probes(),
                control_of=LAYER,
                control=arms[COPY],
                seed=SEED,
                rounds=wanted,
                inputs=held.inputs(files, condition),
                progress=progress,
            )
    except _IMPOSSIBLE as error:
        return {label: NotMeasurable(str(error)) for label in labels.values()}
    base = Side(LAYER, "bandwidth")
    chosen = {label: Figure(Side(layout, "bandwidth"), base) for layout, label in labels.items()}
    return dict(views(rounds, check_id, chosen))


def _arm(files: Layouts, condition: Condition, held: Setting, layout: str) -> Arm:
    walk = files.walks[condition.part, layout]

    def run() -> Sample:
        taken = take(walk, condition, held.group)
        return Sample(
            taken.ns,
            walk.needed_bytes,
            f"{taken.digest:016x}",
            run_delay_ns=taken.run_delay_ns,
            resident=taken.resident,
            counters={"device_bytes": taken.device_bytes},
        )

    description = f"{condition.label}, {len(walk.ranges)} ranges in the order of use"
    return Arm(layout, run, f"{walk.digest:016x}", description, resident=(0.0, 0.0))


def all_conditions(
    files: Files,
    size: str,
    conditions: Sequence[Condition],
    shown: Sequence[str],
    one: Callable[[Layouts, Condition], Mapping[str, Found | NotMeasurable]],
) -> dict[str, Found | NotMeasurable]:
    """The cells of all conditions, or why the files of that size cannot be had; the first condition that
    Ctrl-C cuts short is the last.
    """
    found = files(size)
    if isinstance(found, NotMeasurable):
        return {f"{each.label}: {layout}": found for each in conditions for layout in shown}
    cells: dict[str, Found | NotMeasurable] = {}
    for condition in conditions:
        if any(isinstance(cell, Timed) and cell.interrupted for cell in cells.values()):
            reason = NotMeasurable("the run was interrupted before this row")
            cells |= {f"{condition.label}: {layout}": reason for layout in shown}
        else:
            cells |= one(found, condition)
    return cells
