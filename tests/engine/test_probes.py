"""Pools, arenas and the probes that run on them."""

from pathlib import Path

import numpy as np
import pytest
import xxhash

from engine.enums import Isa, Type, WalkWay
from engine.errors import ArgumentError, FileError
from engine.kernels import gemv, kernels, pack_tiles, tiles_bytes
from engine.probes import MIB, Arena, Pool, read_patterns, walk
from engine.tiles import quantise


def test_pool_reports_its_workers() -> None:
    with Pool(2) as pool:
        assert len(pool.worker_cpus) == 2
        delays = pool.run_delays_ns()
        assert delays is None or len(delays) == 2
        operations, elapsed = pool.flops(Isa.SCALAR, 1000)
        assert operations > 0
        assert elapsed > 0


def test_unpinned_workers_say_so() -> None:
    with Pool(1, pin=False) as pool:
        assert pool.worker_cpus == [-1]


def test_closed_handles_are_refused() -> None:
    pool = Pool(1)
    arena = Arena(pool, MIB)
    arena.close()
    arena.close()
    pool.close()
    with pytest.raises(ArgumentError, match="the arena is closed"):
        arena.data()
    with pytest.raises(ArgumentError, match="the pool is closed"):
        pool.run_delays_ns()


@pytest.mark.parametrize("threads", [0, -1, 257])
def test_thread_counts_out_of_range(threads: int) -> None:
    with pytest.raises(ArgumentError, match="thread"):
        Pool(threads)


@pytest.mark.parametrize("huge", [False, True])
def test_every_read_pattern_reads_every_byte_alike(huge: bool) -> None:
    with Pool(2) as pool, Arena(pool, 4 * MIB + 4096, huge=huge) as arena:
        data = arena.data()
        data[:] = np.random.default_rng(0).integers(0, 256, data.size, np.uint8)
        assert len(read_patterns()) == len(set(read_patterns())) > 1
        sums = [arena.read(index)[1] for index in range(len(read_patterns()))]
        assert len(set(sums)) == 1
        # A changed byte anywhere changes the sum: nothing is left out.
        for place in (0, 4 * MIB // 3, 4 * MIB, data.size - 1):
            data[place] ^= 0x55
            changed = [arena.read(index)[1] for index in range(len(read_patterns()))]
            assert len(set(changed)) == 1
            assert changed[0] != sums[0]
            data[place] ^= 0x55


def test_gemv_of_all_workers_equals_that_of_one_thread() -> None:
    rng = np.random.default_rng(1)
    rows, columns = 200, 288
    values = rng.standard_normal((rows, columns), np.float32)
    tiles = pack_tiles(Type.Q4_0, [quantise(values, Type.Q4_0)], columns)
    x = rng.standard_normal(columns, np.float32)
    size = tiles_bytes(Type.Q4_0, rows, columns)
    for kernel in kernels():
        if kernel.type is not Type.Q4_0 or kernel.rows_per_pass or not kernel.supported:
            continue
        with Pool(2) as pool, Arena(pool, size) as arena:
            arena.data()[:size] = tiles
            y = np.zeros(rows, np.float32)
            assert arena.gemv(kernel, rows, x, y) > 0
        assert np.array_equal(y, gemv(kernel, tiles, rows, x))


def test_a_walk_hashes_words_in_the_order_of_its_ranges(tmp_path: Path) -> None:
    path = tmp_path / "file"
    data = np.random.default_rng(2).integers(0, 256, 40_000, np.uint8)
    path.write_bytes(data.tobytes())
    ranges = np.array([(8192, 8), (24_000, 12_000), (40, 4096), (8200, 8), (39_992, 8)], np.uint64)
    digest = xxhash.xxh64()
    for offset, size in ranges.tolist():
        for at in [*range(offset, offset + size - 8, 4096), offset + size - 8]:
            digest.update(data[at : at + 8].tobytes())
    for way in (WalkWay.MMAP, WalkWay.BUFFERED):
        for request_bytes in (4096, 8192, MIB):
            walked = walk(path, way, ranges, request_bytes)
            assert (walked.digest, walked.ns > 0) == (digest.intdigest(), True)
    assert walk(path, WalkWay.MMAP, ranges[::-1]).digest != digest.intdigest()


@pytest.mark.parametrize("pair", [(4, 8), (0, 12), (0, 0), (4096, 8), (1 << 63, 8), (8, (1 << 64) - 8)])
def test_ranges_outside_a_file_are_refused(tmp_path: Path, pair: tuple[int, int]) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(4096))
    with pytest.raises(ArgumentError, match=r"range 1 \(offset .* inside the 4096 bytes"):
        walk(path, WalkWay.BUFFERED, np.array([(0, 8), pair], np.uint64))


def test_walks_that_cannot_be(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(4096))
    one = np.array([(0, 8)], np.uint64)
    with pytest.raises(ArgumentError, match="no range"):
        walk(path, WalkWay.MMAP, np.zeros((0, 2), np.uint64))
    for request_bytes in (0, 512, 1 << 27):
        with pytest.raises(ArgumentError, match=f"request_bytes is {request_bytes}"):
            walk(path, WalkWay.BUFFERED, one, request_bytes)
    with pytest.raises(FileError, match="absent: cannot open"):
        walk(tmp_path / "absent", WalkWay.MMAP, one)
    (tmp_path / "empty").touch()
    with pytest.raises(FileError, match="empty: cannot tell its length"):
        walk(tmp_path / "empty", WalkWay.MMAP, one)
