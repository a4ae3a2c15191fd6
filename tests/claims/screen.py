"""A terminal in a list of lines: as much of one as the display needs."""

from __future__ import annotations

import re

_PARTS = re.compile(r"\x1b\[(\d*)([A-Za-z])|\x1b\[[\d;]*m|([\r\n])|([^\x1b\r\n])")


class Screen:
    """Endless lines; a character in the last column does not wrap, and one beyond is a defect."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.lines: list[str] = [""]
        self.row = self.column = 0
        self.writes = 0

    @property
    def shown(self) -> list[str]:
        """The lines up to the last that holds something."""
        lines = [line.rstrip() for line in self.lines]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    def isatty(self) -> bool:
        return True

    def flush(self) -> None:
        """Everything is shown at once."""

    def write(self, text: str) -> int:
        self.writes += 1
        for found in _PARTS.finditer(text):
            count, command, control, character = found.groups()
            if command:
                self._command(command, int(count or 1))
            elif control == "\r":
                self.column = 0
            elif control == "\n":
                self.row, self.column = self.row + 1, 0
                self.lines += [""] * (self.row + 1 - len(self.lines))
            elif character:
                self._put(character)
        return len(text)

    def _put(self, character: str) -> None:
        assert self.column < self.width, "a line is wider than the terminal"
        line = self.lines[self.row].ljust(self.column)
        self.lines[self.row] = line[: self.column] + character + line[self.column + 1 :]
        self.column += 1

    def _command(self, command: str, count: int) -> None:
        if command == "A":
            assert self.row >= count, "above the first line"
            self.row -= count
        elif command == "C":
            self.column += count
        elif command == "J":
            self.lines[self.row :] = [self.lines[self.row][: self.column]]
        elif command != "m":
            raise AssertionError(f"unknown command {command}")
