"""Option stream_bytes: weights outside the bank through a ring, with the bits of every other residency."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.enums import Fault, Order, Param, PieceKind, Reader, ReadPath, Role, Verify
from engine.errors import (
    ChecksumError,
    FileError,
    MemoryExhaustedError,
    NonFiniteError,
)
from engine.faults import ALL, faults
from engine.geometry import Geometry
from engine.model import Model
from engine.native import fault_library
from engine.reorder import reorder
from engine.session import OptionValue, Session
from tests.engine.experts import PAGE_BYTES, State, prompt_of
from tests.engine.models import geometries, write_random_model

CONTEXT = 24
MIB = 1 << 20
DENSE = "d=64,layers=6,heads=2,ffn=192,vocab=700,context=64,experts=0,top_k=0"
MIXED = (
    "d=64,layers=6,blocks=3,heads=2,ffn=64,experts=8,top_k=2,expert_hidden=96,vocab=300,context=64,dd=1,de=2"
)
ROLES = {
    PieceKind.QKV: Role.ATTN_QKV,
    PieceKind.OUTPUT: Role.ATTN_OUTPUT,
    PieceKind.GATE_UP: Role.FFN_GATE_UP,
    PieceKind.DOWN: Role.FFN_DOWN,
    PieceKind.ROUTER: Role.ROUTER,
    PieceKind.HEAD: Role.HEAD,
}


@pytest.fixture(scope="module", params=[DENSE, MIXED], ids=["dense", "mixed"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    path = tmp_path_factory.mktemp("stream") / "m.cflow"
    with Model(write_random_model(path, Geometry.parse(request.param), seed=6)) as opened:
        yield opened


def least_ring(model: Model, **options: OptionValue) -> int:
    """Bytes of the smallest ring, as the message says that refuses a smaller one."""
    with pytest.raises(
        MemoryExhaustedError, match=r"option stream_bytes is 1; .* needs at least \d+"
    ) as refused:
        Session(model, residency="direct", stream_bytes=1, **options)
    return int(re.findall(r"at least (\d+)", str(refused.value))[0])


def streamed(model: Model, ring_bytes: int = 0, **options: OptionValue) -> Session:
    ring_bytes = ring_bytes or least_ring(model, **options)
    return Session(model, residency="direct", stream_bytes=ring_bytes, **options)


def streamed_bytes(session: Session, model: Model) -> tuple[int, int]:
    """Bytes that one token reads through the ring, in whole pages: without its head, and of the head."""
    places = {(tensor.role, tensor.block): tensor for tensor in model.tensors if tensor.expert is None}
    body = head = 0
    for piece in session.schedule():
        block = None if piece.layer is None else piece.layer % model.param(Param.BLOCKS)
        tensor = places.get((ROLES[piece.kind], block)) if piece.kind in ROLES else None
        if tensor is not None:
            first, last = tensor.offset // PAGE_BYTES, -(-(tensor.offset + tensor.bytes) // PAGE_BYTES)
            size = (last - first) * PAGE_BYTES
            body, head = (body, head + size) if piece.kind is PieceKind.HEAD else (body + size, head)
    return body, head


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    geometry=geometries(CONTEXT),
    threads=st.integers(1, 3),
    spare=st.sampled_from([0, 4096, 40_960, 3 * MIB]),
    reader=st.sampled_from([Reader.AUTO, Reader.THREADS]),
    request_bytes=st.sampled_from([4096, 65_536, MIB]),
    verify=st.sampled_from(list(Verify)),
)
def test_bits_are_those_of_the_mapping(
    tmp_path_factory: pytest.TempPathFactory,
    geometry: Geometry,
    threads: int,
    spare: int,
    reader: Reader,
    request_bytes: int,
    verify: Verify,
) -> None:
    path = write_random_model(tmp_path_factory.mktemp("bits") / "m.cflow", geometry, seed=1)
    with Model(path) as model:
        prompt = prompt_of(model, 5)
        State(
            model,
            prompt,
            residency="direct",
            stream_bytes=least_ring(model) + spare,
            threads=threads,
            reader=reader,
            read_bytes=request_bytes,
            verify=verify,
        ).assert_equal(State(model, prompt, threads=1))


@pytest.mark.parametrize("order", [Order.PHASE, Order.KIND])
def test_files_in_another_order_stream_the_same(model: Model, tmp_path: Path, order: Order) -> None:
    path = tmp_path / "m.vflow"
    reorder(Path(model.path), path, order)
    prompt = prompt_of(model, 4)
    with Model(path) as other:
        least = least_ring(other)
        State(other, prompt, residency="direct", stream_bytes=least).assert_equal(State(model, prompt))


def test_each_weight_is_read_once_for_each_token(model: Model) -> None:
    routed = {}
    for streams in (False, True):
        with streamed(model, MIB * 2) if streams else Session(model, residency="direct") as session:
            session.decode(prompt_of(model, 5))
            routed[streams, "decode"] = session.counters()["asked_bytes"]
            session.reset_counters()
            session.generate(1, 4)
            counters = session.counters()
            routed[streams, "generate"] = counters["asked_bytes"]
            if not streams:
                continue
            body, head = streamed_bytes(session, model)
            assert routed[True, "decode"] - routed[False, "decode"] == 5 * body + head
            assert routed[True, "generate"] - routed[False, "generate"] == 4 * (body + head)
            if session.options["read_path"] == ReadPath.DIRECT and counters["device_bytes"]:
                assert counters["device_bytes"] == counters["asked_bytes"]
            assert 0 < counters["io_wait_ns"] <= counters["wall_ns"]


@pytest.mark.parametrize("threads", [1, 2])
def test_waiting_for_the_ring_is_counted_once(model: Model, threads: int) -> None:
    # A fifth of a second of waiting: counted as waiting at a barrier, too, it would not fit into the call.
    with streamed(model, threads=threads) as session:
        body, head = streamed_bytes(session, model)
    with streamed(model, threads=threads, read_rate=5 * (body + head)) as session:
        started_ns = time.monotonic_ns()
        session.decode(prompt_of(model, 1))
        elapsed_ns = time.monotonic_ns() - started_ns
        counters = session.counters()
    others = ["attention_ns", "dense_ns", "expert_ns", "router_ns", "head_ns", "vector_ns", "barrier_ns"]
    spent_ns = sum(counters[name] for name in others) + threads * counters["io_wait_ns"]
    assert spent_ns <= threads * elapsed_ns


def test_what_is_streamed_is_not_in_memory(model: Model) -> None:
    with Session(model, residency="direct") as copied, streamed(model) as session:
        body, head = streamed_bytes(session, model)
        ring = session.options["stream_bytes"]
        # Both hold whole pages; a gap between copied tensors may cost one.
        slack = 2 * PAGE_BYTES * len(model.tensors)
        saved = (body + head) // (2 if model.param(Param.BLOCKS) < model.param(Param.LAYERS) else 1)
        assert copied.memory_bytes()[1] + ring - saved - slack <= session.memory_bytes()[1]
        assert session.memory_bytes()[1] <= copied.memory_bytes()[1] + ring - saved + slack + 2 * MIB


def test_the_ring_counts_towards_the_budget(model: Model) -> None:
    with streamed(model) as session:
        needed = session.memory_bytes()[1]
    with pytest.raises(MemoryExhaustedError, match=r"option ram_budget is \d+ bytes"):
        streamed(model, 4 * needed, ram_budget=needed)


def test_no_more_memory_is_taken_than_is_of_use(model: Model) -> None:
    with Session(model, residency="direct") as copied, streamed(model, 1 << 40) as session:
        largest = max(tensor.bytes for tensor in model.tensors if tensor.expert is None) + 2 * PAGE_BYTES
        assert session.memory_bytes()[1] <= copied.memory_bytes()[1] + 65 * largest + 2 * MIB
    expected = State(model, prompt_of(model, 5))
    State(model, prompt_of(model, 5), residency="direct", stream_bytes=1 << 40).assert_equal(expected)


def test_a_session_without_it_streams_nothing(model: Model) -> None:
    for residency in ("mmap", "copy"):
        with Session(model, residency=residency, stream_bytes=MIB) as session:
            assert session.options["stream_bytes"] == 0


@pytest.mark.parametrize("reader", [Reader.AUTO, Reader.THREADS])
@pytest.mark.parametrize("kind", [Fault.SHORT, Fault.AGAIN, Fault.INTERRUPTED, Fault.DELAY])
def test_faults_that_pass_change_nothing(model: Model, reader: Reader, kind: Fault) -> None:
    prompt = prompt_of(model, 3)
    expected = State(model, prompt)
    with fault_library(), Model(model.path) as faulty:
        ring_bytes = least_ring(faulty)
        with faults(kind, after=3, count=4):
            found = State(faulty, prompt, residency="direct", stream_bytes=ring_bytes, reader=reader)
    found.assert_equal(expected)


@pytest.mark.parametrize("reader", [Reader.AUTO, Reader.THREADS])
@pytest.mark.parametrize("after", [0, 5, 23])
def test_a_failed_read_ends_the_token_and_names_the_weight(model: Model, reader: Reader, after: int) -> None:
    prompt = prompt_of(model, 4)
    expected = State(model, prompt)
    with fault_library(), Model(model.path) as faulty, streamed(faulty, reader=reader) as session:
        with faults(Fault.ERROR, after=after, count=ALL), pytest.raises(FileError) as failed:
            session.decode(prompt)
        assert re.search(
            r"token at position \d+: .*m\.cflow: read of \d+ bytes at offset \d+ \(.+\): Input/output error",
            str(failed.value),
        )
        # Nothing of it is taken for valid: the same session goes on as a new one.
        session.reset()
        assert np.array_equal(session.decode(prompt).view(np.uint32), expected.logits)


def test_a_session_goes_on_after_a_token_that_failed(model: Model) -> None:
    prompt = prompt_of(model, 6)
    with Session(model) as whole:
        expected = whole.decode(prompt)
    with fault_library(), Model(model.path) as faulty, streamed(faulty) as session:
        session.decode(prompt[:2])
        with faults(Fault.END, after=7, count=1), pytest.raises(FileError, match="the file ended"):
            session.decode(prompt[2:])
        assert np.array_equal(session.decode(prompt[session.position :]), expected)


def spoil(path: Path, role: Role, value: bytes) -> str:
    """Overwrites the first bytes of a tensor of this role; returns its name."""
    with Model(path) as model:
        tensor = next(tensor for tensor in model.tensors if tensor.role is role)
    with path.open("r+b") as file:
        file.seek(tensor.offset)
        file.write(value)
    return tensor.name


@pytest.mark.parametrize("verify", list(Verify))
def test_a_wrong_byte_is_found_unless_nobody_looks(tmp_path: Path, verify: Verify) -> None:
    path = write_random_model(tmp_path / "m.cflow", Geometry.parse(DENSE), seed=2)
    name = spoil(path, Role.FFN_DOWN, b"\x01")
    with Model(path) as model, streamed(model, verify=verify) as session:
        if verify is Verify.NEVER:
            session.decode([1])
            return
        with pytest.raises(ChecksumError, match=f"tensor {re.escape(name)} does not match its hash"):
            session.decode([1])


def test_a_value_that_is_not_finite_ends_the_call_with_nothing_under_way(tmp_path: Path) -> None:
    path = write_random_model(tmp_path / "m.cflow", Geometry.parse(DENSE), seed=2)
    spoil(path, Role.ATTN_OUTPUT, b"\x00\x7e" * 16)
    with Model(path) as model, streamed(model, 4 * MIB, verify=Verify.NEVER) as session:
        for _ in range(2):
            with pytest.raises(NonFiniteError, match="position 0"):
                session.decode([1, 2, 3])
