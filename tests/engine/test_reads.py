"""The reader through its probe: bytes, both back ends and paths, refusals, and faults of the device."""

from __future__ import annotations

import errno
import faulthandler
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.enums import Fault, Reader, ReadPath
from engine.errors import ArgumentError, FileError, UnsupportedError
from engine.faults import ALL, faults
from engine.native import fault_library
from engine.reads import consecutive, probe_reads
from engine.tiles import Bytes
from tests.engine.forbid import IO_URING_ENTER, IO_URING_SETUP

FILE_BYTES = 3_000_001
HANG_S = 120

READERS = [Reader.IO_URING, Reader.THREADS]
Ranges = npt.NDArray[np.uint64]


def has_io_uring(path: Path) -> bool:
    """Containers often refuse it; the reader must work there all the same."""
    try:
        probe_reads(path, consecutive(1, 1), reader=Reader.IO_URING)
    except UnsupportedError:
        return False
    return True


@pytest.fixture(autouse=True)
def watchdog() -> Iterator[None]:
    """A hang ends the test run with the stacks of all threads, in place of holding it up."""
    # Not sys.stderr: pytest may hold something in its place that is no file.
    faulthandler.dump_traceback_later(HANG_S, exit=True, file=2)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Bytes]:
    """A file of FILE_BYTES random bytes, and these."""
    data = np.random.default_rng(3).integers(0, 256, FILE_BYTES, np.uint8)
    path = tmp_path_factory.mktemp("reads") / "data"
    path.write_bytes(data.tobytes())
    return path, data


@pytest.fixture(params=READERS, ids=lambda reader: reader.name.lower())
def reader(request: pytest.FixtureRequest, known: tuple[Path, Bytes]) -> Reader:
    """Each back end that this machine allows."""
    chosen = Reader(request.param)
    if chosen is Reader.IO_URING and not has_io_uring(known[0]):
        pytest.skip("io_uring is refused here")
    return chosen


def wanted(data: Bytes, ranges: Ranges) -> Bytes:
    """The bytes of all ranges, one after the other."""
    return np.concatenate([data[int(offset) : int(offset + size)] for offset, size in ranges])


