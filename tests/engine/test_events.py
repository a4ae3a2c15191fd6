"""Events of tokens: every phase of the schedule once per worker, and the sums that the counters hold."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.enums import EventKind, Fault, Option, PieceKind, Reader, Stream
from engine.errors import ArgumentError, CancelledError, FileError, MemoryExhaustedError
from engine.events import Event, Recording, recording
from engine.faults import ALL, faults
from engine.geometry import Geometry
from engine.model import Model
from engine.native import fault_library
from engine.session import OptionValue, Session
from tests.engine.experts import prompt_of
from tests.engine.models import geometries, write_random_model

CONTEXT = 24
CAPACITY = 1 << 14
MIB = 1 << 20
MIXED = (
    "d=64,layers=6,blocks=3,heads=2,ffn=64,experts=8,top_k=2,expert_hidden=96,vocab=300,context=64,dd=1,de=2"
)
WAYS: list[dict[str, OptionValue]] = [
    {"residency": "mmap"},
    {"residency": "copy"},
    {"residency": "direct"},
    {"residency": "direct", "expert_reads": "sync"},
    {"residency": "direct", "reader": "threads", "ram_budget": 1 << 40},
    {"residency": "direct", "read_rate": 200_000_000},
    {"residency": "direct", "read_bytes": 4096, "stream_bytes": 4 * MIB, "reader": "threads"},
    {"residency": "direct", "stream_bytes": 4 * MIB, "expert_reads": "sync"},
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_model(tmp_path_factory.mktemp("events") / "m.cflow", Geometry.parse(MIXED), seed=6)


@pytest.fixture
def model(path: Path) -> Iterator[Model]:
    with Model(path) as opened:
        yield opened


def of(kind: EventKind, events: Sequence[Event]) -> list[Event]:
    return [event for event in events if event.kind is kind]


def total_ns(events: Sequence[Event]) -> int:
    return sum(event.ns for event in events)


def shared_ns(event: Event, others: Sequence[Event]) -> int:
    """Of its time, what others, which do not overlap, take as well."""
    pairs = ((max(event.start_ns, other.start_ns), min(event.end_ns, other.end_ns)) for other in others)
    return sum(max(0, end - start) for start, end in pairs)


def covered_ns(events: Sequence[Event]) -> int:
    """Time in which there is at least one of them."""
    covered, until = 0, 0
    for event in sorted(events, key=lambda one: one.start_ns):
        covered += max(0, event.end_ns - max(event.start_ns, until))
        until = max(until, event.end_ns)
    return covered


def assert_describes(found: Recording, elapsed: Sequence[int]) -> None:
    """All that events promise of whole tokens, since the counters were reset. elapsed: ns of each token."""
    session = found.session
    schedule, counters, shared = session.schedule(), session.counters(), found.shared()
    workers = [found.worker(thread) for thread in range(session.threads)]
    tokens = {event.token: event for event in of(EventKind.TOKEN, shared)}
    waits = of(EventKind.READ_WAIT, shared)
    assert [token.ns for token in tokens.values()] == list(elapsed)
    assert sum(elapsed) == counters["wall_ns"]
    for events in workers:
        assert all(one.end_ns <= next_.start_ns for one, next_ in itertools.pairwise(events))
        for position, token in tokens.items():
            assert_one_token([event for event in events if event.token == position], token, session)
    everything = [event for events in workers for event in events]
    assert total_ns(of(EventKind.VECTOR, everything)) == counters["vector_ns"]
    for stream in Stream:
        own = [
            event for event in of(EventKind.PIECE, everything) if schedule[event.piece or 0].stream is stream
        ]
        assert total_ns(own) == counters[f"{stream.name.lower()}_ns"]
    barriers = of(EventKind.BARRIER, everything)
    assert total_ns(barriers) - sum(shared_ns(one, waits) for one in barriers) == counters["barrier_ns"]
    assert total_ns(waits) == counters["io_wait_ns"]
    reads = of(EventKind.READ, shared)
    assert sum(read.bytes for read in reads) == counters["asked_bytes"]
    if session.option(Option.READER) == Reader.THREADS:  # its threads know of the end before the session does
        assert covered_ns(reads) <= counters["read_ns"]
    else:
        assert covered_ns(reads) == counters["read_ns"]
    assert_reads_are_there(reads, waits, of(EventKind.PIECE, everything), session)


def assert_one_token(events: Sequence[Event], token: Event, session: Session) -> None:
    """The phases of the schedule in order, each piece once, one barrier at the end of each phase."""
    schedule = session.schedule()
    assert all(token.start_ns <= event.start_ns and event.start_ns <= event.end_ns for event in events)
    assert all(event.end_ns <= token.end_ns for event in events[:-1])
    assert events[-1].kind is EventKind.BARRIER and events[-1].end_ns >= token.end_ns
    phases = [event.phase for event in events]
    assert phases == sorted(phase for phase in phases if phase is not None)
    pieces = [event.piece for event in of(EventKind.PIECE, events)]
    assert sorted(piece for piece in pieces if piece is not None) == [piece.index for piece in schedule]
    for event in events:
        assert event.bytes == 0
        if event.piece is not None:
            assert event.phase == schedule[event.piece].phase
    every = set(range(session.phase_count))
    for kind in (EventKind.VECTOR, EventKind.BARRIER):
        ends = Counter(event.phase for event in of(kind, events) if event.piece is None)
        assert ends == Counter(every)
    in_front = [event for event in of(EventKind.BARRIER, events) if event.piece is not None]
    assert all(schedule[event.piece or 0].kind is PieceKind.EXPERT_GATE_UP for event in in_front)
    with_experts = {piece.phase for piece in schedule if piece.kind is PieceKind.EXPERT_GATE_UP}
    late = session.options["residency"] == 2
    assert [event.phase for event in in_front] == (sorted(with_experts) if late else [])


def assert_reads_are_there(
    reads: Sequence[Event], waits: Sequence[Event], pieces: Sequence[Event], session: Session
) -> None:
    """Reads end before the piece that they are for begins, and with the wait for them at the latest."""
    schedule = session.schedule()
    begins = {
        key: min(event.start_ns for event in group)
        for key, group in itertools.groupby(
            sorted(pieces, key=lambda event: (event.token, event.piece or 0)),
            key=lambda event: (event.token, event.piece),
        )
    }
    assert len(reads) == len(waits)
    for read, wait in zip(reads, waits, strict=True):
        assert (read.token, read.phase, read.piece) == (wait.token, wait.phase, wait.piece)
        assert read.piece is not None and read.phase == schedule[read.piece].phase
        assert read.ns > 0 and read.start_ns <= wait.end_ns
        assert read.end_ns <= wait.end_ns <= begins[read.token, read.piece]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: ",".join(f"{key}={way[key]}" for key in way))
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_every_way_of_decoding(model: Model, way: dict[str, OptionValue], threads: int) -> None:
    with Session(model, threads=threads, **way) as session, recording(session, CAPACITY) as found:
        session.reset_counters()
        _, elapsed = session.generate(5, 4)
        assert_describes(found, [int(ns) for ns in elapsed])


@settings(max_examples=40)
@given(
    geometry=geometries(context=CONTEXT),
    threads=st.integers(1, 3),
    way=st.sampled_from(WAYS[:6]),
    count=st.integers(1, 3),
)
def test_any_shape(
    tmp_path_factory: pytest.TempPathFactory,
    geometry: Geometry,
    threads: int,
    way: dict[str, OptionValue],
    count: int,
) -> None:
    path = write_random_model(tmp_path_factory.mktemp("shape") / "m.cflow", geometry, 3)
    with Model(path) as model, Session(model, threads=threads, **way) as session:
        expected, _ = session.generate(0, count)
        session.reset()
        session.reset_counters()
        with recording(session, CAPACITY) as found:
            tokens, elapsed = session.generate(0, count)
            assert_describes(found, [int(ns) for ns in elapsed])
        np.testing.assert_array_equal(tokens, expected)


def test_tokens_are_named_by_their_positions(model: Model) -> None:
    with Session(model, threads=2, prompt_batch=1) as session, recording(session, CAPACITY) as found:
        session.decode(prompt_of(model, 3))
        session.generate(5, 2)
        assert [event.token for event in of(EventKind.TOKEN, found.shared())] == [0, 1, 2, 3, 4]
        found.clear()
        assert found.shared() == found.worker(0) == found.worker(1) == []
        session.decode([7])
        assert {event.token for event in found.worker(1)} == {5}


def test_the_head_is_left_out_where_no_logits_are_wanted(model: Model) -> None:
    with Session(model, prompt_batch=1) as session, recording(session, CAPACITY) as found:
        session.decode(prompt_of(model, 2))
        heads = [piece.index for piece in session.schedule() if piece.kind is PieceKind.HEAD]
        with_head = {event.token for event in found.worker(0) if event.piece in heads}
    assert with_head == {1}


def test_chunks_of_a_prompt_record_nothing(model: Model) -> None:
    with Session(model, threads=2, prompt_batch=4) as session, recording(session, CAPACITY) as found:
        session.decode(prompt_of(model, 5))
        assert {event.token for event in found.shared()} == {4}
        assert {event.token for event in found.worker(1)} == {4}


def test_a_pure_read_records_nothing(model: Model) -> None:
    routing = np.zeros((1, 6, 2), np.int32)
    routing[..., 1] = 1
    with Session(model, residency="direct") as session, recording(session, CAPACITY) as found:
        session.read_experts(routing)
        assert found.shared() == found.worker(0) == []
        session.generate(5, 1)
        assert len(of(EventKind.READ, found.shared())) == 12


def test_what_does_not_fit_is_told(model: Model) -> None:
    with Session(model, threads=1) as session:
        with recording(session, CAPACITY) as found:
            session.generate(5, 1)
            events = found.worker(0)
        with recording(session, len(events) - 1) as found:
            session.generate(5, 1)
            with pytest.raises(
                ArgumentError,
                match=f"capacity is {len(events) - 1} events; {len(events)} were made in lane 0",
            ):
                found.worker(0)
            assert len(found.shared()) == 1
        with recording(session, len(events)) as found:
            session.generate(5, 1)
            assert [event.piece for event in found.worker(0)] == [event.piece for event in events]


def test_nothing_is_recorded_but_inside(model: Model) -> None:
    with Session(model, threads=1) as session:
        with recording(session, CAPACITY) as found:
            session.generate(5, 1)
        assert found.worker(0) == found.shared() == []
        session.generate(5, 1)
        assert found.worker(0) == found.shared() == []


@pytest.mark.parametrize("capacity", [0, -1])
def test_capacities_that_hold_nothing_are_refused(model: Model, capacity: int) -> None:
    with (
        Session(model) as session,
        pytest.raises(ArgumentError, match=f"capacity is {capacity} events, must be 1 or more"),
        recording(session, capacity),
    ):
        pass


def test_memory_that_is_not_there(model: Model) -> None:
    with Session(model) as session:
        with (
            pytest.raises(MemoryExhaustedError, match="events per lane"),
            recording(session, 1 << 60),
        ):
            pass
        session.generate(5, 1)


@pytest.mark.parametrize("reader", ["auto", "threads"])
@pytest.mark.parametrize("reads", ["staged", "sync"])
def test_failed_reads_and_broken_off_tokens_are_none(path: Path, reader: str, reads: str) -> None:
    with (
        fault_library(),
        Model(path) as model,
        Session(model, residency="direct", reader=reader, expert_reads=reads) as session,
        recording(session, CAPACITY) as found,
    ):
        with faults(Fault.ERROR, after=3, count=ALL), pytest.raises(FileError):
            session.decode([5])
        assert of(EventKind.TOKEN, found.shared()) == []
        assert len(of(EventKind.READ, found.shared())) <= 3
        session.cancel()
        with pytest.raises(CancelledError):
            session.decode([5])
        assert of(EventKind.TOKEN, found.shared()) == []
        found.clear()
        session.reset_counters()
        _, elapsed = session.generate(5, 3)
        assert_describes(found, [int(ns) for ns in elapsed])


def test_reads_that_are_tried_again(path: Path) -> None:
    with (
        fault_library(),
        Model(path) as model,
        Session(model, residency="direct", read_bytes=4096) as session,
        recording(session, CAPACITY) as found,
        faults(Fault.AGAIN, after=2, count=9),
    ):
        session.reset_counters()
        _, elapsed = session.generate(5, 3)
        assert_describes(found, [int(ns) for ns in elapsed])
