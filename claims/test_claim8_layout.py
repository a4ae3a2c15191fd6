"""Claim 8, stage-major layout: what a token fetches and how fast, cold, from either order of the file."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack

import pytest

from claims.cold_walks import GRID, Condition, Files, all_conditions, counted, fewer_bytes, timed
from claims.conftest import Measure
from claims.layouts import COPY, LAYER, LAYOUTS, PARTS, STAGED, Layouts, layouts
from claims.run import ClaimsRun
from claims.streaming import streamed
from claims.timing import open_bench
from engine import probes
from engine.enums import WalkWay
from engine.errors import FileError, UnsupportedError
from engine.geometry import Geometry
from harness.evidence import Counted, Evidence, Kernel
from harness.reductions import Reduction
from harness.rounds import Timed
from harness.verdict import NotMeasurable

SMALL, LARGER = "64 MB", "larger file"
QUICK_GEOMETRY = "arch2_4_combined,d=2048,heads=32,layers=4,ffn=8192,expert_hidden=1024,vocab=8192"
FULL_GEOMETRY = "arch2_4_8k_4l"
CAVEAT = "A virtual machine's host keeps caches of its own: cold for this system, perhaps warm for its host."
WALK_LIMITS = (
    CAVEAT,
    "One token; the one row of the embedding that it reads is left out.",
    "One load per page of a mapping, one read call at a time: the reader waits, nothing runs beside it.",
    "With little RAM what is reclaimed before its use depends on timing: such a count is one walk's.",
)
FEWER_LIMIT = "The walks are those of 8.bytes. Fewer bytes are one way to be faster; they are no speed."
FIRST_TIMED = (
    Condition("every expert", WalkWay.MMAP, 128, False),
    Condition("routed experts", WalkWay.MMAP, 8192, False),
    Condition("routed experts", WalkWay.MMAP, 128, True),
    Condition("routed experts", WalkWay.DIRECT, None, False),
)
"""What is timed in a first look: whole and routed, each way that differs in what it reads."""

Cells = Mapping[str, Evidence | NotMeasurable]
Fetched = Callable[[str], Mapping[str, Kernel | NotMeasurable]]


@pytest.fixture(scope="module")
def files(claims_run: ClaimsRun) -> Iterator[Files]:
    """The files of a size by layout, written when a check first needs them, removed after the last one."""
    larger = FULL_GEOMETRY if claims_run.profile in ("full", "paper") else QUICK_GEOMETRY
    geometries = {SMALL: "arch2_4_combined", LARGER: larger}
    made: dict[str, Layouts | NotMeasurable] = {}
    with ExitStack() as open_files:

        def get(size: str) -> Layouts | NotMeasurable:
            if size not in made:
                geometry = geometries[size]
                folder = layouts(claims_run.cache, geometry.split(",")[0], Geometry.parse(geometry))
                try:
                    made[size] = open_files.enter_context(folder)
                except FileError as error:
                    made[size] = NotMeasurable(str(error))
            return made[size]

        yield get


# ---- the walk is right ----


def _walks(found: Layouts, part: str) -> Counted:
    """Digests of the walks over every layout, every way, beside the one that the model gives."""
    labels, digests, refused = [], [], ""
    for way in WalkWay:
        for layout in LAYOUTS:
            walk = found.walks[part, layout]
            try:
                digests.append(f"{probes.walk(walk.path, way, walk.ranges).digest:016x}")
                labels.append(f"{layout}, {way.name.lower()}")
            except UnsupportedError as error:
                refused = str(error)
    expected = [f"{found.walks[part, LAYER].digest:016x}"] * len(digests)
    return Counted(
        method="XXH64 of 8 bytes per page of each tensor in the order of use: read in C, computed in Python",
        inputs={
            "model": found.geometry,
            "experts": part,
            "walks": "; ".join(labels),
            "refused": refused or None,
        },
        observations={"read": digests, "expected": expected},
        reduction=Reduction("fraction_equal", ("read", "expected")),
    )


def _trace(found: Layouts, part: str) -> Counted:
    traced = found.traced[part]
    pad = max(len(traced.loaded), len(traced.walked))
    observations = {
        name: [*offsets, *[-1 - index] * (pad - len(offsets))]
        for index, (name, offsets) in enumerate((("loaded", traced.loaded), ("walked", traced.walked)))
    }
    return Counted(
        method="offsets of a token's matrices in the order of the kernels' trace, and in that of the walk",
        inputs={"model": found.geometry, "experts": part, "threads": 1},
        observations=observations,
        reduction=Reduction("fraction_equal", ("loaded", "walked")),
    )


@pytest.mark.check("8.walk")
def test_walk(measure: Measure, files: Files) -> None:
    def produce() -> Cells:
        found = files(SMALL)
        cells: dict[str, Evidence | NotMeasurable] = {}
        for part in PARTS:
            trace, walks = f"order of use, {part}", f"bytes of every walk, {part}"
            if isinstance(found, NotMeasurable):
                cells |= {trace: found, walks: found}
            else:
                cells |= {trace: _trace(found, part), walks: _walks(found, part)}
        return cells

    measure(produce, limits=WALK_LIMITS)


# ---- what is read ----


@pytest.fixture(scope="module")
def fetched(files: Files) -> Fetched:
    """What every layout of a size fetches under every condition, counted once for the checks that show it."""
    shown = [layout for layout in LAYOUTS if layout != COPY]
    return functools.cache(lambda size: all_conditions(files, size, GRID, shown, counted))


@pytest.mark.check("8.bytes")
def test_bytes(measure: Measure, fetched: Fetched) -> None:
    measure(lambda: fetched(LARGER), limits=WALK_LIMITS)


@pytest.mark.check("8.bytes_64mb")
def test_bytes_of_the_small_file(measure: Measure, fetched: Fetched) -> None:
    measure(lambda: fetched(SMALL), limits=WALK_LIMITS)


@pytest.mark.check("8.fewer_bytes")
def test_fewer_bytes(measure: Measure, fetched: Fetched) -> None:
    measure(
        lambda: fewer_bytes(fetched(LARGER)),
        limits=[*WALK_LIMITS, FEWER_LIMIT],
    )


# ---- what it takes ----

TIME_LIMITS = (
    *WALK_LIMITS,
    "The control arm is a fresh copy of the layer-major file: what the state of the disk alone makes of one "
    "layout bounds what can be said of two.",
)


def _timed(
    measure: Measure,
    run: ClaimsRun,
    files: Files,
    check_id: str,
    size: str,
    conditions: Sequence[Condition],
) -> None:
    def produce() -> Cells:
        def one(found: Layouts, each: Condition) -> dict[str, Timed | NotMeasurable]:
            return timed(found, each, bench, check_id, run.rounds(check_id), run.progress(each.label))

        with open_bench(1) as bench:
            return all_conditions(files, size, conditions, STAGED, one)

    measure(produce, limits=TIME_LIMITS)


@pytest.mark.check("8.time")
def test_time(measure: Measure, claims_run: ClaimsRun, files: Files) -> None:
    _timed(measure, claims_run, files, "8.time", LARGER, FIRST_TIMED)


@pytest.mark.check("8.time_64mb")
def test_time_of_the_small_file(measure: Measure, claims_run: ClaimsRun, files: Files) -> None:
    _timed(measure, claims_run, files, "8.time_64mb", SMALL, FIRST_TIMED)


@pytest.mark.check("8.time_grid")
def test_time_of_the_rest_of_the_grid(measure: Measure, claims_run: ClaimsRun, files: Files) -> None:
    rest = [condition for condition in GRID if condition not in FIRST_TIMED]
    _timed(measure, claims_run, files, "8.time_grid", SMALL, rest)


@pytest.mark.check("8.streaming")
def test_streaming(measure: Measure, claims_run: ClaimsRun, files: Files) -> None:
    def produce() -> Cells:
        found = files(LARGER)
        if isinstance(found, NotMeasurable):
            return dict.fromkeys(STAGED, found)
        with open_bench(claims_run.threads) as bench:
            threads, wanted = claims_run.threads, claims_run.rounds("8.streaming")
            return streamed(found, bench, threads, "8.streaming", wanted, claims_run.progress())

    measure(
        produce,
        limits=[
            "Reads past the page cache: how far the kernel reads ahead, and RAM, do not matter here.",
            TIME_LIMITS[-1],
            CAVEAT,
        ],
    )
