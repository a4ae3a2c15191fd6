"""The timeline of a token: which token, which bars, and that the checker derives its time from them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from claims.overlap import Staging, open_staging
from claims.timeline import READS, WORKERS, recorded_token, staging_timelines, timeline
from engine.enums import EventKind, Residency, Stream
from engine.events import recording
from engine.geometry import Geometry
from engine.session import Session
from harness.evidence import Derived
from tests.engine.models import write_random_model

SHAPE = "d=64,layers=6,heads=2,ffn=64,experts=8,top_k=2,expert_hidden=96,vocab=300,context=64,dd=1,de=2"
STREAMS = {stream.name.lower() for stream in Stream}


@pytest.fixture(scope="module")
def path(cold: Path) -> Path:
    return write_random_model(cold / "m.cflow", Geometry.parse(SHAPE), seed=6)


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("timeline")


@pytest.fixture(scope="module")
def staging(path: Path) -> Iterator[Staging]:
    with open_staging(path, {"threads": 2, "context": 16, "read_rate": 500_000_000}) as opened:
        yield opened


def bars(evidence: Derived) -> list[dict[str, Any]]:
    """The columns of the observations as rows."""
    names = ("lane", "what", "phase", "layer", "start_ms", "end_ms")
    columns = [evidence.observations[name] for name in names]
    rows = zip(*(column for column in columns if isinstance(column, list)), strict=True)
    return [dict(zip(names, row, strict=True)) for row in rows]


def test_both_arms_record_the_token_of_the_median_time(staging: Staging) -> None:
    found = staging_timelines(staging, 3, 500_000_000)
    assert list(found) == ["sync", "staged"]
    for evidence in found.values():
        times = evidence.observations["token_ms"]
        assert isinstance(times, list) and len(times) == 3
        assert evidence.value == sorted(times)[1]
        token = evidence.inputs["token"]
        assert isinstance(token, int) and 1 <= token <= 3 and times[token - 1] == evidence.value
        assert evidence.inputs["tier"] == "500 MB/s emulated"


def test_bars_tell_a_token_lane_by_lane(staging: Staging) -> None:
    phases = staging.sync.phase_count
    for evidence in staging_timelines(staging, 1, 500_000_000).values():
        rows = bars(evidence)
        assert all(row["end_ms"] - row["start_ms"] >= 0 for row in rows)
        assert [lane for lane, _ in itertools.groupby(row["lane"] for row in rows)] == [
            "worker 0",
            "worker 1",
            READS,
        ]
        for worker in ("worker 0", "worker 1"):
            own = [row for row in rows if row["lane"] == worker]
            assert {row["phase"] for row in own} == set(range(phases))
            assert {row["what"] for row in own} == STREAMS | {"vector", "barrier"}
            for one, later in itertools.pairwise(own):
                assert 0 <= one["end_ms"] <= later["start_ms"]
                assert (one["what"], one["phase"]) != (later["what"], later["phase"])
            assert own[-1]["end_ms"] == evidence.value
        reads = [row for row in rows if row["what"] == "read"]
        waits = [row for row in rows if row["what"] == "read_wait"]
        assert len(reads) == 12 and {row["layer"] for row in reads} == set(range(6))
        assert len({row["phase"] for row in waits}) == len(waits) <= 6


def test_what_is_merged_loses_no_time(staging: Staging) -> None:
    session = staging.staged
    session.reset()
    with recording(session, 1 << 12) as found:
        session.generate(5, 2)
        spans = timeline(found, 1)
        for thread in range(2):
            own = [event for event in found.worker(thread) if event.token == 1]
            lane = [span for span in spans if span.lane == f"worker {thread}"]
            assert len(lane) < len(own)
            assert lane[0].start_ns == own[0].start_ns
            for kind, names in ((EventKind.PIECE, STREAMS), (EventKind.VECTOR, {"vector"})):
                total = sum(event.ns for event in own if event.kind is kind)
                assert total == sum(span.end_ns - span.start_ns for span in lane if span.what in names)


def test_some_of_many_workers_are_kept(path: Path, staging: Staging) -> None:
    with Session(staging.model, threads=WORKERS + 3, context=8, residency="direct") as session:
        rows = bars(recorded_token(session, 1, 0))
    lanes = [lane for lane, _ in itertools.groupby(row["lane"] for row in rows)]
    assert lanes == ["worker 0", "worker 2", "worker 4", "worker 6", READS]


def test_without_reads_there_is_no_lane_of_them(staging: Staging) -> None:
    with Session(staging.model, threads=1, context=8) as session:
        assert session.options["residency"] == Residency.MMAP
        evidence = recorded_token(session, 1, 0)
    assert {row["lane"] for row in bars(evidence)} == {"worker 0"}
    assert evidence.inputs["tier"] == "native"
