"""The material of claim 8: the order of use against the trace, digests, the grid, cold walks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from claims import cold_walks
from claims.cold_walks import GRID, Condition, all_conditions, counted, fewer_bytes, setting, take, timed
from claims.layouts import COPY, EVERY, KIND, LAYER, LAYOUTS, PARTS, PHASE, ROUTED, Layouts, layouts
from claims.run import REGISTRY_PATH
from engine import probes
from engine.enums import Order, Role, WalkWay
from engine.geometry import Geometry
from engine.model import Model
from harness.cachestate import CacheStateError, evict
from harness.check import check
from harness.counters import ProcessIo
from harness.evidence import Kernel
from harness.memory_limit import MemoryLimitError, memory_limit
from harness.readahead import ReadAheadError
from harness.reductions import Reduction
from harness.registry import load_registry
from harness.results import Recorder, RunInfo
from harness.rounds import Figure, Side, Timed
from harness.statistics import MIN_ROUNDS
from harness.verdict import NotMeasurable
from tests.claims.fake_bench import FakeBench
from tests.engine.models import geometries
from tests.harness.make_sample import MACHINE

SMALL = replace(Geometry.named("tiny_arch2_4_combined"), d_model=320, heads=5, kv_heads=5, head_dim=64)
DIRECT = Condition(ROUTED, WalkWay.DIRECT, None, False)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Layouts]:
    folder = tmp_path_factory.mktemp("layouts")
    with layouts(folder, "small", SMALL) as made:
        yield made
    assert list(folder.iterdir()) == []


@pytest.fixture
def cold(found: Layouts) -> Layouts:
    """The same where files can leave the page cache."""
    try:
        evict(found.files[LAYER])
    except CacheStateError as error:
        pytest.skip(str(error))
    return found


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(geometry=geometries(8))
def test_the_order_of_use_is_that_of_the_trace(
    tmp_path_factory: pytest.TempPathFactory, geometry: Geometry
) -> None:
    with layouts(tmp_path_factory.mktemp("any"), "any", geometry) as made:
        for part in PARTS:
            assert list(made.traced[part].loaded) == list(made.traced[part].walked)


def test_files_and_walks(found: Layouts) -> None:
    assert {name: Model(path).order for name, path in found.files.items()} == dict(LAYOUTS)
    assert found.files[COPY].read_bytes() == found.files[LAYER].read_bytes()
    for part in PARTS:
        walks = [found.walks[part, layout] for layout in LAYOUTS]
        assert len({walk.digest for walk in walks}) == 1
        assert len({walk.needed_bytes for walk in walks}) == 1
    assert found.walks[EVERY, LAYER].digest != found.walks[ROUTED, LAYER].digest
    with Model(found.files[LAYER]) as model:
        whole = sum(tensor.bytes for tensor in model.tensors if tensor.role is not Role.EMBEDDING)
        bank = sum(tensor.bytes for tensor in model.tensors if tensor.expert is not None)
    assert found.walks[EVERY, LAYER].needed_bytes == whole
    share = SMALL.experts_per_token / SMALL.experts
    assert found.walks[ROUTED, LAYER].needed_bytes == whole - bank * (1 - share)


def test_phase_order_ascends_in_use_outside_the_bank(found: Layouts) -> None:
    with Model(found.files[PHASE]) as model:
        bank = min(tensor.offset for tensor in model.tensors if tensor.expert is not None)
    for layout, ascending in ((PHASE, True), (LAYER, False), (KIND, False)):
        offsets = found.walks[ROUTED, layout].ranges[:, 0].astype(np.int64)
        dense = offsets[offsets < bank]
        assert bool((np.diff(dense) > 0).all()) == ascending, layout


@pytest.mark.parametrize("way", WalkWay)
@pytest.mark.parametrize("part", PARTS)
def test_every_walk_reads_the_bytes_of_the_model(found: Layouts, way: WalkWay, part: str) -> None:
    for layout in LAYOUTS:
        walk = found.walks[part, layout]
        for request_bytes in (4096, 12288, probes.MIB):
            assert probes.walk(walk.path, way, walk.ranges, request_bytes).digest == walk.digest
        backwards = probes.walk(walk.path, way, walk.ranges[::-1])
        assert backwards.digest != walk.digest


def test_the_grid_has_every_condition_once() -> None:
    assert len({condition.label for condition in GRID}) == len(GRID) == 2 * (2 * 2 * 2 + 1)
    assert all((condition.kib is None) == (condition.way is WalkWay.DIRECT) for condition in GRID)


def test_direct_reads_fetch_what_is_needed(cold: Layouts) -> None:
    cells = counted(cold, DIRECT)
    assert list(cells) == [f"{DIRECT.label}: {layout}" for layout in (LAYER, PHASE, KIND)]
    for cell in cells.values():
        assert isinstance(cell, Kernel)
        assert 1.0 <= cell.value < 1.5
        assert cell.inputs["root"] == "not used"


def test_a_walk_over_other_bytes_gives_no_figure(cold: Layouts) -> None:
    wrong = {key: replace(walk, digest=walk.digest ^ 1) for key, walk in cold.walks.items()}
    cells = counted(replace(cold, walks=wrong), DIRECT)
    assert all(isinstance(cell, NotMeasurable) and "other bytes" in cell.reason for cell in cells.values())


def test_a_file_that_does_not_leave_memory_is_refused(
    found: Layouts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cold_walks, "EVICTIONS", 2)
    with Model(found.files[LAYER]) as model:  # mapped and touched: stays
        model.verify()
        with pytest.raises(CacheStateError, match="still resident"):
            take(found.walks[ROUTED, LAYER], DIRECT, None)


def test_walks_that_storage_knows_nothing_of_are_not_measurable(
    cold: Layouts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cold_walks, "process_io", lambda: ProcessIo(0, 0, 0))
    count = list(counted(cold, DIRECT).values())
    took = list(timed(cold, DIRECT, FakeBench(1, 1), "8.time", MIN_ROUNDS).values())  # type: ignore[arg-type]
    assert len(count) == 3 and len(took) == 2
    for cell in (*count, *took):
        assert isinstance(cell, NotMeasurable) and "nothing came from storage" in cell.reason


def test_direct_reads_need_no_readahead_to_be_known(cold: Layouts, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ReadAheadError("lies on no block device")

    monkeypatch.setattr(cold_walks, "read_ahead", refuse)
    assert all(isinstance(cell, Kernel) for cell in counted(cold, DIRECT).values())
    cells = counted(cold, Condition(ROUTED, WalkWay.MMAP, 128, False))
    assert all(cell == NotMeasurable("lies on no block device") for cell in cells.values())


def test_ctrl_c_leaves_out_the_conditions_that_follow(found: Layouts) -> None:
    seen: list[Condition] = []

    def one(_: Layouts, condition: Condition) -> dict[str, Timed | NotMeasurable]:
        seen.append(condition)
        side = Side(LAYER, "bandwidth")
        cell = Timed(Figure(side, side), 1, 12, len(seen) == 2, (), ())
        return {f"{condition.label}: {layout}": cell for layout in (PHASE, KIND)}

    cells = all_conditions(lambda _: found, "64 MB", GRID[:4], (PHASE, KIND), one)
    assert seen == list(GRID[:2])
    assert cells[f"{GRID[3].label}: {KIND}"] == NotMeasurable("the run was interrupted before this row")


def test_little_ram_is_another_process(cold: Layouts) -> None:
    condition = Condition(ROUTED, WalkWay.BUFFERED, 8192, True)
    try:
        with setting(cold, replace(condition, little_ram=False)) as held:
            inputs = held.inputs(cold, condition)
            assert (inputs["read_ahead_kb"], inputs["memory_limit_bytes"]) == (8192, None)
        with memory_limit(64 << 20) as group:
            taken = take(cold.walks[ROUTED, KIND], condition, group)
    except (MemoryLimitError, ReadAheadError) as error:
        pytest.skip(str(error))
    assert taken.digest == cold.walks[ROUTED, KIND].digest
    assert taken.device_bytes >= cold.walks[ROUTED, KIND].needed_bytes
    assert taken.resident == 0.0


def test_timed_cells_share_their_rounds(cold: Layouts) -> None:
    cells = timed(cold, DIRECT, FakeBench(1, 1), "8.time", MIN_ROUNDS)  # type: ignore[arg-type]
    assert list(cells) == [f"{DIRECT.label}: {layout}" for layout in (PHASE, KIND)]
    phase, kind = cells.values()
    assert isinstance(phase, Timed) and isinstance(kind, Timed)
    assert phase.rounds == kind.rounds
    assert (phase.figure.subject.arm, kind.figure.subject.arm) == (PHASE, KIND)
    control = next(arm for arm in phase.arms if arm.control_of)
    assert (control.control_of, COPY in control.description) == (LAYER, True)
    assert all(sample.sample.resident == 0.0 for one in phase.rounds for sample in one.samples.values())


def test_the_second_opinion_accepts_rounds_of_two_layouts(cold: Layouts, tmp_path: Path) -> None:
    registry = load_registry(REGISTRY_PATH)
    info = RunInfo("quick", {"only": ["8.time"]}, None, None, "pytest")
    recorder = Recorder.open(tmp_path / "run", registry, info, {}, MACHINE)
    started_ns = time.monotonic_ns()
    cells = timed(cold, DIRECT, FakeBench(1, 1), "8.time", MIN_ROUNDS)  # type: ignore[arg-type]
    others = {cell.label: NotMeasurable("left out") for cell in registry.check("8.time").cells}
    recorder.add("8.time", {**others, **cells}, started_ns=started_ns, command="pytest")
    recorder.close()
    assert check(tmp_path / "run")["problems"] == []


def test_orders_have_their_names() -> None:
    assert set(LAYOUTS.values()) == set(Order)


def test_fewer_bytes_compares_each_layout_with_layer_major() -> None:
    def cell(fetched: int) -> Kernel:
        observations = {"device_bytes": fetched, "needed_bytes": 100, "ns": 5}
        return Kernel("counted", observations, Reduction("ratio", ("device_bytes", "needed_bytes")))

    sizes = {LAYER: 220, PHASE: 110, KIND: 440}
    cells: dict[str, Kernel | NotMeasurable] = {
        f"{condition.label}: {layout}": cell(size) for condition in GRID for layout, size in sizes.items()
    }
    cells[f"{GRID[0].label}: {LAYER}"] = NotMeasurable("no disk")
    cells[f"{GRID[1].label}: {KIND}"] = NotMeasurable("no limit")
    found = fewer_bytes(cells)
    assert len(found) == 2 * len(GRID)
    for condition in GRID:
        by_phase, by_kind = (found[f"{condition.label}: {layout}"] for layout in (PHASE, KIND))
        if condition is GRID[0]:
            assert by_phase == by_kind == NotMeasurable("no disk")
        else:
            assert isinstance(by_phase, Kernel) and by_phase.value == 2.0
            if condition is GRID[1]:
                assert by_kind == NotMeasurable("no limit")
            else:
                assert isinstance(by_kind, Kernel) and by_kind.value == 0.5
