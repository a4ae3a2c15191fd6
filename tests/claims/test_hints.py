"""The material of claim 6: cold ranges, arms, and where hints go."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from claims import hints
from claims.arms import stored_arm
from claims.hints import (
    HINTS,
    PAPER,
    SCALED,
    bank_and_active_bytes,
    hint_cold,
    hinted_tokens,
    walk_arm,
)
from claims.models import synthetic
from engine.enums import Advice, Ahead, Prefetch
from engine.geometry import Geometry
from engine.model import Model
from engine.session import Session
from harness.counters import process_io

STANDARD = Geometry.named("tiny_standard")
PAGE = 4096


@pytest.fixture
def folder(cold_folder: Path) -> Path:
    """A cold folder, reads of which are counted."""
    probe = cold_folder / "probe"
    before = process_io()
    probe.read_bytes()
    after = process_io()
    if before is None or after is None or after.since(before).device_read_bytes == 0:
        pytest.skip("the kernel does not count the bytes read from storage")
    return cold_folder


def test_a_cold_range_is_hinted_at_and_then_read(folder: Path) -> None:
    path = synthetic(folder, "standard", replace(STANDARD, vocab=1 << 15))
    size = 64 * PAGE
    assert path.stat().st_size > 2 * size
    for hint in HINTS:
        found = hint_cold(path, size, size, hint)
        assert found is not None
        assert (found.hints, found.device_bytes, found.pages, found.faults) == (size // 64, 0, 0, 0)


def test_a_kernel_that_counts_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = synthetic(folder, "standard", STANDARD)
    monkeypatch.setattr(hints, "process_io", lambda: None)
    assert hint_cold(path, 0, 4 * PAGE, Prefetch.T0) is None


def test_a_walk_starts_cold_and_gives_one_sum(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hints, "SETTLE_S", 0.0)
    path = synthetic(folder, "standard", replace(STANDARD, vocab=1 << 15))
    offset, size = PAGE * (path.stat().st_size // PAGE - 8), 8 * PAGE
    arms = [walk_arm(path, offset, size, 2 * PAGE, Advice.RANDOM, ahead) for ahead in Ahead]
    assert [arm.name for arm in arms] == [ahead.name for ahead in Ahead]
    assert len({arm.expected_digest for arm in arms}) == 1
    sample = arms[0].run()
    assert (sample.bytes, sample.digest) == (size, arms[0].expected_digest)
    assert arms[0].resident == (0.0, 0.01) and sample.resident is not None


def test_experts_from_the_file_are_counted(tmp_path: Path) -> None:
    path = synthetic(tmp_path, "standard", STANDARD)
    with (
        Model(path) as model,
        Session(model, threads=1, context=4, residency="direct", read_path="buffered") as session,
        Session(model, threads=1, context=4) as mapped,
    ):
        arm = stored_arm("off", session, 5, 3, "no hint")
        sample = arm.run()
        assert stored_arm("mapped", mapped, 5, 3, "").expected_digest == arm.expected_digest
    assert (sample.digest, sample.work) == (arm.expected_digest, 3)
    assert sample.counters["asked_bytes"] > 0


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("which", ["linear", "conditional"])
def test_hints_are_held_against_the_experts(tmp_path: Path, which: str, threads: int) -> None:
    path = synthetic(tmp_path, "standard", STANDARD)
    with Model(path) as model, Session(model, threads=threads, context=4, expert_hints=which) as session:
        found = hinted_tokens(session, model, [5, 7], which == "linear")
        assert [one.right for one in found] == [True, True]
        assert session.counters()["hints"] == sum(one.lines for one in found)
    with Model(path) as model, Session(model, threads=threads, context=4, expert_hints=which) as session:
        other = hinted_tokens(session, model, [5, 7], which != "linear")
    assert [one.right for one in other] == [False, False]
    # Too many lines are elsewhere; too few are missed.
    assert all(one.elsewhere == (one.lines - one.wanted if which == "linear" else 0) for one in other)


def test_the_scaled_geometry_has_the_experts_share_of_the_papers() -> None:
    (bank, active), (paper_bank, paper_active) = bank_and_active_bytes(SCALED), bank_and_active_bytes(PAPER)
    assert paper_bank == pytest.approx(7.25e9, rel=0.001)
    assert paper_active == pytest.approx(11.7e9, rel=0.005)
    assert bank / active == pytest.approx(paper_bank / paper_active, rel=0.001)
