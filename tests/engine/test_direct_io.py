"""Sequential writing by O_DIRECT and without it: the same bytes, whatever the pieces."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import direct_io
from engine.direct_io import SequentialWriter
from engine.pending import PendingFile


def written(path: Path, pieces: list[int], refuse: bool) -> tuple[bytes, bytes]:
    """What pieces of these lengths should give, and what they gave."""
    data = np.random.default_rng(len(pieces)).integers(1, 256, sum(pieces), np.uint8)
    with PendingFile(path, data.size) as file:
        writer = SequentialWriter(file, data.size)
        for piece in np.split(data, np.cumsum(pieces)[:-1]) if pieces else []:
            writer.write(piece)
        assert writer.position == data.size
        writer.finish()
        file.commit()
    assert not (refuse and not writer.note)
    return data.tobytes(), path.read_bytes()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
@given(pieces=st.lists(st.integers(0, 20_000), min_size=1, max_size=8), refuse=st.booleans())
def test_any_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pieces: list[int], refuse: bool) -> None:
    real = fcntl.fcntl

    def no_direct_io(fd: int, command: int, value: int = 0) -> int:
        if command == fcntl.F_SETFL and value & os.O_DIRECT:
            raise OSError(22, "Invalid argument")
        return real(fd, command, value)

    with monkeypatch.context() as patch:
        patch.setattr(direct_io, "_BUFFER_BYTES", 8192)
        if refuse:
            patch.setattr(fcntl, "fcntl", no_direct_io)
        expected, found = written(tmp_path / "f", [*pieces, 1], refuse)
    assert found == expected


def test_padding_is_zero(tmp_path: Path) -> None:
    with PendingFile(tmp_path / "f", 100) as file:
        writer = SequentialWriter(file, 100)
        writer.write(np.ones((2, 3), np.uint8))
        writer.pad_to(100)
        writer.finish()
        file.commit()
    assert (tmp_path / "f").read_bytes() == b"\1" * 6 + bytes(94)
