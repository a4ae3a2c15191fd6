"""The block of lines on a terminal: in place, within the width, and gone without a trace."""

from __future__ import annotations

import errno
import io

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.text import Text

from claims.terminal import Block
from tests.claims.screen import Screen

LINES = st.lists(st.text("abc é×[]/:", max_size=60), min_size=1, max_size=4)


def block(screen: Screen, half: str = "") -> Block:
    return Block(lambda: screen, lambda: len(half))  # type: ignore[arg-type, return-value]


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "24")
    return 40


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(drawings=st.lists(LINES, min_size=1, max_size=5), half=st.text("ab. ", max_size=30))
def test_whatever_is_drawn_is_gone_after_it_is_erased(
    narrow: int, drawings: list[list[str]], half: str
) -> None:
    screen = Screen(narrow)
    screen.write(f"before\n{half}")
    shown = block(screen, half)
    for lines in drawings:
        shown.draw([Text(line) for line in lines])
        assert screen.lines[:2] == ["before", half]
        assert len(screen.shown) <= 2 + len(lines)
    shown.erase()
    assert screen.shown == (["before", half.rstrip()] if half.strip() else ["before"])
    assert (screen.row, screen.column) == (1, len(half))


@pytest.mark.parametrize(("half", "column"), [(95, 15), (40, 39), (39, 39)])
def test_the_cursor_goes_back_into_a_half_line_that_wrapped(narrow: int, half: int, column: int) -> None:
    screen = Screen(narrow)
    shown = block(screen, "x" * half)
    shown.draw([Text("below")])
    shown.erase()
    assert (screen.row, screen.column) == (0, column)


def test_a_long_line_is_cut_and_a_drawing_is_one_write(narrow: int) -> None:
    screen = Screen(narrow)
    shown = block(screen)
    shown.draw([Text("x" * 200, "bold"), Text("short")])
    assert screen.lines == ["", "x" * 38 + "…", "short"]
    shown.draw([Text("now")])
    assert screen.lines == ["", "now"]
    assert screen.writes == 2


def test_a_low_terminal_gets_fewer_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "4")
    screen = Screen(40)
    block(screen).draw([Text("one"), Text("two"), Text("three")])
    assert screen.lines == ["", "one", "two"]


def test_a_terminal_that_went_away_or_knows_no_such_letter_ends_nothing(narrow: int) -> None:
    class Gone(Screen):
        def write(self, text: str) -> int:
            raise OSError(errno.EIO, "Input/output error")

    gone = block(Gone(narrow))
    gone.draw([Text("one")])
    gone.erase()
    ascii_alone = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    shown = Block(lambda: ascii_alone, lambda: 0)
    shown.draw([Text("é" * 99)])
    shown.erase()
    assert b"?" in ascii_alone.buffer.getvalue()  # type: ignore[attr-defined]


def test_nothing_drawn_leaves_nothing_to_erase() -> None:
    screen = Screen(40)
    block(screen).erase()
    assert screen.writes == 0
