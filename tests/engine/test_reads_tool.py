"""tools.reads: both readers read the whole file, and what cannot be compared ends with one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.enums import Reader
from engine.errors import CflowError
from engine.native import built_beside_library
from engine.reads import MIB, consecutive, probe_reads
from tools import reads


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file that does not end with a whole request, on a file system that can be compared on."""
    path = tmp_path / "data"
    path.write_bytes(bytes(range(256)) * 20_000 + b"end")
    try:
        reads.engine_ns(reads.Setup(path, MIB, MIB, (1,)), Reader.IO_URING)
    except (CflowError, reads.DriverError) as error:
        pytest.skip(f"nothing to compare here: {error}")
    if not built_beside_library(reads.DRIVER_NAME).is_file():
        pytest.skip("built without io_uring")
    return path


def test_every_arm_is_in_the_table(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reads.main([str(file), "--rounds", "2", "--request", "65536", "--issue", "200000", "--depth", "1", "3"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("data: 5.1 MB in requests of 64 KiB, 2 rounds")
    assert [line[:16].rstrip() for line in lines[1:]] == [
        "plain, depth 1",
        "plain, depth 3",
        "engine, io_uring",
        "engine, threads",
    ]
    assert any(": 1.000 (1.000 to 1.000)" in line for line in lines)


def test_the_engine_has_as_much_under_way_as_the_plain_reader() -> None:
    setup = reads.Setup(Path("x"), MIB, 4 * MIB, (4, 16))
    assert setup.ranges_outstanding * setup.issue_bytes == 16 * setup.request_bytes
    assert reads.Setup(Path("x"), MIB, 4 * MIB, (1,)).ranges_outstanding == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rounds", "0"], "must be at least 1"),
        (["--depth", "0"], "must be at least 1"),
        (["--request", "5000"], "multiple of 4096"),
    ],
)
def test_bad_arguments_end_with_one_line(
    file: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        reads.main([str(file), *arguments])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        reads.main([str(tmp_path / "missing")])
    assert ended.value.code == 2
    assert "missing" in capsys.readouterr().err.splitlines()[-1]


def test_the_plain_reader_refuses_what_it_cannot_read(file: Path) -> None:
    with pytest.raises(reads.DriverError, match="DEPTH 1 to 256"):
        reads.plain_ns(reads.Setup(file, MIB, MIB, (1,)), 257)


def test_ranges_cover_a_file() -> None:
    ranges = consecutive(10, 4)
    assert ranges.tolist() == [[0, 4], [4, 4], [8, 2]]
    assert probe_reads(Path(__file__), consecutive(10, 4), keep=True).data is not None
