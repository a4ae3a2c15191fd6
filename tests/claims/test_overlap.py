"""Arms of the overlap, and the grid that measures each cell once."""

from __future__ import annotations

import dataclasses
import mmap
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from claims import overlap_ways
from claims.models import synthetic
from claims.overlap import (
    COMPUTE,
    READ,
    STAGED,
    SYNC,
    Staging,
    arms,
    follow,
    open_staging,
    refused,
    routed_bytes,
    tokens_for,
)
from claims.overlap_grid import (
    DELAYS,
    EMULATED,
    NATIVE,
    WASHES,
    Cell,
    Grid,
    Wash,
    computed_over_read,
    inputs,
    too_slow,
)
from claims.overlap_shapes import LAYERS, SMALL, SMALL_WIDTH
from claims.run import REGISTRY_PATH, ClaimsRun
from engine.model import Model
from engine.session import Session
from harness.cachestate import CacheStateError, residency
from harness.paired import Probes, run_pairs
from harness.registry import load_registry
from harness.rounds import Figure, RoundsOf, Side, Timed
from harness.verdict import NotMeasurable
from tests.engine.experts import asked_bytes

GAIN = Figure(Side(SYNC, "time"), Side(STAGED, "time"))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic(tmp_path_factory.mktemp("overlap"), SMALL.name, SMALL.geometry(SMALL_WIDTH))


@pytest.fixture(scope="module")
def staging(path: Path) -> Iterator[Staging]:
    with open_staging(path, {"threads": 2, "context": 16}) as opened:
        if refused(opened.staged) is not None:
            pytest.skip("O_DIRECT is refused here")
        yield opened


def test_arms_do_the_same_work_and_read_what_their_name_says(staging: Staging) -> None:
    course = follow(staging.compute, 4)
    made = {arm.name: arm for arm in arms(staging, course)}
    samples = {name: arm.run() for name, arm in made.items()}
    routed = sum(asked_bytes(staging.model, row) for row in course.routing)
    assert routed_bytes(staging.model, course.routing) == routed > 0
    for name, sample in samples.items():
        assert sample.digest == made[name].expected_digest, name
        assert sample.counters["asked_bytes"] == sample.counters["device_bytes"]
        assert sample.counters["asked_bytes"] == (0 if name == COMPUTE else routed)
        assert sample.work == 4 and sample.resident is not None and sample.resident <= 0.01
    assert samples[COMPUTE].counters["io_wait_ns"] == 0
    assert samples[SYNC].bytes == samples[STAGED].bytes == samples[COMPUTE].bytes
    assert samples[READ].bytes == routed
    assert samples[SYNC].digest.partition(",")[0] == samples[COMPUTE].digest.partition(",")[0]


def test_the_course_is_greedy_from_an_empty_context(staging: Staging) -> None:
    course = follow(staging.staged, 3)
    assert course.routing.shape == (3, LAYERS, 2)
    with Session(staging.model, threads=1, context=16, residency="direct", ram_budget=1 << 30) as kept:
        chosen, _ = kept.generate(11, 3)
    assert course.tokens.tolist() == chosen.tolist()


def test_tokens_of_a_sample(staging: Staging) -> None:
    assert tokens_for(staging.compute, 1, 7) == 1
    assert tokens_for(staging.compute, 1 << 60, 7) == 7


def test_what_a_cell_fixes(staging: Staging) -> None:
    course = follow(staging.compute, 2)
    found = inputs(staging, course, 500_000_000)
    assert found["tier"] == "500 MB/s emulated"
    assert found["expert bytes per token"] == routed_bytes(staging.model, course.routing) // 2
    assert (found["expert_delay"], found["tokens"], found["threads"]) == (2, 2, 2)


def test_another_byte_or_token_is_a_wrong_output(staging: Staging) -> None:
    course = follow(staging.compute, 2)
    shifted = dataclasses.replace(course, tokens=course.tokens + 1)
    for arm in arms(staging, shifted):
        assert (arm.run().digest == arm.expected_digest) is (arm.name == READ)
    fewer = dataclasses.replace(course, routing=course.routing[:1])
    for arm in arms(staging, fewer):
        assert (arm.run().digest == arm.expected_digest) is (arm.name in (COMPUTE, READ))


def test_reads_through_a_cache_tell_nothing(path: Path) -> None:
    with Model(path) as model, Session(model, residency="direct", read_path="buffered") as session:
        found = refused(session)
    assert found is not None and "O_DIRECT is refused" in found.reason


def test_opening_leaves_the_experts_out_of_the_page_cache(path: Path, tmp_path: Path) -> None:
    own = tmp_path / "m.cflow"
    own.write_bytes(path.read_bytes())
    with Model(own) as model:
        first = min(tensor.offset for tensor in model.tensors if tensor.expert is not None)
    with open_staging(own, {"threads": 1, "context": 4}):
        assert residency(own, first).share <= 0.01


