"""One token on a time axis: what each worker did when, where it waited, and which reads were under way."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from claims.overlap import START, Staging
from claims.overlap_grid import STORAGE, tier
from engine.enums import EventKind, Option, Reader
from engine.events import Event, Recording, recording
from engine.session import Piece, Session
from harness.evidence import Derived
from harness.reductions import Reduction, Scalar

WORKERS: Final = 4
"""Most workers that are kept, evenly spread over those that there are."""
READS: Final = "reads"
"""The lane of what the session reads; the others are named after workers."""
_NS_PER_MS: Final = 1e6
_SPARE: Final = 4
"""Events that a worker makes for a piece, at most: itself, a barrier, vector operations and the end."""


@dataclass(frozen=True)
class Span:
    """A bar of the timeline. what: a stream, or the name of a kind of event. layer: None where several."""

    lane: str
    what: str
    start_ns: int
    end_ns: int
    phase: int
    layer: int | None


def recorded_token(session: Session, tokens: int, rate: int) -> Derived:
    """The token with the median time out of `tokens` (odd) that follow the first one.

    rate: bytes per second of the emulated tier, 0 = native.
    """
    assert tokens % 2 == 1
    session.reset()
    schedule = session.schedule()
    with recording(session, _SPARE * (tokens + 1) * len(schedule)) as found:
        _, elapsed = session.generate(START, tokens + 1)
        later = [int(ns) for ns in elapsed[1:]]
        position = 1 + later.index(sorted(later)[tokens // 2])
        spans = timeline(found, position)
        start_ns = next(
            event.start_ns
            for event in found.shared()
            if event.kind is EventKind.TOKEN and event.token == position
        )
    return Derived(
        method="events of the token, timed in the workers and by the reader; its time is the end of the last",
        inputs={
            "model": session.model.name,
            "token": position,
            "threads": session.threads,
            "phases": session.phase_count,
            "expert_delay": session.option(Option.EXPERT_DELAY),
            "isa": session.isa.name.lower(),
            "tier": tier(rate),
            "rate": rate,
            "reader": Reader(session.option(Option.READER)).name.lower(),
            "storage": STORAGE,
        },
        observations={
            "token_ms": [round(ns / _NS_PER_MS, 4) for ns in later],
            **_columns(spans, start_ns),
        },
        reduction=Reduction("max", ("end_ms",)),
    )


def timeline(found: Recording, token: int) -> list[Span]:
    """Bars of a token, lane by lane in order of time: up to WORKERS workers, then the reads and their waits.

    Merged: neighbouring pieces of one stream in one phase of a worker, and waits for reads of one phase. The
    last barrier ends with the token.
    """
    session = found.session
    schedule, shared = session.schedule(), [event for event in found.shared() if event.token == token]
    end_ns = next(event.end_ns for event in shared if event.kind is EventKind.TOKEN)
    spans: list[Span] = []
    kept = min(session.threads, WORKERS)
    for thread in sorted({index * (session.threads - 1) // max(kept - 1, 1) for index in range(kept)}):
        own = (event for event in found.worker(thread) if event.token == token)
        spans += _merged(_span(f"worker {thread}", event, schedule, end_ns) for event in own)
    for kind in (EventKind.READ, EventKind.READ_WAIT):
        own = (event for event in shared if event.kind is kind)
        bars = sorted((_span(READS, event, schedule, end_ns) for event in own), key=lambda one: one.start_ns)
        spans += _merged(bars) if kind is EventKind.READ_WAIT else bars
    return spans


def staging_timelines(staging: Staging, tokens: int, rate: int) -> Mapping[str, Derived]:
    """The same tokens of both arms."""
    return {
        "sync": recorded_token(staging.sync, tokens, rate),
        "staged": recorded_token(staging.staged, tokens, rate),
    }


def _span(lane: str, event: Event, schedule: Sequence[Piece], end_ns: int) -> Span:
    piece = None if event.piece is None else schedule[event.piece]
    is_work = event.kind is EventKind.PIECE and piece is not None
    return Span(
        lane,
        piece.stream.name.lower() if is_work and piece is not None else event.kind.name.lower(),
        event.start_ns,
        min(event.end_ns, end_ns),
        event.phase or 0,
        None if piece is None else piece.layer,
    )


def _merged(spans: Iterator[Span] | Sequence[Span]) -> Iterator[Span]:
    """Neighbours that do the same in the same phase as one."""
    for _, group in itertools.groupby(spans, key=lambda one: (one.what, one.phase)):
        own = list(group)
        layers = {one.layer for one in own}
        layer = own[0].layer if len(layers) == 1 else None
        yield replace(own[0], end_ns=own[-1].end_ns, layer=layer)


def _columns(spans: Sequence[Span], start_ns: int) -> Mapping[str, Sequence[Scalar]]:
    """As observations: bar by bar, times in ms from the beginning of the token, -1 for several layers."""
    return {
        "lane": [one.lane for one in spans],
        "what": [one.what for one in spans],
        "phase": [one.phase for one in spans],
        "layer": [-1 if one.layer is None else one.layer for one in spans],
        "start_ms": [round((one.start_ns - start_ns) / _NS_PER_MS, 4) for one in spans],
        "end_ms": [round((one.end_ns - start_ns) / _NS_PER_MS, 4) for one in spans],
    }
