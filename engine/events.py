"""What happened when in the tokens of a session: events timed by the workers and the reader themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_size_t
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.enums import EventField, EventKind
from engine.errors import ArgumentError
from engine.native import check, lib, pointer
from engine.session import Session

_NONE: Final = (1 << 64) - 1


@dataclass(frozen=True)
class Event:
    """One event. Times are CLOCK_MONOTONIC in nanoseconds.

    token: its position. phase, piece: indices of the schedule, None where there is none; those of a read, and
    of a wait for it, are the first that use it. bytes: asked of the reader, 0 for all but reads.
    """

    kind: EventKind
    start_ns: int
    end_ns: int
    token: int
    phase: int | None
    piece: int | None
    bytes: int

    @property
    def ns(self) -> int:
        """Its duration."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True)
class Recording:
    """A session that records up to `capacity` events a lane."""

    session: Session
    capacity: int

    def worker(self, thread: int) -> list[Event]:
        """Events of a worker in order: vector operations, pieces, barriers.

        Raises ArgumentError when more were made than the capacity kept.
        """
        return self._lane(thread)

    def shared(self) -> list[Event]:
        """Events of the session: tokens, reads, waits for reads; in the order in which they were over.

        Raises ArgumentError when more were made than the capacity kept.
        """
        return self._lane(self.session.threads)

    def clear(self) -> None:
        """Forgets what was recorded, and goes on."""
        check(lib().cflow_session_events(self.session.handle, self.capacity))

    def _lane(self, lane: int) -> list[Event]:
        made = c_size_t()
        check(lib().cflow_session_events_read(self.session.handle, lane, 0, 0, None, byref(made)))
        if made.value > self.capacity:
            raise ArgumentError(
                f"capacity is {self.capacity} events; {made.value} were made in lane {lane} of the session"
            )
        records: NDArray[np.uint64] = np.zeros((made.value, len(EventField)), dtype=np.uint64)
        check(
            lib().cflow_session_events_read(
                self.session.handle,
                lane,
                0,
                made.value,
                pointer("records", records, np.uint64, records.size),
                byref(made),
            )
        )
        return [_event(row) for row in records.tolist()]


@contextmanager
def recording(session: Session, capacity: int) -> Iterator[Recording]:
    """Records the events of tokens that are decoded one by one, the first `capacity` of each lane.

    Chunks of a prompt record none. Raises MemoryExhaustedError; ArgumentError for a capacity below 1.
    """
    if capacity < 1:
        raise ArgumentError(f"capacity is {capacity} events, must be 1 or more")
    found = Recording(session, capacity)
    found.clear()
    try:
        yield found
    finally:
        check(lib().cflow_session_events(session.handle, 0))


def _event(row: list[int]) -> Event:
    def index(field: EventField) -> int | None:
        return None if row[field] == _NONE else row[field]

    return Event(
        kind=EventKind(row[EventField.KIND]),
        start_ns=row[EventField.START_NS],
        end_ns=row[EventField.END_NS],
        token=row[EventField.TOKEN],
        phase=index(EventField.PHASE),
        piece=index(EventField.PIECE),
        bytes=row[EventField.BYTES],
    )
