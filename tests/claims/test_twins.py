"""The .cflow and the GGUF hold the same weights, or are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from claims.models import from_gguf
from claims.twins import TwinError, block_bytes_per_token, check_twin
from engine.convert_gguf import convert
from engine.enums import Param
from engine.errors import ChecksumError, FileError
from engine.model import Model
from engine.session import Session
from engine.tiles import TileShape
from tests.engine.gguf_files import LlamaGguf


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    return LlamaGguf(seed=1).write(tmp_path / "m.gguf")


def test_the_same_weights(gguf: Path, tmp_path: Path) -> None:
    convert(gguf, tmp_path / "m.cflow")
    with Model(tmp_path / "m.cflow") as model:
        check_twin(model, gguf, tmp_path / "cache")


def test_other_weights(gguf: Path, tmp_path: Path) -> None:
    convert(LlamaGguf(seed=2).write(tmp_path / "other.gguf"), tmp_path / "other.cflow")
    with (
        Model(tmp_path / "other.cflow") as model,
        pytest.raises(TwinError, match=r"not made from .*m\.gguf, block for block: .* differ"),
    ):
        check_twin(model, gguf, tmp_path / "cache")


def test_one_block_that_differs(tmp_path: Path) -> None:
    changed = LlamaGguf(seed=1)
    changed.tensors["blk.1.ffn_down.weight"][1].flat[5] ^= 1
    gguf = changed.write(tmp_path / "m.gguf")
    convert(LlamaGguf(seed=1).write(tmp_path / "was.gguf"), tmp_path / "was.cflow")
    with Model(tmp_path / "was.cflow") as model, pytest.raises(TwinError, match="down.* differ"):
        check_twin(model, gguf, tmp_path / "cache")


def test_another_shape(gguf: Path, tmp_path: Path) -> None:
    convert(gguf, tmp_path / "m.cflow", tile_shape=TileShape(64, 128))
    with (
        Model(tmp_path / "m.cflow") as model,
        pytest.raises(TwinError, match="tile_rows is 64, 128 expected"),
    ):
        check_twin(model, gguf, tmp_path / "cache")


def test_a_damaged_file_is_not_its_hash(gguf: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.cflow"
    convert(gguf, path)
    with Model(path) as model:
        offset = model.tensors[3].offset
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)
    with Model(path) as model, pytest.raises(ChecksumError):
        check_twin(model, gguf, tmp_path / "cache")


def test_conversions_are_kept_until_the_source_changes(gguf: Path, tmp_path: Path) -> None:
    made = from_gguf(tmp_path / "cache", gguf)
    inode = made.stat().st_ino
    assert from_gguf(tmp_path / "cache", gguf) == made
    assert made.stat().st_ino == inode
    LlamaGguf(seed=7).write(gguf)
    assert from_gguf(tmp_path / "cache", gguf) != made
    with pytest.raises(FileError, match=r"absent\.gguf: cannot be read"):
        from_gguf(tmp_path / "cache", tmp_path / "absent.gguf")


@pytest.mark.parametrize("experts", [0, 16])
@pytest.mark.parametrize("tied", [False, True])
def test_bytes_of_a_token_are_what_the_engine_reads(tmp_path: Path, experts: int, tied: bool) -> None:
    # Shapes whose tiles have no padding; the vocabulary alone has.
    path = tmp_path / "m.cflow"
    source = LlamaGguf(hidden=128, experts=experts, tied=tied)
    convert(source.write(tmp_path / "m.gguf"), path)
    with Model(path) as model, Session(model, threads=1) as session:
        session.decode([1])
        counters = session.counters()
        read = sum(size for name, size in counters.items() if name.endswith("_bytes") and name != "kv_bytes")
        head = next(one for one in model.tensors if one.name == ("embedding" if tied else "head"))
        padding = (-sum(head.rows) % 16) * model.param(Param.D_MODEL) // 32 * 18
        found = block_bytes_per_token(model, model.param(Param.EXPERTS_PER_TOKEN))
    assert found == read - padding
