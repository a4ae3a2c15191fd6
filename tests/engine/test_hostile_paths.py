"""No path that stands in a model file is ever opened: the kernel reports each access to the bait."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from engine.errors import CflowError, FileError
from engine.format import read_file
from engine.geometry import Geometry
from engine.layout import HEADER_BYTES, NAME_OFFSET, TENSOR_ENTRY
from engine.model import Model
from engine.session import Session
from engine.tokenizer import Tokenizer
from tests.engine.models import write_random_model
from tests.engine.test_hostile_files import rehash

IN_OPEN, IN_ACCESS = 0x20, 0x1
EVENT = struct.Struct("iIII")


class Watch:
    """Names of the files in a folder that somebody opens or reads, told by the kernel (inotify)."""

    def __init__(self, folder: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self._fd >= 0, os.strerror(ctypes.get_errno())
        assert libc.inotify_add_watch(self._fd, os.fsencode(folder), IN_OPEN | IN_ACCESS) >= 0

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def opened(self) -> set[str]:
        """Since the last call."""
        try:
            data = os.read(self._fd, 1 << 16)
        except BlockingIOError:
            return set()
        names, at = set(), 0
        while at < len(data):
            *_, length = EVENT.unpack_from(data, at)
            at += EVENT.size
            names.add(data[at : at + length].rstrip(b"\0").decode())
            at += length
        return names


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
def test_no_path_of_a_file_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bait = Path("/tmp") / f"b{os.getpid()}"  # short, so that it fits into names
    bait.mkdir(mode=0o700)
    try:
        (bait / "x").write_text('{"a": 1}')
        (bait / "y.json").write_text("{}")
        monkeypatch.chdir(bait)
        vocabulary = f'{{"version":"1.0","model":{{"type":"BPE","vocab":"{bait}/x","merges":"y.json"}}}}'
        path = write_random_model(
            tmp_path / "m.cflow", Geometry.named("tiny_standard"), 1, tokenizer_json=vocabulary
        )
        data = bytearray(path.read_bytes())
        data[NAME_OFFSET : NAME_OFFSET + 64] = f"{bait}/x".encode().ljust(64, b"\0")
        (count,) = struct.unpack_from("<I", data, 32)
        for index in range(count):
            at = HEADER_BYTES + index * TENSOR_ENTRY.size + 80
            name = (f"{bait}/x", "y.json", "./x", "file:x")[index % 4]
            data[at : at + 48] = name.encode().ljust(48, b"\0")
        path.write_bytes(rehash(bytes(data)))
        with Watch(bait) as watch:
            (bait / "x").read_text()
            assert watch.opened() == {"x"}  # the watch sees what it is there for
            with Model(path) as model:
                assert model.name == f"{bait}/x"
                assert model.tensors[1].name == "y.json"
                model.verify()
                for options in ({}, {"residency": "copy"}, {"residency": "direct", "stream_bytes": 1 << 20}):
                    with Session(model, threads=1, context=4, **options) as session:
                        session.decode([1, 2])
                with suppress(CflowError):
                    Tokenizer.from_json(model.tokenizer_json or "")
            with suppress(CflowError):
                read_file(path)
            assert watch.opened() == set()
    finally:
        for name in ("x", "y.json"):
            (bait / name).unlink(missing_ok=True)
        bait.rmdir()


@pytest.mark.parametrize("read", [Model, read_file])
def test_a_path_with_a_nul_character_is_no_shorter_path(
    read: Callable[[Path], object], tmp_path: Path
) -> None:
    path = tmp_path / "model.cflow"
    write_random_model(path, Geometry.named("tiny_standard"), seed=1)
    with pytest.raises(FileError, match="NUL"):
        read(Path(f"{path}\0.gguf"))