_range = st.integers(0, FILE_BYTES - 1).flatmap(
    lambda offset: st.tuples(st.just(offset), st.integers(1, min(400_000, FILE_BYTES - offset)))
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ranges=st.lists(_range, min_size=1, max_size=12),
    pages=st.sampled_from([1, 2, 3, 16, 256, 4096]),
    depth=st.integers(1, 9),
    read_path=st.sampled_from(list(ReadPath)),
)
def test_every_byte_arrives_by_both_back_ends(
    known: tuple[Path, Bytes],
    reader: Reader,
    ranges: list[tuple[int, int]],
    pages: int,
    depth: int,
    read_path: ReadPath,
) -> None:
    path, data = known
    asked = np.array(ranges, np.uint64)
    found = probe_reads(
        path, asked, reader=reader, read_path=read_path, request_bytes=pages * 4096, depth=depth, keep=True
    )
    assert found.data is not None
    assert np.array_equal(found.data, wanted(data, asked))
    assert found.reader is reader
    rounded = [-(-(offset + size) // 4096) - offset // 4096 for offset, size in ranges]
    assert found.asked_bytes == 4096 * sum(rounded)
    assert 0 < found.read_ns <= found.ns
    assert found.wait_ns + found.issue_ns <= found.ns


def test_what_the_device_is_asked_for_is_what_it_reads(known: tuple[Path, Bytes], reader: Reader) -> None:
    path, _ = known
    os.sync()

    def device_bytes() -> int:
        lines = Path("/proc/self/io").read_text().splitlines()
        return int(dict(line.split(": ") for line in lines)["read_bytes"])

    asked = np.array([(4096, 8192), (5, 3), (1_000_000, 100_000)], np.uint64)
    probe_reads(path, asked, reader=reader)
    before = device_bytes()
    found = probe_reads(path, asked, reader=reader)
    read = device_bytes() - before
    if found.path is ReadPath.BUFFERED or read == 0:
        pytest.skip("this file system has no device, or none that is read past the page cache")
    # Its first page is read when the reader tries O_DIRECT out.
    assert read == found.asked_bytes + 4096


def test_files_in_memory_are_read_through_the_page_cache() -> None:
    path = Path(f"/dev/shm/cflow-test-reads-{os.getpid()}")
    if not path.parent.is_dir():
        pytest.skip("no /dev/shm here")
    try:
        path.write_bytes(bytes(range(256)) * 64)
        found = probe_reads(path, consecutive(16384, 5000), keep=True)
        assert found.path is ReadPath.BUFFERED
        assert found.data is not None
        assert found.data.tobytes() == path.read_bytes()
    finally:
        path.unlink(missing_ok=True)


def test_an_emulated_device_is_no_faster_than_its_rate(known: tuple[Path, Bytes], reader: Reader) -> None:
    path, data = known
    ranges = consecutive(FILE_BYTES, 700_000)
    found = probe_reads(path, ranges, reader=reader, bytes_per_s=20_000_000, depth=3, keep=True)
    assert found.data is not None
    assert np.array_equal(found.data, data)
    # Rounded down in each of the reads.
    assert found.ns >= found.asked_bytes * 50 - len(ranges)
    assert found.read_ns >= found.asked_bytes * 50 - len(ranges)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"request_bytes": 0}, "requests of 0 bytes"),
        ({"request_bytes": 5000}, "requests of 5000 bytes"),
        ({"request_bytes": (16 << 20) + 4096}, "requests of 16781312 bytes"),
        ({"depth": 0}, "depth 0"),
        ({"depth": 4097}, "depth 4097"),
        ({"ranges": np.zeros((0, 2), np.uint64)}, "no ranges"),
        ({"ranges": np.zeros(2, np.uint64)}, r"shape \(2,\)"),
        ({"ranges": np.array([(0, 0)], np.uint64)}, "range 0: 0 bytes"),
        ({"ranges": np.array([(0, 9), (FILE_BYTES, 1)], np.uint64)}, "range 1: 1 bytes at offset 3000001"),
        ({"ranges": np.array([(1, (1 << 64) - 1)], np.uint64)}, "the file has 3000001 bytes"),
    ],
)
def test_arguments_out_of_range(known: tuple[Path, Bytes], change: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {"ranges": consecutive(FILE_BYTES, FILE_BYTES)} | change
    with pytest.raises(ArgumentError, match=message):
        probe_reads(known[0], **arguments)  # type: ignore[arg-type]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"missing.*No such file"):
        probe_reads(tmp_path / "missing", consecutive(1, 1))
    with pytest.raises(FileError, match="Is a directory"):
        probe_reads(tmp_path, consecutive(1, 1), reader=Reader.THREADS)


_REFUSED = """
import sys
from pathlib import Path
from engine.enums import Reader
from engine.errors import UnsupportedError
from engine.reads import consecutive, probe_reads
from tests.engine.forbid import forbid

path = Path(sys.argv[1])
ranges = consecutive(path.stat().st_size, 1_000_000)
forbid([int(sys.argv[2])], int(sys.argv[3]))
found = probe_reads(path, ranges, keep=True)
assert found.reader is Reader.THREADS, found.reader
assert found.data.tobytes() == path.read_bytes()
try:
    probe_reads(path, ranges, reader=Reader.IO_URING)
except UnsupportedError as error:
    print(error)
"""


@pytest.mark.parametrize("call", [IO_URING_SETUP, IO_URING_ENTER])
@pytest.mark.parametrize("error", [errno.EPERM, errno.ENOSYS], ids=["EPERM", "ENOSYS"])
def test_threads_read_where_io_uring_is_refused(known: tuple[Path, Bytes], call: int, error: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _REFUSED, str(known[0]), str(call), str(error)],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    assert "io_uring is refused" in done.stdout


def test_faults_need_the_library_that_has_them() -> None:
    with pytest.raises(UnsupportedError, match="libcflow_fault"), faults(Fault.ERROR):
        pass


@pytest.mark.parametrize(
    ("kind", "count"),
    [(Fault.SHORT, 20), (Fault.AGAIN, 20), (Fault.INTERRUPTED, 20), (Fault.DELAY, 2)],
    ids=lambda value: getattr(value, "name", ""),
)
@pytest.mark.parametrize("read_path", list(ReadPath))
def test_faults_that_pass_change_nothing(
    known: tuple[Path, Bytes], reader: Reader, read_path: ReadPath, kind: Fault, count: int
) -> None:
    path, data = known
    ranges = consecutive(FILE_BYTES, 650_000)
    with fault_library():
        for after, request_bytes in itertools.product([0, 1, 7], [4096, 131_072]):
            with faults(kind, after=after, count=count):
                found = probe_reads(
                    path,
                    ranges,
                    reader=reader,
                    read_path=read_path,
                    request_bytes=request_bytes,
                    depth=3,
                    keep=True,
                )
            assert found.data is not None
            assert np.array_equal(found.data, data)


@pytest.mark.parametrize(
    ("kind", "count", "reason"),
    [
        (Fault.ERROR, 1, "Input/output error"),
        (Fault.END, 1, "the file ended"),
        (Fault.AGAIN, ALL, "Resource temporarily unavailable"),
        (Fault.INTERRUPTED, ALL, "Interrupted system call"),
        (Fault.SHORT, ALL, "the reads stay short"),
    ],
)
def test_faults_that_last_are_reported(
    known: tuple[Path, Bytes], reader: Reader, kind: Fault, count: int, reason: str
) -> None:
    path, data = known
    ranges = consecutive(FILE_BYTES, 1_000_000)
    before = len(os.listdir("/proc/self/fd"))
    with fault_library():
        with (
            faults(kind, after=2, count=count),
            pytest.raises(FileError, match=rf"data: read of \d+ bytes at offset \d+ \(range \d\): {reason}"),
        ):
            probe_reads(path, ranges, reader=reader, request_bytes=65_536, depth=3)
        # It was the device, not the reader.
        found = probe_reads(path, ranges, reader=reader, keep=True)
    assert found.data is not None
    assert np.array_equal(found.data, data)
    assert len(os.listdir("/proc/self/fd")) == before
