"""Files that are whole or not there: written under another name, fsynced, renamed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from engine.pending import PendingFile


def write_atomically(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Writes or replaces `path`. Raises FileError naming it; then what was there before is still there."""
    pieces = [data] if isinstance(data, bytes) else list(data)
    with PendingFile(path, sum(map(len, pieces))) as file:
        offset = 0
        for piece in pieces:
            file.write_at(offset, piece)
            offset += len(piece)
        file.commit()