def test_experts_that_stay_in_the_page_cache_are_an_error(path: Path, tmp_path: Path) -> None:
    own = tmp_path / "m.cflow"
    own.write_bytes(path.read_bytes())
    with own.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as held:
        assert sum(held[:: mmap.PAGESIZE]) > 0
        with (
            pytest.raises(CacheStateError, match="of the experts stay resident"),
            open_staging(own, {"threads": 1, "context": 4}),
        ):
            raise AssertionError("opened")


# ---- the grid ----


class Counting(Grid):
    """A grid whose cells are made up. `measured` counts."""

    def __init__(self, found: Timed | NotMeasurable) -> None:
        super().__init__(cast(ClaimsRun, SimpleNamespace(profile="quick", threads=2)))
        self.found, self.measured = found, 0

    def _measure(self, cell: Cell | Wash) -> tuple[Timed | NotMeasurable, Any]:
        self.measured += 1
        return self.found, ()


def made_up() -> Timed:
    return Timed(GAIN, 1, 12, False, (), ())


def test_a_cell_is_measured_once_and_stored_with_the_check_that_measured_it() -> None:
    grid, cell = Counting(made_up()), EMULATED[0]
    first = grid.view(cell, "7.a", "x", GAIN)
    again = grid.view(cell, "7.b", "y", GAIN)
    assert isinstance(first, Timed) and isinstance(again, Timed)
    assert (first.rounds_of, again.rounds_of, grid.measured) == (None, RoundsOf("7.a", "x"), 1)


def test_rounds_that_no_record_holds_are_measured_again() -> None:
    grid, cell = Counting(made_up()), EMULATED[0]
    assert isinstance(grid.cell(cell, "7.a").found, Timed)
    assert isinstance(grid.cell(cell, "7.a").found, Timed)
    assert grid.measured == 1
    later = grid.view(cell, "7.b", "y", GAIN)
    assert isinstance(later, Timed)
    assert (later.rounds_of, grid.measured) == (None, 2)


def test_a_device_slower_than_the_tier_shows_no_tier(staging: Staging) -> None:
    course = follow(staging.compute, 1)
    timed = run_pairs(
        arms(staging, course),
        GAIN,
        Probes(bandwidth=lambda: 1.0, steal=lambda: (0, 0), run_delay_ns=lambda: None),
        control_of=STAGED,
        seed=1,
        rounds=4,
    )
    timed = dataclasses.replace(
        timed, rounds=tuple(dataclasses.replace(one, void=()) for one in timed.rounds)
    )
    ratio = computed_over_read(timed)
    assert ratio is not None and ratio > 0
    assert too_slow(timed, 0) is too_slow(timed, 1000) is too_slow(NotMeasurable("no disk"), 10**15) is None
    found = too_slow(timed, 10**15)
    assert found is not None and "too little for 1,000,000,000 MB/s emulated" in found.reason
    assert too_slow(dataclasses.replace(timed, interrupted=True), 10**15) is None
    assert Counting(timed).view(Cell(10**15, 1, True), "7.a", "x", GAIN) == found


def test_what_cannot_be_measured_is_tried_once() -> None:
    grid = Counting(NotMeasurable("no disk"))
    found = [grid.view(EMULATED[0], check, "x", GAIN) for check in ("7.a", "7.b")]
    assert found == [NotMeasurable("no disk")] * 2 and grid.measured == 1


def test_labels_are_those_of_the_registry() -> None:
    registry = load_registry(REGISTRY_PATH)
    emulated, native = ([cell.label for cell in cells] for cells in (EMULATED, NATIVE))
    declared = {
        check.id: [cell.label for cell in check.cells]
        for check in registry.checks
        if check.id.startswith("7.overlap")
    }
    assert declared["7.overlap_sync"] == declared["7.overlap_staged"] == emulated
    washes = [cell.label for cell in WASHES]
    assert declared["7.overlap_wash"] == washes
    assert declared["7.overlap_ratio"] == emulated + native + washes
    for name in ("speedup", "quotient", "quiet", "cpu"):
        assert declared[f"7.overlap_{name}"] == emulated + native
    assert declared["7.overlap_schedule"][: len(emulated + native)] == emulated + native
    assert declared["7.overlap_delays"] == [f"expert_delay {cell.expert_delay}" for cell in DELAYS]
    assert np.unique(emulated + native).size == len(emulated + native)


def test_direct_ways_that_go_through_a_cache_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap_ways, "refused", lambda _: NotMeasurable("O_DIRECT is refused"))
    ways = {way.name: way for way in overlap_ways.WAYS}
    for name in ("direct, staged", "direct, sync"):
        with (
            pytest.raises(CacheStateError, match="O_DIRECT is refused"),
            overlap_ways.cold_session(path, ways[name], 1, 1),
        ):
            raise AssertionError("opened")
    with overlap_ways.cold_session(path, ways["buffered, staged"], 1, 1) as (session, _):
        assert session.model.path == path
