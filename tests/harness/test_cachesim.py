"""The cache model against a naive one, and what the kernels feed it with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.enums import AccessField, AccessKind, PieceKind
from engine.errors import ArgumentError, UnsupportedError
from engine.native import recording_library
from harness.cachesim import E5_2650, READS, Cache, CacheGeometry, this_machine

KINDS = list(AccessKind)


class NaiveCache:
    """Sets as lists, the most recently used line last."""

    def __init__(self, geometry: CacheGeometry) -> None:
        self.line_bytes, self.ways = geometry.line_bytes, geometry.ways
        self.sets: list[list[int]] = [
            [] for _ in range(geometry.size_bytes // geometry.ways // geometry.line_bytes)
        ]

    def misses(self, address: int, size: int) -> bool:
        missed = False
        for line in range(address // self.line_bytes, (address + size - 1) // self.line_bytes + 1):
            lines = self.sets[line % len(self.sets)]
            if line in lines:
                lines.remove(line)
            else:
                missed = True
            lines.append(line)
            del lines[: -self.ways]
        return missed


@st.composite
def geometries(draw: st.DrawFn) -> CacheGeometry:
    line, ways, sets = draw(st.sampled_from([2, 16, 64])), draw(st.integers(1, 5)), draw(st.integers(1, 6))
    return CacheGeometry("any", line * ways * sets, ways, line)


accesses = st.lists(
    st.tuples(st.integers(0, 1500), st.integers(1, 200), st.sampled_from(KINDS)), max_size=300
)


@given(geometries(), accesses)
def test_counts_equal_those_of_a_naive_model(
    geometry: CacheGeometry, steps: list[tuple[int, int, AccessKind]]
) -> None:
    naive = NaiveCache(geometry)
    wanted = np.zeros((len(AccessKind), len(AccessField)), np.uint64)
    for address, size, kind in steps:
        wanted[kind] += np.array([1, size, naive.misses(address, size)], np.uint64)
    with Cache(geometry) as cache:
        # In two calls: the state must live on between them.
        data = np.array(steps, np.uint64).reshape(-1, 3)
        cache.run(data[: len(data) // 2])
        cache.run(data[len(data) // 2 :])
        found = cache.counts()
    assert np.array_equal(found.values, wanted)
    assert found.reads == sum(kind in READS for _, _, kind in steps)


def test_a_loop_over_one_line_too_many_always_misses_and_one_less_never() -> None:
    lines = E5_2650.size_bytes // E5_2650.line_bytes

    def second_pass(count: int) -> int:
        loop = np.array([(64 * line, 64, AccessKind.ACTIVATION) for line in range(count)], np.uint64)
        with Cache(E5_2650) as cache:
            cache.run(loop)
            before = cache.counts().read_misses
            cache.run(loop)
            return cache.counts().read_misses - before

    assert second_pass(lines) == 0
    # One line more: its set of 8 ways now has 9 lines in turn, and LRU drops each before its use.
    assert second_pass(lines + 1) == E5_2650.ways + 1


@pytest.mark.parametrize(
    ("geometry", "word"),
    [
        (CacheGeometry("x", 32768, 8, 48), "line_bytes is 48"),
        (CacheGeometry("x", 32768, 8, 1), "line_bytes is 1"),
        (CacheGeometry("x", 32768, 0, 64), "ways is 0"),
        (CacheGeometry("x", 32769, 8, 64), "size_bytes is 32769"),
        (CacheGeometry("x", 0, 8, 64), "size_bytes is 0"),
    ],
)
def test_impossible_geometries_are_refused(geometry: CacheGeometry, word: str) -> None:
    with pytest.raises(ArgumentError, match=word):
        Cache(geometry)


@pytest.mark.parametrize(
    "access", [(0, 0, 0), (0, 4097, 0), (2**64 - 1, 1, 0), (0, 1, len(AccessKind))], ids=str
)
def test_impossible_accesses_are_refused_by_their_number(access: tuple[int, int, int]) -> None:
    with Cache(E5_2650) as cache:
        with pytest.raises(ArgumentError, match="access 1 is"):
            cache.run(np.array([(0, 1, 0), access], np.uint64))
        with pytest.raises(ArgumentError, match="shape"):
            cache.run(np.zeros(3, np.uint64))
    with pytest.raises(ArgumentError, match="closed"):
        cache.counts()


def test_the_ordinary_library_does_not_record() -> None:
    with Cache(E5_2650) as cache, pytest.raises(UnsupportedError, match="libcflow_record"), cache.recording():
        raise AssertionError("not reached")


@pytest.fixture
def recording() -> Iterator[None]:
    with recording_library():
        yield


@pytest.mark.usefixtures("recording")
def test_one_cache_is_recorded_to_at_a_time() -> None:
    with Cache(E5_2650) as first, Cache(E5_2650) as second:
        with (
            first.recording(),
            pytest.raises(ArgumentError, match="another cache"),
            second.recording(),
        ):
            raise AssertionError("not reached")
        with second.recording():
            pass
        assert all(one.counts(piece).reads == 0 for one in (first, second) for piece in PieceKind)


def test_the_cache_of_a_machine_comes_from_sys(tmp_path: Path) -> None:
    folder = tmp_path / "sys/devices/system/cpu/cpu0/cache"
    for index, (level, kind, size, ways) in enumerate(
        [(1, "Data", "48K", 12), (1, "Instruction", "32K", 8), (2, "Unified", "2048K", 16)]
    ):
        (folder / f"index{index}").mkdir(parents=True)
        for name, text in {
            "level": level,
            "type": kind,
            "size": size,
            "ways_of_associativity": ways,
            "coherency_line_size": 64,
        }.items():
            (folder / f"index{index}" / name).write_text(f"{text}\n")
    found = this_machine(tmp_path)
    assert found == CacheGeometry("L1-d of this machine", 48 * 1024, 12, 64)
    assert "48 KiB, 12-way, 64 B" in str(found)
    assert this_machine(tmp_path / "nothing") is None
