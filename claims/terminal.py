"""A block of lines below the cursor of a terminal, drawn again in place and taken off without a trace."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Sequence
from io import StringIO
from typing import Final, TextIO

from rich.console import Console
from rich.text import Text

_ERASE_BELOW: Final = "\x1b[J"


class Block:
    """Lines below whatever stands on the terminal, of which the last may be half a line of somebody else's.

    stream: the terminal. column: columns of that half line, where the cursor goes back to. The cursor is
    never hidden, and every drawing is one write: a process that is killed leaves some lines of text and
    nothing else.
    """

    def __init__(self, stream: Callable[[], TextIO], column: Callable[[], int]) -> None:
        self._stream = stream
        self._column = column
        self._height = 0

    def draw(self, lines: Sequence[Text]) -> None:
        """Shows these lines in place of those before; what is wider than the terminal is cut."""
        size = shutil.get_terminal_size()
        shown = lines[: max(1, size.lines - 2)]
        text = _rendered(shown, max(1, size.columns - 1))
        begin = _up(self._height - 1) + _ERASE_BELOW if self._height else "\n"
        self._write(begin + text)
        self._height = len(shown)

    def erase(self) -> None:
        """Takes the block off; the cursor is where it was before the first drawing."""
        if self._height:
            column, columns = self._column(), shutil.get_terminal_size().columns
            column = column % columns or min(column, columns - 1)  # a long half line has wrapped
            self._write(_up(self._height - 1) + _ERASE_BELOW + _up(1) + (f"\x1b[{column}C" if column else ""))
            self._height = 0

    def _write(self, text: str) -> None:
        """What cannot be shown, or not in the terminal's encoding, must not end a measurement."""
        stream = self._stream()
        encoding = getattr(stream, "encoding", None) or "utf-8"
        with contextlib.suppress(OSError):
            stream.write(text.encode(encoding, "replace").decode(encoding))
            stream.flush()


def _up(lines: int) -> str:
    """To the first column, that many lines above."""
    return "\r" + (f"\x1b[{lines}A" if lines else "")


def _rendered(lines: Sequence[Text], width: int) -> str:
    """The lines as bytes for the terminal, without a line feed at the end."""
    console = Console(file=StringIO(), width=width, force_terminal=True, highlight=False)
    with console.capture() as captured:
        for line in lines:
            line.truncate(width, overflow="ellipsis")
            console.print(line, no_wrap=True, crop=True, end="\n")
    return captured.get().removesuffix("\n")
