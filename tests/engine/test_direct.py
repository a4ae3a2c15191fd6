"""Experts read from the file: the bits of every other residency, the schedule, what is read and kept."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from engine.enums import (
    ExpertAdvice,
    ExpertReads,
    Option,
    Order,
    Param,
    PieceKind,
    Reader,
    ReadPath,
    Role,
    Stream,
    Type,
    Verify,
)
from engine.errors import ArgumentError, MemoryExhaustedError
from engine.geometry import Geometry
from engine.model import Model
from engine.reorder import reorder
from engine.session import OptionValue, Piece, Session
from engine.synth import synthesise
from harness.cachestate import residency
from harness.counters import process_io
from tests.engine.experts import State, asked_bytes, blobs, prompt_of
from tests.engine.models import geometries, write_random_model

CONTEXT = 24
NAMES = [
    "tiny_standard",
    "tiny_arch1",
    "tiny_arch2_4_combined",
    "tiny_arch2_4_sync",
    "tiny_arch3",
    "tiny_arch4",
]
MIB = 1 << 20


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """16 experts in each of 4 blocks that 8 layers share; every expert fills whole pages but the last."""
    geometry = Geometry.parse(
        "d=64,layers=8,blocks=4,heads=2,ffn=64,experts=16,top_k=3,expert_hidden=96,vocab=300,context=64,dd=1,de=2"
    )
    path = write_random_model(tmp_path_factory.mktemp("direct") / "m.cflow", geometry, seed=5)
    with Model(path) as opened:
        yield opened


def direct(model: Model, **options: OptionValue) -> Session:
    return Session(model, residency="direct", **options)


def skip_unless_counted(session: Session) -> None:
    if session.option(Option.READ_PATH) != ReadPath.DIRECT or process_io() is None:
        pytest.skip("the file system of the temporary folder has no device whose reads are counted")


# ---- bits ----


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("reader", ["auto", "threads"])
@pytest.mark.parametrize("reads", list(ExpertReads), ids=lambda reads: reads.name.lower())
def test_bits_are_those_of_the_mapping(tmp_path: Path, name: str, reader: str, reads: ExpertReads) -> None:
    path = write_random_model(tmp_path / "m.cflow", Geometry.named(name), seed=4)
    with Model(path) as model:
        prompt = prompt_of(model, 6)
        expected = State(model, prompt, threads=1)
        State(model, prompt, threads=2, residency="copy").assert_equal(expected)
        for threads in (1, 2, 3):
            State(
                model, prompt, threads=threads, residency="direct", expert_reads=reads, reader=reader
            ).assert_equal(expected)


@settings(max_examples=60)
@given(
    geometry=geometries(context=CONTEXT),
    kind=st.sampled_from([Type.Q4_0, Type.Q8_0, Type.F16]),
    tile=st.sampled_from([(128, 256), (16, 32)]),
    count=st.integers(1, 8),
    threads=st.integers(1, 3),
    options=st.fixed_dictionaries(
        {
            "expert_reads": st.sampled_from(["staged", "sync"]),
            "reader": st.sampled_from(["auto", "threads"]),
            "read_path": st.sampled_from(["direct", "buffered"]),
            "read_bytes": st.sampled_from([4096, 12288, 1 << 20]),
            "verify": st.sampled_from(["first", "always", "never"]),
            "ram_budget": st.sampled_from([0, 64 * MIB, 1 << 40]),
            "read_all_experts": st.integers(0, 1),
        }
    ),
)
def test_any_shape_and_any_way_of_reading(
    tmp_path_factory: pytest.TempPathFactory,
    geometry: Geometry,
    kind: Type,
    tile: tuple[int, int],
    count: int,
    threads: int,
    options: dict[str, OptionValue],
) -> None:
    assume(geometry.experts > 0)
    types = {role: Type.F32 if role is Role.ROUTER else kind for role in Role}
    path = write_random_model(tmp_path_factory.mktemp("shape") / "m.cflow", geometry, 3, types, *tile)
    with Model(path) as model:
        prompt = prompt_of(model, count)
        # Token by token, too: a chunk counts each of its weights once.
        expected = State(model, prompt, threads=1, prompt_batch=1)
        state = State(model, prompt, threads=threads, residency="direct", **options)
        state.assert_equal(expected)
        for name in ("attention", "dense", "expert", "router", "embedding"):
            assert state.counters[f"{name}_bytes"] == expected.counters[f"{name}_bytes"] or (
                options["read_all_experts"] and name == "expert"
            )


def test_the_kernel_can_be_advised_instead(model: Model) -> None:
    prompt = prompt_of(model, 7)
    expected = State(model, prompt)
    for batch in (1, 4):
        State(model, prompt, expert_advice="willneed", prompt_batch=batch).assert_equal(expected)


@pytest.mark.parametrize("order", list(Order), ids=lambda order: order.name.lower())
def test_the_bank_may_lie_anywhere(model: Model, tmp_path: Path, order: Order) -> None:
    """By kind, the experts of all blocks lie between the kinds of the rest."""
    prompt = prompt_of(model, 5)
    expected = State(model, prompt)
    with Model(reordered(model.path, tmp_path / "m.vflow", order)) as other:
        for budget in (0, 1 << 40):
            State(other, prompt, residency="direct", ram_budget=budget).assert_equal(expected)


def reordered(source: Path, target: Path, order: Order) -> Path:
    reorder(source, target, order)
    return target


def test_a_file_that_is_replaced_while_it_is_open(model: Model, tmp_path: Path) -> None:
    """Reads go to the file that was opened, whatever its path names by now."""
    path = tmp_path / "m.cflow"
    shutil.copy(model.path, path)
    prompt = prompt_of(model, 4)
    expected = State(model, prompt)
    with Model(path) as opened:
        other = write_random_model(tmp_path / "other.cflow", Geometry.named("tiny_dense"), seed=1)
        other.replace(path)
        State(opened, prompt, residency="direct").assert_equal(expected)


# ---- options ----


def test_options_are_reported_as_they_act(model: Model, tmp_path: Path) -> None:
    with direct(model, read_rate=10**9, ram_budget=1 << 40, expert_advice="willneed") as session:
        options = session.options
        assert options["reader"] in (Reader.IO_URING, Reader.THREADS)
        assert options["prompt_batch"] == 1
        assert options["expert_advice"] == ExpertAdvice.NONE
        assert options["read_rate"] == 10**9
    with Session(model, expert_reads="sync", reader="threads", verify="never", ram_budget=5) as session:
        options = session.options
        assert options["expert_reads"] == ExpertReads.STAGED
        assert options["reader"] == Reader.AUTO
        assert options["verify"] == Verify.FIRST
        assert options["ram_budget"] == 0
    dense = write_random_model(tmp_path / "dense.cflow", Geometry.named("tiny_dense"), seed=1)
    with Model(dense) as without, direct(without, reader="threads") as session, Session(without) as mapped:
        assert session.option(Option.READER) == Reader.AUTO
        np.testing.assert_array_equal(session.decode([1, 2]), mapped.decode([1, 2]))
        with pytest.raises(ArgumentError, match="needs option residency = direct and a model with experts"):
            session.read_experts(np.zeros((1, without.param(Param.LAYERS), 0), np.int32))


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"read_bytes": 4095}, "option read_bytes is 4095; allowed: 4096 to 16777216"),
        ({"read_bytes": 5000}, "option read_bytes is 5000; allowed: multiples of 4096"),
        ({"verify": "sometimes"}, "option verify: 'sometimes' found, allowed: first, always, never"),
        ({"layout": "row_major"}, "row-major needs option residency = copy"),
    ],
)
def test_wrong_options_are_named(model: Model, options: dict[str, OptionValue], fault: str) -> None:
    with pytest.raises(ArgumentError, match=fault):
        direct(model, **options)


# ---- the schedule ----


def by_place(session: Session) -> dict[tuple[PieceKind, int | None, int], Piece]:
    return {(piece.kind, piece.layer, piece.slot): piece for piece in session.schedule()}


@settings(max_examples=60)
@given(geometry=geometries(context=CONTEXT))
def test_experts_come_two_phases_before_their_sum(
    tmp_path_factory: pytest.TempPathFactory, geometry: Geometry
) -> None:
    assume(geometry.experts > 0)
    path = write_random_model(tmp_path_factory.mktemp("late") / "m.cflow", geometry, 3)
    with Model(path) as model, direct(model, threads=1) as late, Session(model, threads=1) as early:
        assert late.phase_count == early.phase_count
        found, usual = by_place(late), by_place(early)
        pieces = late.schedule()
        layers, de = geometry.layers, late.option(Option.EXPERT_DELAY)
    assert found.keys() == usual.keys()
    for place, piece in found.items():
        assert all(pieces[other].phase < piece.phase for other in piece.dependencies)
        if piece.stream is Stream.EXPERT:
            assert piece.phase >= usual[place].phase
        else:
            assert piece.phase == usual[place].phase
    for layer in range(layers):
        router = found[PieceKind.ROUTER, layer, 0]
        for slot in range(geometry.experts_per_token):
            gate_up, down = (
                found[kind, layer, slot] for kind in (PieceKind.EXPERT_GATE_UP, PieceKind.EXPERT_DOWN)
            )
            assert router.phase < gate_up.phase == down.phase - 1
            # The next layer reads the sum in the phase in which it is made.
            readers = [piece.phase for piece in pieces if down.index in piece.dependencies]
            if layer + de + 1 < layers:
                assert min(readers) == down.phase + 1


# ---- what is read ----


@pytest.mark.parametrize("reads", ["staged", "sync"])
@pytest.mark.parametrize("read_all", [0, 1])
def test_bytes_are_those_of_the_chosen_experts(model: Model, reads: str, read_all: int) -> None:
    everything = np.tile(np.arange(16, dtype=np.int32), (8, 1))
    with direct(model, expert_reads=reads, read_all_experts=read_all, threads=2) as session:
        for token in prompt_of(model, 5):
            session.reset_counters()
            session.decode([token])
            counters = session.counters()
            routed, _ = session.routing()
            expected = asked_bytes(model, everything if read_all else routed)
            assert counters["asked_bytes"] == expected
            assert counters["expert_hits"] == 0
            assert 0 < counters["io_wait_ns"] <= counters["wall_ns"]
            assert counters["read_ns"] > 0
        skip_unless_counted(session)
        assert counters["device_bytes"] == expected


def test_other_residencies_ask_for_nothing(model: Model) -> None:
    for residency_ in ("mmap", "copy"):
        with Session(model, residency=residency_) as session:
            session.decode(prompt_of(model, 3))
            counters = session.counters()
        for name in ("asked_bytes", "io_wait_ns", "read_ns", "expert_hits"):
            assert counters[name] == 0


def test_times_of_workers_add_up(model: Model) -> None:
    """Each nanosecond of each worker is one stream's, vectors', a barrier's, or storage's."""
    streams = ("attention", "dense", "expert", "router", "head", "vector", "barrier")
    with direct(model, threads=2) as session:
        started_ns = time.monotonic_ns()
        session.generate(1, 20)
        # Of the call: a worker that waits for a processor leaves the last barrier after the token has ended.
        elapsed_ns = time.monotonic_ns() - started_ns
        counters = session.counters()
    spent_ns = sum(counters[f"{name}_ns"] for name in streams) + 2 * counters["io_wait_ns"]
    assert counters["wall_ns"] <= elapsed_ns
    assert spent_ns <= 2 * elapsed_ns


def test_a_trace_names_offsets_of_the_file(model: Model) -> None:
    prompt = prompt_of(model, 4)
    records = []
    for residency_ in ("mmap", "direct"):
        with Session(model, residency=residency_, threads=1, prompt_batch=1) as session:
            session.trace(1 << 14)
            session.decode(prompt)
            found = session.trace_records(0)
        records.append(sorted((int(offset), int(size)) for offset, size in found[:, :2]))
    assert records[0] == records[1]


def test_the_mapping_of_the_experts_is_never_touched(tmp_path: Path) -> None:
    path = tmp_path / "m.cflow"
    synthesise(
        path, Geometry.parse("d=256,layers=4,experts=32,top_k=2,expert_hidden=256,vocab=500,context=64")
    )
    with Model(path) as model:
        bank = min(offset for offset, _ in blobs(model).values())
        with path.open("rb") as file:
            os.fsync(file.fileno())
            # What the open faulted in stays; what its readahead brought beside it goes.
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        before = residency(path, bank).resident_pages
        with direct(model) as session:
            skip_unless_counted(session)
            session.generate(1, 8)
            assert session.counters()["asked_bytes"] > 0
        assert before == 0
        assert residency(path, bank).resident_pages == 0


# ---- what is kept ----


def test_experts_that_fit_are_read_once(model: Model) -> None:
    prompt = prompt_of(model, 6)
    with direct(model, ram_budget=1 << 40) as session:
        session.decode(prompt)
        first = session.counters()
        session.reset()
        session.reset_counters()
        session.decode(prompt)
        second = session.counters()
    uses = len(prompt) * 8 * 3
    assert 0 < first["expert_hits"] < uses
    assert second["expert_hits"] == uses
    assert second["asked_bytes"] == second["io_wait_ns"] == second["device_bytes"] == 0


def least_budget(model: Model, **options: OptionValue) -> int:
    with pytest.raises(MemoryExhaustedError, match="option ram_budget is 1 bytes") as error:
        direct(model, ram_budget=1, **options)
    return int(str(error.value).split("needs at least ")[1].split()[0])


@pytest.mark.parametrize("threads", [1, 2])
def test_a_budget_holds(model: Model, threads: int) -> None:
    prompt = prompt_of(model, 10)
    expected = State(model, prompt)
    least = least_budget(model, threads=threads)
    with pytest.raises(
        MemoryExhaustedError, match=f"{model.path}.* needs at least {least} with these options"
    ):
        direct(model, ram_budget=least - 1, threads=threads)
    asked = []
    for budget in (least, least + 100_000, least + 300_000):
        with direct(model, ram_budget=budget, threads=threads) as session:
            assert session.memory_bytes()[1] <= budget
        state = State(model, prompt, residency="direct", ram_budget=budget, threads=threads)
        state.assert_equal(expected)
        asked.append(state.counters["asked_bytes"])
    assert asked[0] > asked[1] > asked[2] > 0


def test_memory_counts_what_is_kept(model: Model) -> None:
    sizes = []
    for options in ({}, {"ram_budget": 1 << 40}):
        with direct(model, **options) as session:
            sizes.append(session.memory_bytes()[1])
    assert sizes[1] - sizes[0] >= sum(size for _, size in blobs(model).values()) // 2


# ---- reading alone ----


def test_experts_can_be_read_without_computing(model: Model) -> None:
    prompt = prompt_of(model, 4)
    with direct(model, threads=2) as session:
        routed = []
        for token in prompt:
            logits = session.decode([token])
            routed.append(session.routing()[0])
        session.reset_counters()
        elapsed = session.read_experts(np.stack(routed))
        counters = session.counters()
        assert elapsed > 0
        assert counters["asked_bytes"] == sum(asked_bytes(model, one) for one in routed)
        assert counters["tokens"] == counters["expert_bytes"] == 0
        np.testing.assert_array_equal(session.logits(), logits)
        np.testing.assert_array_equal(session.routing()[0], routed[-1])
        with Session(model) as mapped:
            mapped.decode(prompt)
            np.testing.assert_array_equal(session.decode([7]), mapped.decode([7]))
        skip_unless_counted(session)
        assert counters["device_bytes"] == counters["asked_bytes"]


@pytest.mark.parametrize("ram_budget", [0, 1 << 40])
def test_an_expert_named_twice_does_not_wait_for_itself(model: Model, ram_budget: int) -> None:
    same = np.full((3, 8, 3), 5, dtype=np.int32)
    with direct(model, ram_budget=ram_budget) as session:
        session.read_experts(same)
        counters = session.counters()
        # Kept: each of the 4 blocks' once. Not kept: every use.
        reads = 4 if ram_budget else 3 * 8 * 3
        assert counters["asked_bytes"] == reads * asked_bytes(model, same[0, :1, :1])
        assert counters["expert_hits"] == 3 * 8 * 3 - 4 if ram_budget else counters["expert_hits"] == 0


def test_wrong_experts_are_named(model: Model) -> None:
    with direct(model) as session:
        with pytest.raises(
            ArgumentError, match=r"experts: shape \(2, 8, 2\) found, \(tokens, 8, 3\) is needed"
        ):
            session.read_experts(np.zeros((2, 8, 2), np.int32))
        with pytest.raises(ArgumentError, match="expert 4 is 16; allowed: 0 to 15"):
            session.read_experts(np.array([[[0, 1, 2], [3, 16, 5]] + [[0, 1, 2]] * 6], np.int32))
        with pytest.raises(ArgumentError, match="no tokens"):
            session.read_experts(np.zeros((0, 8, 3), np.int32))
    with Session(model) as mapped, pytest.raises(ArgumentError, match="residency = direct"):
        mapped.read_experts(np.zeros((1, 8, 3), np.int32))
