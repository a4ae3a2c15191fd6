"""Prefetch hints: what they ask for, that they load nothing, and the walk that is measured with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.enums import Advice, Ahead, Option, Prefetch
from engine.errors import ArgumentError
from engine.geometry import Geometry
from engine.hints import LINE_BYTES, TRACE_HINT, give_hints, walk
from engine.model import Model
from engine.session import OptionValue, Session
from engine.synth import synthesise
from harness.cachestate import CacheStateError, evict, residency

IDS = [5, 77, 3]
PAGE = 4096


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hints") / "m.cflow"
    synthesise(path, Geometry.named("tiny_standard"))
    return path


# ---- over a mapping ----


@pytest.mark.parametrize("hint", list(Prefetch)[1:])
def test_hints_over_a_cold_mapping_bring_no_page_in(path: Path, hint: Prefetch) -> None:
    try:
        evict(path)
    except CacheStateError as error:
        pytest.skip(str(error))  # tmpfs keeps what it holds
    with Model(path) as model:
        model.advise(Advice.RANDOM)
        before = residency(path)
        found = give_hints(model, 0, model.file_bytes, hint)
        assert residency(path).resident_pages <= before.resident_pages
    assert (found.hints, found.faults) == (-(-path.stat().st_size // LINE_BYTES), 0)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_hint_every_stride(path: Path, data: st.DataObject) -> None:
    size = path.stat().st_size
    offset = data.draw(st.integers(0, size - 1))
    length = data.draw(st.integers(1, size - offset))
    stride = data.draw(st.sampled_from([1, 64, 4096, 1 << 20]))
    with Model(path) as model:
        assert give_hints(model, offset, length, Prefetch.T0, stride).hints == len(range(0, length, stride))
        assert give_hints(model, offset, length, Prefetch.NONE, stride).hints == 0


def test_hints_outside_the_file_are_refused(path: Path) -> None:
    with Model(path) as model:
        size = model.file_bytes
        for offset, length, stride in ((0, 0, 64), (0, size + 1, 64), (size, 1, 64), (0, size, 0)):
            with pytest.raises(ArgumentError, match="inside the file of"):
                give_hints(model, offset, length, Prefetch.T0, stride)


# ---- a walk ----


def summed(words: np.ndarray, passes: int) -> int:
    """The sum of cflow_probe_blocks over one block, in Python."""
    total, mask = 0, (1 << 64) - 1
    for _ in range(passes):
        for word in words.tolist():
            total = ((total << 1 | total >> 63) + word) & mask
    return total


@pytest.mark.parametrize("passes", [1, 3])
def test_a_walk_sums_every_word_whatever_it_does_ahead(path: Path, passes: int) -> None:
    words = np.fromfile(path, np.uint64)[PAGE // 8 : 3 * PAGE // 8]
    with Model(path) as model:
        one = {
            ahead: walk(model, PAGE, 2 * PAGE, ahead, block_bytes=2 * PAGE, passes=passes) for ahead in Ahead
        }
        assert {total for _, total in one.values()} == {summed(words, passes)}
        assert all(ns > 0 for ns, _ in one.values())
        blocks = {walk(model, 0, 8 * PAGE, ahead, block_bytes=PAGE)[1] for ahead in Ahead}
    assert blocks == {summed(np.fromfile(path, np.uint64)[:PAGE], 1)}


def test_a_walk_that_is_not_of_whole_blocks_is_refused(path: Path) -> None:
    with Model(path) as model:
        last = model.file_bytes // PAGE * PAGE
        for offset, length, block, passes in (
            (0, PAGE + 1, PAGE, 1),
            (0, PAGE, 64, 1),
            (last, PAGE, PAGE, 1),
            (0, 0, PAGE, 1),
            (0, PAGE, PAGE, 0),
        ):
            with pytest.raises(ArgumentError, match="whole blocks inside the file"):
                walk(model, offset, length, Ahead.NONE, block_bytes=block, passes=passes)


# ---- in a session ----


@pytest.mark.parametrize("residency_name", ["mmap", "copy"])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("which", ["linear", "conditional"])
def test_a_session_hints_at_the_experts_and_changes_nothing(
    path: Path, which: str, threads: int, residency_name: str
) -> None:
    shared: dict[str, OptionValue] = {"threads": threads, "context": 8, "residency": residency_name}
    with Model(path) as model, Session(model, **shared) as plain:
        expected = plain.decode(IDS)
        blocks, chosen = 4, 2 if which == "conditional" else 4
        experts = [t for t in model.tensors if t.expert is not None]
        with Session(model, expert_hints=which, **shared) as session:
            session.decode(IDS[:2])
            session.reset_counters()
            session.trace(1 << 12)
            assert np.array_equal(session.decode(IDS[2:]), expected)
            routing, _ = session.routing()
            records = np.concatenate([session.trace_records(thread) for thread in range(threads)])
            hinted = records[records[:, 3] >= TRACE_HINT]
            counters = session.counters()
    wanted = [
        (t.offset, t.offset + t.bytes)
        for t in experts
        if which == "linear" or t.expert in routing[t.block].tolist()
    ]
    assert len(wanted) == blocks * chosen * 2
    lines = {at for first, size in hinted[:, :2].tolist() for at in range(first, first + size, LINE_BYTES)}
    assert lines == {at for first, end in wanted for at in range(first, end, LINE_BYTES)}
    assert counters["hints"] == len(lines)
    # The loads are what they are without hints.
    assert counters["expert_bytes"] == blocks * 2 * sum(
        t.bytes for t in experts if (t.block, t.expert) == (0, 0)
    )


def test_a_hint_a_page(path: Path) -> None:
    with (
        Model(path) as model,
        Session(model, threads=1, context=8, expert_hints="linear", expert_hint_stride=4096) as session,
    ):
        session.decode(IDS[:1])
        experts = [t for t in model.tensors if t.expert is not None]
        assert session.counters()["hints"] == sum(-(-t.bytes // 4096) for t in experts)
        assert session.option(Option.PROMPT_BATCH) == 1
        with pytest.raises(ArgumentError, match="expert_hint_stride is 128; allowed: 64, 4096"):
            Session(model, expert_hint_stride=128)


def test_hints_act_where_experts_are_in_the_mapping_or_a_copy(path: Path, tmp_path: Path) -> None:
    dense = tmp_path / "dense.cflow"
    synthesise(dense, Geometry.named("tiny_dense"))
    for file, options in (
        (path, {"residency": "direct"}),
        (path, {"residency": "copy", "layout": "row_major"}),
        (dense, {}),
    ):
        with (
            Model(file) as model,
            Session(model, threads=1, expert_hints="linear", expert_hint_stride=4096, **options) as session,
        ):
            assert session.option(Option.EXPERT_HINTS) == 0
            assert session.option(Option.EXPERT_HINT_STRIDE) == 64
