"""A disk that is full, before a file is written or meanwhile: what is said, and that nothing stays."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine import pending
from engine.convert_gguf import convert
from engine.enums import Order
from engine.errors import FileError
from engine.export_gguf import export
from engine.geometry import Geometry
from engine.reorder import reorder
from engine.synth import synthesise

DISK_BYTES = 1 << 20
GEOMETRY = replace(Geometry.named("tiny_moe"), d_model=320, heads=5, kv_heads=5, head_dim=64, norm_topk=True)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same weights as .cflow and as GGUF, each larger than the disk."""
    folder = tmp_path_factory.mktemp("sources")
    path = synthesise(folder / "m.cflow", GEOMETRY, 1).path
    export(path, folder / "m.gguf")
    assert path.stat().st_size > 1.5 * DISK_BYTES
    return {"cflow": path, "gguf": folder / "m.gguf"}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """An empty file system of 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if shutil.which("mount") is None:
        pytest.skip("no mount command here")
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"a file system of its own takes root: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


Write = Callable[[dict[str, Path], Path], object]
WRITERS: dict[str, tuple[str, Write]] = {
    "by phase": ("m.vflow", lambda found, target: reorder(found["cflow"], target, Order.PHASE)),
    "by kind": ("m.vflow", lambda found, target: reorder(found["cflow"], target, Order.KIND)),
    "layer-major": ("m.cflow", lambda found, target: reorder(found["cflow"], target, Order.LAYER)),
    "from GGUF": ("m.cflow", lambda found, target: convert(found["gguf"], target)),
    "GGUF by phase": ("m.vflow", lambda found, target: convert(found["gguf"], target, order=Order.PHASE)),
    "to GGUF": ("m.gguf", lambda found, target: export(found["cflow"], target)),
    "random": ("m.vflow", lambda found, target: synthesise(target, GEOMETRY, 1, order=Order.KIND)),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_disk_that_is_too_small_is_noticed_first(sources: dict[str, Path], disk: Path, writer: str) -> None:
    name, write = WRITERS[writer]
    with pytest.raises(
        FileError, match=rf"{name}: needs [\d,]+ bytes, the file system has [\d,]+ bytes free"
    ):
        write(sources, disk / name)
    assert os.listdir(disk) == []


@pytest.mark.parametrize("writer", WRITERS)
def test_a_disk_that_fills_up_meanwhile_leaves_nothing(
    sources: dict[str, Path], disk: Path, writer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Others took the space after it was looked at.
    monkeypatch.setattr(
        pending,
        "os",
        SimpleNamespace(**vars(os) | {"statvfs": lambda _: SimpleNamespace(f_bavail=1 << 40, f_frsize=1)}),
    )
    name, write = WRITERS[writer]
    fault = rf"{name}: (write at byte \d+ failed|cannot reserve [\d,]+ bytes): (?i:no space left)"
    with pytest.raises(FileError, match=fault):
        write(sources, disk / name)
    assert os.listdir(disk) == []


def test_what_stood_there_before_stays(sources: dict[str, Path], disk: Path) -> None:
    (disk / "m.vflow").write_bytes(b"older")
    with pytest.raises(FileError, match="bytes free"):
        reorder(sources["cflow"], disk / "m.vflow", Order.KIND)
    assert (disk / "m.vflow").read_bytes() == b"older"
