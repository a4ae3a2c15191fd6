"""Reading GGUF: agreement with the `gguf` package on good files, and a named fault on damaged ones."""

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.enums import Type
from engine.errors import CflowError, FileError, FormatError, UnsupportedError
from engine.gguf_source import GgufSource
from tests.engine.gguf_files import VOCAB, LlamaGguf


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return LlamaGguf().write(tmp_path_factory.mktemp("gguf") / "good.gguf")


def test_agrees_with_the_gguf_package(good: Path) -> None:
    source, reader = GgufSource(good), gguf.GGUFReader(good)
    for key, field in reader.fields.items():
        if not key.startswith("GGUF."):
            assert source.value(key, object) == field.contents()
    assert source.tensor_names == [tensor.name for tensor in reader.tensors]
    for tensor in reader.tensors:
        shape = [int(size) for size in reversed(tensor.shape.tolist())]
        rows = source.rows(tensor.name, shape)
        assert np.array_equal(rows.reshape(-1), np.ascontiguousarray(tensor.data).view(np.uint8).reshape(-1))
        assert source.kind(tensor.name).name == tensor.tensor_type.name
        assert source.offset(tensor.name) == tensor.data_offset


def test_values_are_typed(good: Path) -> None:
    source = GgufSource(good)
    assert source.value("llama.block_count", int) == 2
    assert source.value("tokenizer.ggml.tokens", list) == VOCAB
    assert source.value("absent", int, default=7) == 7
    assert source.optional_int("absent") is None
    with pytest.raises(FormatError, match="metadata key absent is missing"):
        source.value("absent", int)
    with pytest.raises(FormatError, match=r"llama.block_count is a int, str is needed"):
        source.value("llama.block_count", str)


def test_faults_of_tensors_are_named(good: Path) -> None:
    source = GgufSource(good)
    with pytest.raises(FormatError, match=r"tensor blk\.9\.attn_q\.weight is missing"):
        source.rows("blk.9.attn_q.weight", (1, 1))
    with pytest.raises(FormatError, match=r"tensor blk\.0\.attn_q\.weight is 64 x 64, 64 x 32 is needed"):
        source.rows("blk.0.attn_q.weight", (64, 32))
    with pytest.raises(UnsupportedError, match=r"vector blk\.0\.attn_q\.weight has type q4_0"):
        source.vector("blk.0.attn_q.weight", 64)


def test_unsupported_type_is_named_with_what_works(tmp_path: Path) -> None:
    model = LlamaGguf()
    rows = np.zeros((64, 2 * 24), np.uint8)
    model.tensors["blk.0.attn_output.weight"] = gguf.GGMLQuantizationType.Q5_1, rows
    source = GgufSource(model.write(tmp_path / "q5.gguf"))
    with pytest.raises(UnsupportedError, match=r"blk\.0\.attn_output\.weight has type Q5_1.*Q4_0.*Q8_0"):
        source.kind("blk.0.attn_output.weight")


@pytest.mark.parametrize("kind", [Type.F32, Type.F16])
def test_vectors_of_plain_values(tmp_path: Path, kind: Type) -> None:
    model = LlamaGguf()
    values = np.arange(64).astype(np.float32 if kind is Type.F32 else np.float16)
    model.tensors["output_norm.weight"] = gguf.GGMLQuantizationType[kind.name], values
    source = GgufSource(model.write(tmp_path / "v.gguf"))
    found = source.vector("output_norm.weight", 64)
    assert found.dtype == np.float32
    assert np.array_equal(found, np.arange(64, dtype=np.float32))


def test_a_whole_tokenizer_json_may_be_a_string(tmp_path: Path) -> None:
    """As the key tokenizer.huggingface.json holds one: those of large vocabularies have tens of megabytes."""
    model = LlamaGguf()
    model.metadata["tokenizer.huggingface.json"] = "x" * (5 << 20)
    source = GgufSource(model.write(tmp_path / "t.gguf"))
    assert len(source.value("tokenizer.huggingface.json", str)) == 5 << 20


def test_missing_and_empty_files(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="absent.gguf"):
        GgufSource(tmp_path / "absent.gguf")
    empty = tmp_path / "empty.gguf"
    empty.touch()
    with pytest.raises(FormatError, match="empty"):
        GgufSource(empty)


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"GGML" + bytes(20), "not a GGUF file"),
        (b"GGUF" + struct.pack("<I", 9) + bytes(16), "version 9"),
        (b"GGUF" + struct.pack(">I", 3) + bytes(16), "little-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 16), "truncated or damaged in metadata entry 0"),
        (
            b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60),
            "metadata count is 1152921504606846976, at most 65536",
        ),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 17, 0), "truncated or damaged in tensor info 0"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "tensor count is 1152921504606846976, at most 131072"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 15), "truncated or damaged"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 62), "length of a string is 4611686018427387904"),
        (b"GGUF" + struct.pack("<IQQQ1sI", 3, 0, 1, 1, b"k", 99), "metadata key k has value type 99"),
        (
            b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 0, 1, 1, b"k", 9, 4, 1 << 22),
            "truncated or damaged in metadata key k",
        ),
        (
            b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 0, 1, 1, b"k", 9, 4, 1 << 61),
            "metadata key k: array length is 2305843009213693952, at most 4194304",
        ),
        (b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 0, 1, 1, b"k", 9, 9, 1), "value type 9"),
        (b"GGUF" + struct.pack("<IQQQ1sI", 3, 1, 0, 1, b"t", 9), "tensor t has 9 dimensions"),
        (b"GGUF" + struct.pack("<IQQQ1sIQIQ", 3, 1, 0, 1, b"t", 1, 0, 0, 0), "tensor t has a zero dimension"),
        (b"GGUF" + struct.pack("<IQQQ1sIQIQ", 3, 1, 0, 1, b"t", 1, 32, 999, 0), "unknown type number 999"),
        (b"GGUF" + struct.pack("<IQQQ1sIQIQ", 3, 1, 0, 1, b"t", 1, 33, 2, 0), "multiple of 32"),
        (
            b"GGUF" + struct.pack("<IQQQ1sIQQIQ", 3, 1, 0, 1, b"t", 2, 1 << 63, 1 << 63, 0, 0),
            "tensor t ends .* past the end",
        ),
        (b"GGUF" + struct.pack("<IQQQ1sIQIQ", 3, 1, 0, 1, b"t", 1, 32, 2, 1 << 63), "past the end"),
        (
            b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + 2 * struct.pack("<Q1sII", 1, b"k", 4, 5),
            "metadata key k is there twice",
        ),
        (
            b"GGUF" + struct.pack("<IQQQ17sII", 3, 0, 1, 17, b"general.alignment", 4, 24),
            "general.alignment is 24",
        ),
    ],
)
def test_damaged_header_is_named(tmp_path: Path, data: bytes, fault: str) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=fault):
        GgufSource(path)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.floats(0, 1, exclude_max=True))
def test_every_truncation_is_refused(good: Path, tmp_path: Path, cut: float) -> None:
    data = good.read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(data[: int(cut * (len(data) - 32))])
    with pytest.raises(FormatError):
        GgufSource(path)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(position=st.integers(0, 3000), value=st.integers(0, 255))
def test_a_changed_header_byte_never_escapes_the_exception_tree(
    good: Path, tmp_path: Path, position: int, value: int
) -> None:
    data = bytearray(good.read_bytes())
    data[position] = value
    path = tmp_path / "flipped.gguf"
    path.write_bytes(data)
    try:
        source = GgufSource(path)
        for name in source.tensor_names:
            source.kind(name)
    except CflowError as error:
        assert str(path) in str(error)
