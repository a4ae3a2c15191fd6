"""Pages of a mapped file: let go of, they can be evicted; without that they cannot."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from baselines.errors import BaselineError
from baselines.mapped_file import Segment, let_go, segments
from harness.cachestate import CacheStateError, evict, residency

PAGES = 64


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a file"
    path.write_bytes(b"x" * PAGES * mmap.PAGESIZE)
    try:
        evict(path)
    except CacheStateError as error:
        pytest.skip(str(error))  # tmpfs keeps what it holds
    return path


@pytest.mark.parametrize("readahead", [False, True])
def test_what_is_let_go_can_be_evicted(file: Path, readahead: bool) -> None:
    with file.open("rb") as source, mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert mapped[:: mmap.PAGESIZE] == b"x" * PAGES
        assert evict(file, allowed_share=1.0).resident_pages > 0
        assert let_go(file, readahead) == PAGES * mmap.PAGESIZE
        assert evict(file).resident_pages == 0
        assert mapped[0] == ord("x")
        assert residency(file).resident_pages >= 1
        if not readahead:
            assert residency(file).resident_pages == 1


def test_a_file_that_is_not_mapped_is_named(tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.touch()
    with pytest.raises(BaselineError, match="other is not mapped into this process"):
        let_go(path, readahead=True)


def test_segments_are_those_of_the_file_alone(tmp_path: Path) -> None:
    path, maps = tmp_path / "model 1.gguf", tmp_path / "maps"
    path.touch()
    maps.write_text(
        f"7f0000000000-7f0000004000 r--s 00000000 08:01 42    {path}\n"
        "7f0000004000-7f0000005000 rw-p 00000000 00:00 0\n"
        f"7f0000008000-7f0000009000 r--s 00004000 08:01 42    {path}\n"
        f"7f000000a000-7f000000b000 r--s 00004000 08:01 43    {path}.old\n"
    )
    assert segments(path, maps) == (Segment(0x7F0000000000, 0x4000), Segment(0x7F0000008000, 0x1000))
