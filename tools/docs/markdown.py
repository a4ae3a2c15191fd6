"""Markdown in small pieces, for the pages that are generated."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def escaped(text: str) -> str:
    """The text as running Markdown that shows it as it is, on one line."""
    return re.sub(r"([\\`*_\[\]<>|#$])", r"\\\1", " ".join(text.split()))


def code(text: str) -> str:
    """The text as inline code, in a table too. A text that holds a backtick is not needed here."""
    return "`" + " ".join(text.split()).replace("|", "\\|") + "`"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def fence(text: str, language: str = "") -> str:
    """A block of code."""
    return f"```{language}\n{text.strip(chr(10))}\n```\n"
