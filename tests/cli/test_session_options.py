"""Options of our session on the command line, and what is said of how experts are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.console import UsageError
from cli.session_options import parse_size, reading_notes, session_options
from engine.enums import Reader, ReadPath, Residency
from tests.cli.conftest import Cflow


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("4096", 4096),
        ("2e9", 2 * 10**9),
        ("4GiB", 4 << 30),
        ("1.5 GB", 1_500_000_000),
        ("500mb", 500_000_000),
        ("2KiB", 2048),
        ("1TiB", 1 << 40),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size("--ram-budget", text) == size


@pytest.mark.parametrize("text", ["", "much", "-1", "0", "1e30", "4 GiBs", "1..5GB", "nan", "e9"])
def test_wrong_sizes_are_named(text: str) -> None:
    with pytest.raises(UsageError, match="--ram-budget is .*, must be a size such as 4GiB, 500MB or 2e9"):
        parse_size("--ram-budget", text)


def test_a_budget_implies_direct() -> None:
    assert session_options(None, ram_budget="1GiB") == {"ram_budget": 1 << 30, "residency": "direct"}
    assert session_options(["residency=direct"], verify="never") == {"residency": "direct", "verify": "never"}
    assert session_options(["pin=0"], isa="avx2", residency="copy") == {
        "pin": 0,
        "isa": "avx2",
        "residency": "copy",
    }


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"ram_budget": "1GB", "residency": "mmap"}, "--ram-budget needs --residency direct"),
        ({"verify": "always"}, "--verify needs --residency direct"),
    ],
)
def test_what_needs_direct_says_so(arguments: dict[str, str], fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        session_options(None, **arguments)


def resolved(**changes: int) -> dict[str, int]:
    options = {
        "residency": int(Residency.DIRECT),
        "reader": int(Reader.IO_URING),
        "read_path": int(ReadPath.DIRECT),
        "read_rate": 0,
    }
    return options | changes


def test_notes_are_loud_about_the_page_cache() -> None:
    (note,) = reading_notes(resolved(), {})
    assert note == "experts are read from disk by io_uring, past the page cache (O_DIRECT)"
    buffered = resolved(read_path=ReadPath.BUFFERED, reader=Reader.THREADS)
    (note,) = reading_notes(buffered, {})
    assert note.startswith("WARNING: experts are read by a few threads THROUGH the page cache")
    (note,) = reading_notes(buffered, {"read_path": "buffered"})
    assert "WARNING" not in note
    assert list(reading_notes(resolved(read_rate=500_000_000), {}))[1] == "the disk is emulated: 500.0 MB/s"
    assert not list(reading_notes(resolved(residency=Residency.COPY), {}))
    assert not list(reading_notes(resolved(reader=Reader.AUTO), {}))


def test_generate_says_where_experts_come_from(cflow: Cflow, moe: Path) -> None:
    arguments = ("generate", "-m", moe, "--token-ids", "3,1,4", "-n", 6)
    mapped = cflow(*arguments)
    direct = cflow(*arguments, "--residency", "direct")
    assert direct.code == 0
    assert direct.out == mapped.out
    assert "experts are read" in direct.err
    assert "waited for the disk" in direct.err
    assert "waited for the disk" not in mapped.err
    kept = cflow(*arguments, "--ram-budget", "1GiB", "--verify", "always", "-o", "expert_reads=sync")
    assert kept.out == mapped.out


def test_generate_names_the_least_budget(cflow: Cflow, moe: Path) -> None:
    outcome = cflow("generate", "-m", moe, "--token-ids", "1", "--ram-budget", "10kB")
    assert outcome.code != 0
    assert "option ram_budget is 10000 bytes" in outcome.err
    assert "needs at least" in outcome.err


def test_generate_refuses_to_be_told_the_context(cflow: Cflow, moe: Path) -> None:
    outcome = cflow("generate", "-m", moe, "--token-ids", "1", "-o", "context=7")
    assert (outcome.code, "--option context" in outcome.err) == (2, True)
