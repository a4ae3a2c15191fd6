"""Resident pages and eviction. Whether a file system keeps a page cache is asked, not assumed."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from harness import cachestate
from harness.cachestate import PAGE_BYTES, CacheStateError, Residency, drop_caches, evict, residency

PAGES = 64


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.write_bytes(os.urandom(PAGES * PAGE_BYTES - 100))
    try:
        evict(path)
    except CacheStateError:
        pytest.skip("this file system does not let pages go (tmpfs?)")
    path.read_bytes()
    return path


def test_a_file_just_read_is_resident_and_an_evicted_one_is_not(file: Path) -> None:
    assert residency(file) == Residency(PAGES, PAGES, "mincore")
    assert residency(file).share == 1.0
    assert residency(file).resident_bytes == PAGES * PAGE_BYTES
    assert evict(file).share == 0.0
    assert residency(file).resident_pages == 0


def test_ranges(file: Path) -> None:
    assert residency(file, offset=8 * PAGE_BYTES, length=4 * PAGE_BYTES).pages == 4
    assert residency(file, offset=60 * PAGE_BYTES).pages == 4
    assert residency(file, length=0) == Residency(0, 0, "mincore")
    assert residency(file, length=0).share == 0.0


@pytest.mark.parametrize(
    ("offset", "length"),
    [(1, 10), (-PAGE_BYTES, 10), (0, -1), (0, PAGES * PAGE_BYTES), (100 * PAGE_BYTES, None)],
)
def test_ranges_outside_are_refused(file: Path, offset: int, length: int | None) -> None:
    with pytest.raises(CacheStateError, match="allowed: page-aligned and inside"):
        residency(file, offset, length)


def test_large_files_are_mapped_in_pieces(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cachestate, "_CHUNK_BYTES", 7 * PAGE_BYTES)
    assert residency(file) == Residency(PAGES, PAGES, "mincore")


def test_asking_does_not_read(file: Path) -> None:
    evict(file)
    residency(file)
    assert residency(file).resident_pages == 0


def test_the_other_way_of_asking_agrees(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    try:
        found = residency(file)
    except CacheStateError as error:
        pytest.skip(str(error))
    assert found == Residency(PAGES, PAGES, "preadv2 RWF_NOWAIT")


def test_a_mapped_file_that_stays_is_told(file: Path) -> None:
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert sum(mapped[::PAGE_BYTES]) >= 0
        with pytest.raises(
            CacheStateError, match="still resident after eviction, allowed 1.0%; is it mapped"
        ):
            evict(file)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(CacheStateError, match="nothing: No such file"):
        residency(tmp_path / "nothing")
    with pytest.raises(CacheStateError, match="nothing: No such file"):
        evict(tmp_path / "nothing")


def test_dropping_all_caches_tells_whether_it_was_allowed(tmp_path: Path) -> None:
    control = tmp_path / "drop_caches"
    assert drop_caches(control)
    assert control.read_text() == "1\n"
    assert not drop_caches(tmp_path / "missing" / "drop_caches")
