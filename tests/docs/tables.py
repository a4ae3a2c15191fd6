"""Tables of a Markdown document, read back."""

from __future__ import annotations

from pathlib import Path


def table_of(document: Path, first_heading: str) -> list[list[str]]:
    """The rows of the table whose first column has that heading, cells as text."""
    lines = document.read_text(encoding="utf-8").splitlines()
    starts = [index for index, line in enumerate(lines) if line.startswith(f"| {first_heading} |")]
    assert len(starts) == 1, f"{document}: {len(starts)} tables begin with {first_heading!r}"
    rows = []
    for line in lines[starts[0] + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows
