"""The .cflow writer and the Python reader: bytes at the places that cflow.h states, and faults caught."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.enums import Architecture, Role, Route, Type
from engine.errors import ArgumentError, ChecksumError, FileError, FormatError, NonFiniteError
from engine.format import CflowWriter, Hyperparameters, TensorSpec, model_specs, plan, read_file, tensor_spec
from engine.geometry import Geometry
from engine.tiles import TileShape
from tests.engine.models import write_random_model

TINY = Geometry.named("tiny_standard")
HPARAMS = TINY.hyperparameters(32, 64)


def zeros(spec: TensorSpec, shape: TileShape) -> bytes:
    return bytes(4 * spec.part_rows[0] if spec.is_vector else spec.data_bytes(shape))


@pytest.fixture(scope="module")
def model_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("model") / "m.cflow"
    write_random_model(path, TINY, 1, tile_rows=32, tile_cols=64, tokenizer_json='{"a": "é"}')
    return path.read_bytes()


@pytest.fixture
def model(tmp_path: Path, model_bytes: bytes) -> Path:
    path = tmp_path / "m.cflow"
    path.write_bytes(model_bytes)
    return path


def test_header_fields_lie_where_the_format_says(model: Path) -> None:
    raw = model.read_bytes()
    assert raw[:8] == b"CFLOW\r\n\x1a"
    assert struct.unpack_from("<II", raw, 8) == (1, 512)
    file_bytes, table_offset, tensor_count, entry_bytes = struct.unpack_from("<QQII", raw, 16)
    expert_offset, expert_count, expert_bytes = struct.unpack_from("<QII", raw, 40)
    tokenizer_offset, tokenizer_bytes, tokenizer_hash, tables_hash, data_offset = struct.unpack_from(
        "<5Q", raw, 56
    )
    assert file_bytes == len(raw)
    assert (entry_bytes, expert_bytes, expert_count) == (128, 32, 4 * 4)
    assert tensor_count == 1 + 4 * 8 + 2 + 4 * 4 * 2
    assert table_offset % 64 == 0 and table_offset >= 512
    assert expert_offset % 64 == 0 and expert_offset >= table_offset + 128 * tensor_count
    tokenizer = raw[tokenizer_offset : tokenizer_offset + tokenizer_bytes]
    assert tokenizer.decode() == '{"a": "é"}'
    assert xxhash.xxh64_intdigest(tokenizer) == tokenizer_hash
    tables = raw[table_offset:][: 128 * tensor_count] + raw[expert_offset:][: 32 * expert_count]
    assert xxhash.xxh64_intdigest(tables) == tables_hash
    assert data_offset % 4096 == 0 and data_offset >= tokenizer_offset + tokenizer_bytes
    words = struct.unpack_from("<25I", raw, 128)
    assert words[:12] == (4, 4, 64, 4, 2, 16, 160, 4, 2, 96, 131, 48)
    assert words[12:20] == (0, 0, 0, 0, 0, 1, 32, 64)
    assert words[20] == struct.unpack("<I", struct.pack("<f", 1e-6))[0]
    assert words[21] == struct.unpack("<I", struct.pack("<f", 1e4))[0]
    assert words[22:] == (0, 0xFFFFFFFF, 0xFFFFFFFF)
    assert raw[96:128] == bytes(32)
    assert raw[228:440] == bytes(212)
    assert raw[440:504] == b"random 1".ljust(64, b"\0")
    assert struct.unpack_from("<Q", raw, 504)[0] == xxhash.xxh64_intdigest(raw[:504])


def test_tensor_and_expert_tables(model: Path) -> None:
    raw = model.read_bytes()
    table_offset, tensor_count = struct.unpack_from("<QI", raw, 24)
    expert_offset, expert_count = struct.unpack_from("<QI", raw, 40)
    by_name = {}
    end = struct.unpack_from("<Q", raw, 88)[0]
    for index in range(tensor_count):
        *numbers, name = struct.unpack_from("<6I7Q48s", raw, table_offset + 128 * index)
        role, block, expert, kind, parts, reserved, r0, r1, r2, columns, offset, length, digest = numbers
        by_name[name.rstrip(b"\0").decode()] = numbers
        assert reserved == 0
        assert offset % 64 == 0 and offset >= end
        assert not any(raw[end:offset]), "gaps are zero"
        assert xxhash.xxh64_intdigest(raw[offset : offset + length]) == digest
        end = offset + length
    none = 0xFFFFFFFF
    assert by_name["embedding"][:10] == [0, none, none, 2, 1, 0, 131, 0, 0, 64]
    assert by_name["blk.2.attn_qkv"][:10] == [2, 2, none, 2, 3, 0, 64, 32, 32, 64]
    assert by_name["blk.0.attn_norm"][:10] == [1, 0, none, 0, 1, 0, 64, 0, 0, 1]
    assert by_name["blk.0.router"][:10] == [9, 0, none, 0, 1, 0, 4, 0, 0, 64]
    assert by_name["blk.3.exp.1.gate_up"][:10] == [13, 3, 1, 2, 2, 0, 96, 96, 0, 64]
    assert by_name["blk.3.exp.1.down"][:10] == [14, 3, 1, 2, 1, 0, 64, 0, 0, 96]
    order = list(by_name)
    assert order[:4] == ["embedding", "blk.0.attn_norm", "blk.0.attn_qkv", "blk.0.attn_output"]
    assert order[33:37] == ["output_norm", "head", "blk.0.exp.0.gate_up", "blk.0.exp.0.down"]
    for index in range(expert_count):
        offset, length, digest, reserved = struct.unpack_from("<4Q", raw, expert_offset + 32 * index)
        gate_up, down = (by_name[f"blk.{index // 4}.exp.{index % 4}.{part}"] for part in ("gate_up", "down"))
        assert (offset % 4096, reserved) == (0, 0)
        assert offset == gate_up[10]
        assert down[10] == offset + (gate_up[11] + 63) // 64 * 64
        assert length == down[10] + down[11] - offset
        assert digest == xxhash.xxh64_intdigest(raw[offset : offset + length])


@pytest.mark.parametrize("name", ["tiny_arch3", "tiny_arch5", "tiny_dense", "tiny_moe", "tiny_arch4"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("qk_norm", [False, True])
def test_reader_returns_what_was_written(tmp_path: Path, name: str, bias: bool, qk_norm: bool) -> None:
    geometry = Geometry.named(name)
    path = write_random_model(tmp_path / "m.cflow", geometry, 5, Type.Q8_0, qkv_bias=bias, qk_norm=qk_norm)
    file = read_file(path)
    file.verify()
    assert file.hparams == geometry.hyperparameters()
    assert file.name == "random 5"
    assert file.tokenizer_json is None
    specs = model_specs(file.hparams, lambda _: Type.Q8_0, bias, qk_norm)
    assert [entry.spec for entry in file.tensors] == specs
    assert (file.entry(Role.ATTN_QKV_BIAS, 0) is not None) == bias
    assert (file.entry(Role.ATTN_K_NORM, 0) is not None) == qk_norm
    assert os.listdir(tmp_path) == ["m.cflow"]


def test_same_arguments_give_the_same_bytes(tmp_path: Path) -> None:
    paths = [write_random_model(tmp_path / name, TINY, 9) for name in ("a", "b")]
    assert paths[0].read_bytes() == paths[1].read_bytes()


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(st.integers(150, 5000), min_size=1, max_size=6))
def test_pieces_of_any_length_give_the_same_file(model: Path, pieces: list[int]) -> None:
    source = read_file(model)
    copy = model.parent / "copy.cflow"
    specs = [entry.spec for entry in source.tensors]
    with CflowWriter(copy, source.hparams, specs, source.tokenizer_json, source.name) as writer:
        for index, entry in enumerate(source.tensors):
            data = source.data(entry)
            if entry.spec.is_vector:
                data = data[: 4 * entry.spec.part_rows[0]]
            step = pieces[index % len(pieces)]
            for start in range(0, len(data), step):
                writer.write(entry.spec, data[start : start + step])
    assert copy.read_bytes() == model.read_bytes()


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_failure_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    specs = model_specs(HPARAMS, lambda _: Type.Q4_0)
    with pytest.raises(error), CflowWriter(tmp_path / "m.cflow", HPARAMS, specs) as writer:
        writer.write(specs[0], zeros(specs[0], HPARAMS.tile_shape))
        raise error
    assert os.listdir(tmp_path) == []


def test_a_failure_keeps_the_file_that_was_there(model: Path) -> None:
    before = model.read_bytes()
    specs = model_specs(HPARAMS, lambda _: Type.Q4_0)
    with pytest.raises(ArgumentError, match="embedding: 0 of "), CflowWriter(model, HPARAMS, specs):
        pass
    assert model.read_bytes() == before


@pytest.mark.parametrize(
    ("kind", "message"),
    [(kind, r"blk\.1\.ffn_down: part 0, row 33, block 3 ") for kind in Type],
)
def test_a_scale_that_is_not_finite_is_named(tmp_path: Path, kind: Type, message: str) -> None:
    """In the third group of a tile of the second stripe, written in pieces that cut through groups."""
    specs = model_specs(HPARAMS, lambda _: kind)
    target = next(spec for spec in specs if spec.name == "blk.1.ffn_down")
    layout = target.layout(HPARAMS.tile_shape)
    tile = next(t for t in layout.tiles() if (t.first_row, t.first_column) == (32, 64))
    per_block = {Type.F32: 2048, Type.F16: 1024}.get(kind, 32)
    place = tile.offset + per_block + (4 if kind is Type.F32 else 2)
    poison = np.array([np.nan], np.float32 if kind is Type.F32 else np.float16).tobytes()
    with pytest.raises(NonFiniteError, match=message), CflowWriter(tmp_path / "m", HPARAMS, specs) as writer:
        for spec in specs:
            data = bytearray(zeros(spec, HPARAMS.tile_shape))
            if spec == target:
                data[place : place + len(poison)] = poison
            for start in range(0, len(data), 1000):
                writer.write(spec, bytes(data[start : start + 1000]))
    assert os.listdir(tmp_path) == []


def test_a_gain_that_is_not_finite_is_named(tmp_path: Path) -> None:
    specs = model_specs(HPARAMS, lambda _: Type.Q4_0)
    gains = np.ones(64, np.float32)
    gains[63] = np.inf
    with (
        pytest.raises(NonFiniteError, match=r"blk\.0\.attn_norm"),
        CflowWriter(tmp_path / "m", HPARAMS, specs) as w,
    ):
        w.write(specs[0], zeros(specs[0], HPARAMS.tile_shape))
        w.write(specs[1], gains)


def test_too_little_space_is_found_before_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=3, f_frsize=4096, f_bfree=10**9))
    specs = model_specs(HPARAMS, lambda _: Type.Q4_0)
    with (
        pytest.raises(FileError, match=r"m\.cflow: needs [\d,]+ bytes, .* 12,288 bytes free"),
        CflowWriter(tmp_path / "m.cflow", HPARAMS, specs),
    ):
        pass
    assert os.listdir(tmp_path) == []


def test_a_disk_that_fills_up_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    specs = model_specs(HPARAMS, lambda _: Type.Q4_0)
    with (
        pytest.raises(FileError, match="no space left"),
        CflowWriter(tmp_path / "m", HPARAMS, specs) as writer,
    ):
        monkeypatch.setattr(os, "pwrite", full)
        writer.write(specs[0], zeros(specs[0], HPARAMS.tile_shape))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("target", ["missing/m.cflow", "."])
def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, target: str) -> None:
    specs = model_specs(HPARAMS, lambda _: Type.Q4_0)
    with pytest.raises(FileError, match=str(tmp_path)), CflowWriter(tmp_path / target, HPARAMS, specs):
        pass


def test_writing_out_of_turn_or_too_much_is_refused(tmp_path: Path) -> None:
    specs = model_specs(HPARAMS, lambda _: Type.Q4_0)
    turn = "output_norm: written out of turn; next is embedding"
    with pytest.raises(ArgumentError, match=turn), CflowWriter(tmp_path / "m", HPARAMS, specs) as writer:
        writer.write(tensor_spec(HPARAMS, Role.OUTPUT_NORM, Type.F32), bytes(256))
    much = "embedding: more than its"
    with pytest.raises(ArgumentError, match=much), CflowWriter(tmp_path / "m", HPARAMS, specs) as writer:
        writer.write(specs[0], bytes(10**6))
    with pytest.raises(ArgumentError, match="with statement"):
        CflowWriter(tmp_path / "m", HPARAMS, specs).write(specs[0], bytes(64))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s[1:], "embedding: is missing"),
        (lambda s: [*s, s[3]], "blk.0.attn_output: is given twice"),
        (lambda s: [replace(s[0], columns=32), *s[1:]], r"embedding: rows and columns are \(131,\) and 32"),
        (lambda s: [s[0], replace(s[1], kind=Type.F16), *s[2:]], "blk.0.attn_norm: is f16, must be f32"),
        (
            lambda s: [*s, TensorSpec(Role.REGISTER, 0, None, Type.F32, (64,), 1)],
            "blk.0.register: a model with these parameters has no such tensor",
        ),
    ],
)
def test_specs_that_do_not_fit_the_parameters_are_refused(
    change: Callable[[list[TensorSpec]], list[TensorSpec]], message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        plan(HPARAMS, change(model_specs(HPARAMS, lambda _: Type.Q4_0)))


def test_a_model_name_must_fit(tmp_path: Path) -> None:
    specs = model_specs(HPARAMS, lambda _: Type.Q4_0)
    assert plan(HPARAMS, specs, "é" * 31).name == "é" * 31
    with pytest.raises(ArgumentError, match="at most 63 UTF-8 bytes"):
        plan(HPARAMS, specs, "é" * 32)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("layers", 0),
        ("layers", 4097),
        ("blocks", 5),
        ("d_model", 0),
        ("d_model", 48),
        ("heads", 0),
        ("kv_heads", 3),
        ("head_dim", 15),
        ("ffn_hidden", 33),
        ("experts_per_token", 5),
        ("experts_per_token", 0),
        ("expert_hidden", 0),
        ("vocab", 0),
        ("context", 0),
        ("dense_delay", 65),
        ("expert_delay", -1),
        ("tile_rows", 24),
        ("tile_cols", 31),
        ("rms_eps", 1.0),
        ("rope_base", float("inf")),
        ("eos", 131),
    ],
)
def test_parameters_out_of_range_are_named(field: str, value: Any) -> None:
    with pytest.raises(ArgumentError, match=field):
        replace(HPARAMS, **{field: value})


def test_parameters_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ArgumentError, match="experts_per_token and expert_hidden must be 0"):
        replace(HPARAMS, experts=0)
    with pytest.raises(ArgumentError, match="ffn_hidden and experts are both 0"):
        replace(HPARAMS, experts=0, experts_per_token=0, expert_hidden=0, ffn_hidden=0)
    changes: list[dict[str, Any]] = [{"dense_delay": 1}, {"expert_delay": 1}, {"route": Route.PRE_DENSE}]
    for change in changes:
        with pytest.raises(ArgumentError, match="must be 0, 0 and current for register"):
            replace(HPARAMS, architecture=Architecture.REGISTER, **change)


def test_floats_are_what_the_file_stores() -> None:
    assert HPARAMS.rms_eps == float(np.float32(1e-6))
    assert Hyperparameters.from_words(HPARAMS.words()) == HPARAMS


@pytest.mark.parametrize("place", ["header", "table", "experts", "tokenizer", "tensor", "expert"])
def test_a_flipped_bit_is_found(model: Path, place: str) -> None:
    raw = bytearray(model.read_bytes())
    file = read_file(model)
    entry = file.entry(Role.ATTN_OUTPUT, 2)
    assert entry is not None
    offset = {
        "header": 128,
        "table": 512 + 128 * 7 + 80,
        "experts": struct.unpack_from("<Q", raw, 40)[0],
        "tokenizer": struct.unpack_from("<Q", raw, 56)[0],
        "tensor": entry.offset + entry.length // 2,
        "expert": file.experts[5][0] + 100,
    }[place]
    raw[offset] ^= 4
    model.write_bytes(raw)
    with pytest.raises(ChecksumError, match="XXH64"):
        read_file(model).verify()


def rehashed(raw: bytearray) -> bytes:
    """The file with table and header hashes made right again, as an attacker would."""
    table, count = struct.unpack_from("<QI", raw, 24)
    experts, expert_count = struct.unpack_from("<QI", raw, 40)
    tables = bytes(raw[table : table + 128 * count] + raw[experts : experts + 32 * expert_count])
    struct.pack_into("<Q", raw, 80, xxhash.xxh64_intdigest(tables))
    struct.pack_into("<Q", raw, 504, xxhash.xxh64_intdigest(bytes(raw[:504])))
    return bytes(raw)


@pytest.mark.parametrize(
    ("offset", "layout", "value", "message"),
    [
        (0, "<8s", b"GGUF\0\0\0\0", "magic"),
        (8, "<I", 2, "format version is 2, must be 1"),
        (16, "<Q", 512, "file_bytes is 512"),
        (24, "<Q", 2**63, "tensor table"),
        (32, "<I", 0, "tensor_count is 0"),
        (32, "<I", 2**32 - 1, "tensor_count"),
        (128, "<I", 0, "layers is 0"),
        (128 + 4 * 12, "<I", 9, "architecture is 9"),
        (512, "<I", 77, "role 77"),
        (512 + 12, "<I", 9, "type 9"),
        (512 + 24, "<Q", 2**60, "tensor embedding"),
        (512 + 56, "<Q", 2**63, "tensor embedding lies at"),
        (512 + 56, "<Q", 8192 * 1000, "tensor embedding lies at"),
        (512 + 128 + 56, "<Q", 4096 * 3, "tensor"),
        (512 + 64, "<Q", 64, "length of tensor embedding"),
        (512 + 80, "<4s", b"head", "tensor name"),
    ],
)
def test_a_file_that_lies_is_refused(
    model: Path, offset: int, layout: str, value: object, message: str
) -> None:
    raw = bytearray(model.read_bytes())
    if (offset, layout) == (24, "<Q") or (offset, value) == (32, 2**32 - 1):
        struct.pack_into(layout, raw, offset, value)
        struct.pack_into("<Q", raw, 504, xxhash.xxh64_intdigest(bytes(raw[:504])))
    else:
        struct.pack_into(layout, raw, offset, value)
        raw = bytearray(rehashed(raw))
    model.write_bytes(raw)
    with pytest.raises(FormatError, match=message):
        read_file(model)


@pytest.mark.parametrize("keep", [0, 100, 511, 512, 5000])
def test_a_truncated_file_is_refused(model: Path, keep: int) -> None:
    model.write_bytes(model.read_bytes()[:keep])
    with pytest.raises(FormatError, match="bytes"):
        read_file(model)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="nothing.cflow"):
        read_file(tmp_path / "nothing.cflow")
