"""Files that lie: every field of header and tables is changed and its hash made right again.

Only the value itself can be refused then, by an error that names it.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from engine.enums import Order, Param, Role, Type
from engine.errors import CflowError, ChecksumError, FileError, FormatError, MemoryExhaustedError
from engine.format import read_file
from engine.geometry import Geometry
from engine.layout import EXPERT_ENTRY, HASH_OFFSET, HEADER_BYTES, NAME_OFFSET, PARAMS_OFFSET, TENSOR_ENTRY
from engine.model import Model
from engine.reorder import reorder
from engine.session import Session
from tests.engine.models import write_random_model

TABLE = HEADER_BYTES
TABLES_HASH = 80
EXPERT_OFFSET = 40


@pytest.fixture(scope="module", params=list(Order), ids=lambda order: order.name.lower())
def good_path(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    folder = tmp_path_factory.mktemp("good")
    path = folder / "model.cflow"
    write_random_model(path, Geometry.named("tiny_standard"), seed=1, tokenizer_json='{"a": 1}')
    if request.param is Order.LAYER:
        return path
    reorder(path, folder / "model.vflow", request.param)
    return folder / "model.vflow"


@pytest.fixture(scope="module")
def good(good_path: Path) -> bytes:
    return good_path.read_bytes()


def put(data: bytes, offset: int, form: str, value: int) -> bytes:
    out = bytearray(data)
    struct.pack_into("<" + form, out, offset, value)
    return bytes(out)


def rehash(data: bytes) -> bytes:
    """The same bytes with the hashes of tables and header made right."""
    (tensors,) = struct.unpack_from("<I", data, 32)
    (expert_at,) = struct.unpack_from("<Q", data, EXPERT_OFFSET)
    (experts,) = struct.unpack_from("<I", data, 48)
    tables = data[TABLE : TABLE + tensors * TENSOR_ENTRY.size]
    tables += data[expert_at : expert_at + experts * EXPERT_ENTRY.size] if experts else b""
    data = put(data, TABLES_HASH, "Q", xxhash.xxh64_intdigest(tables))
    return put(data, HASH_OFFSET, "Q", xxhash.xxh64_intdigest(data[:HASH_OFFSET]))


def refusal(tmp_path: Path, data: bytes) -> str:
    path = tmp_path / "hostile.cflow"
    path.write_bytes(data)
    with pytest.raises(CflowError) as caught:
        Model(path).close()
    assert "hostile.cflow" in str(caught.value)
    return str(caught.value)


def param(index: Param, value: int) -> Callable[[bytes], bytes]:
    return lambda data: put(data, PARAMS_OFFSET + 4 * index, "I", value)


def tensor(index: int, offset: int, form: str, value: int) -> Callable[[bytes], bytes]:
    return lambda data: put(data, TABLE + index * TENSOR_ENTRY.size + offset, form, value)


def expert(offset: int, value: int) -> Callable[[bytes], bytes]:
    return lambda data: put(data, struct.unpack_from("<Q", data, EXPERT_OFFSET)[0] + offset, "Q", value)


def moved_experts(data: bytes) -> bytes:
    """The expert table once more, one byte behind the tokenizer."""
    at, tokenizer, tokenizer_bytes = (
        struct.unpack_from("<Q", data, field)[0] for field in (EXPERT_OFFSET, 56, 64)
    )
    table = data[at : at + EXPERT_ENTRY.size * struct.unpack_from("<I", data, 48)[0]]
    to = tokenizer + tokenizer_bytes + 1
    assert to % 64 and not any(data[to : to + len(table)])
    return put(data[:to] + table + data[to + len(table) :], EXPERT_OFFSET, "Q", to)


def named(data: bytes, name: bytes) -> bytes:
    return data[:NAME_OFFSET] + name.ljust(64, b"\0") + data[HASH_OFFSET:]


CHANGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "version": (lambda d: put(d, 8, "I", 2), "format version 2"),
    "header_bytes": (lambda d: put(d, 12, "I", 1024), "header_bytes 1024"),
    "file_bytes": (lambda d: put(d, 16, "Q", len(d) + 4096), "truncated or extended"),
    "table outside": (lambda d: put(d, 24, "Q", 1 << 62), "outside their part"),
    "table wraps": (lambda d: put(d, 24, "Q", (1 << 64) - 64), "outside their part"),
    "no tensors": (lambda d: put(d, 32, "I", 0), "tensor_count is 0"),
    "too many tensors": (lambda d: put(d, 32, "I", 0xFFFFFFFF), "tensor_count is 4294967295"),
    "entry size": (lambda d: put(d, 36, "I", 0), "tensor_entry_bytes 0"),
    "expert entry size": (lambda d: put(d, 52, "I", 0), "expert_entry_bytes 0"),
    "unaligned expert table": (moved_experts, "unaligned or outside their part"),
    "rows of a part that is not there": (tensor(0, 32, "Q", 5), "/5/0 x"),
    "expert count": (lambda d: put(d, 48, "I", 3), "expert_entry_count is 3"),
    "expert table outside": (lambda d: put(d, 40, "Q", 1 << 40), "outside their part"),
    "tokenizer outside": (lambda d: put(d, 64, "Q", 1 << 27), "outside their part"),
    "tokenizer on the tables": (lambda d: put(d, 56, "Q", TABLE), "overlaps"),
    "data offset": (lambda d: put(d, 88, "Q", 1), "data_offset"),
    "unknown order": (lambda d: put(d, 96, "I", 3), "order is 3; allowed: 0 (layer), 1 (phase), 2 (kind)"),
    "zero layers": (param(Param.LAYERS, 0), "layers is 0"),
    "zero d_model": (param(Param.D_MODEL, 0), "d_model is 0"),
    "odd d_model": (param(Param.D_MODEL, 33), "d_model is 33"),
    "huge d_model": (param(Param.D_MODEL, 0xFFFFFFE0), "d_model is 4294967264"),
    "zero kv heads": (param(Param.KV_HEADS, 0), "kv_heads is 0"),
    "kv heads do not divide": (param(Param.KV_HEADS, 3), "does not divide heads"),
    "zero vocabulary": (param(Param.VOCAB, 0), "vocab is 0"),
    "zero tile rows": (param(Param.TILE_ROWS, 0), "tile_rows is 0"),
    "zero tile columns": (param(Param.TILE_COLS, 0), "tile_cols is 0"),
    "more experts chosen than there are": (param(Param.EXPERTS_PER_TOKEN, 9), "experts_per_token (9)"),
    "more blocks than layers": (param(Param.BLOCKS, 9), "more than layers"),
    "unknown architecture": (param(Param.ARCHITECTURE, 77), "architecture is 77"),
    "delays with two streams": (
        lambda d: param(Param.DENSE_DELAY, 1)(param(Param.ARCHITECTURE, 1)(d)),
        "delays and pre-dense routing need architecture 0",
    ),
    "NaN epsilon": (param(Param.RMS_EPS_BITS, 0x7FC00000), "rms_eps is"),
    "infinite rope base": (param(Param.ROPE_BASE_BITS, 0x7F800000), "rope_base is inf"),
    "unterminated name": (lambda d: d[:440] + b"x" * 64 + d[504:], "model name is not terminated"),
    "unknown role": (tensor(0, 0, "I", 99), "role 99 is unknown"),
    "wrong block": (tensor(1, 4, "I", 1000), "block 1000"),
    "unknown type": (tensor(0, 12, "I", 17), "type 17"),
    "wrong parts": (tensor(0, 16, "I", 2), "shape 2 part(s)"),
    "rows": (tensor(0, 24, "Q", 1 << 60), "shape 1 part(s) of 1152921504606846976"),
    "columns": (tensor(0, 48, "Q", 0), "x 0, the header demands"),
    "unaligned tensor": (tensor(0, 56, "Q", 4097), "offset 4097"),
    "tensor past the end": (tensor(0, 56, "Q", 1 << 62), "outside the data"),
    "tensor before the data": (tensor(0, 56, "Q", 0), "outside the data"),
    "wrong length": (tensor(0, 64, "Q", 64), "64 bytes, its shape takes"),
    "name without an end": (
        lambda d: d[: TABLE + 80] + b"x" * 48 + d[TABLE + 128 :],
        "its name is not terminated",
    ),
    "name with a control character": (
        lambda d: d[: TABLE + 80] + b"\x1b" + d[TABLE + 81 :],
        "printable ASCII",
    ),
    "name that is not UTF-8": (lambda d: named(d, b"a\xc3\x28"), "model name is not UTF-8 at its byte 1"),
    "name with a surrogate": (lambda d: named(d, b"\xed\xa0\x80"), "model name is not UTF-8 at its byte 0"),
    "name in an overlong form": (lambda d: named(d, b"\xc0\xaf"), "model name is not UTF-8 at its byte 0"),
    "name cut inside a character": (lambda d: named(d, b"ab\xf0\x9f\x98"), "not UTF-8 at its byte 2"),
    "name with an escape sequence": (
        lambda d: named(d, b"a\x1b[2J"),
        "model name has a control character at its byte 1",
    ),
    "name with a C1 control character": (
        lambda d: named(d, b"\xc2\x9b2J"),
        "model name has a control character at its byte 0",
    ),
    "something behind the name": (lambda d: named(d, b"a\0b"), "model name is not padded"),
    "something behind the order": (lambda d: put(d, 100, "I", 1), "something in bytes 100 to 127"),
    "something behind the parameters": (lambda d: put(d, 436, "I", 1), "or 228 to 439"),
    "something in a tensor's reserved field": (tensor(0, 20, "I", 7), "reserved field is 7; allowed: 0"),
    "tensor without a name": (tensor(0, 80, "B", 0), "its name is empty, or not padded"),
    "something behind a tensor's name": (tensor(0, 126, "B", 65), "its name is empty, or not padded"),
    "something in an expert's reserved field": (expert(24, 9), "reserved field is 9; allowed: 0"),
    "bos outside the vocabulary": (param(Param.BOS, 131), "bos is 131; allowed: 0 to 130"),
    "eos outside the vocabulary": (param(Param.EOS, 0xFFFFFFFE), "eos is 4294967294; allowed: 0 to 130"),
    "tokenizer of half a gigabyte": (
        lambda d: put(d, 64, "Q", 1 << 29),
        "tokenizer_bytes is 536870912; allowed: 0 to 268435456",
    ),
    "expert offset": (expert(0, 4096), "expert table entry 0"),
    "expert length": (expert(8, (1 << 64) - 4096), "expert table entry 0"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_lie_is_refused_by_name(good: bytes, tmp_path: Path, name: str) -> None:
    change, words = CHANGES[name]
    assert words in refusal(tmp_path, rehash(change(good)) if name != "version" else change(good))
    with pytest.raises(CflowError):
        read_file(tmp_path / "hostile.cflow")


@pytest.mark.parametrize(
    "name", ["", "a" * 63, "\u00e4\u6f22\U0001f600", "<script>alert(1)</script>", "../../etc/x"]
)
def test_names_that_are_text_are_kept(good: bytes, tmp_path: Path, name: str) -> None:
    path = tmp_path / "named.cflow"
    path.write_bytes(rehash(named(good, name.encode())))
    with Model(path) as model:
        assert model.name == name
    assert read_file(path).name == name


@pytest.mark.parametrize("text", [b"\xff", b'{"a":"\xc3"}', b"\xed\xbf\xbf", b"\xf5\x80\x80\x80"])
def test_a_tokenizer_that_is_no_text(good: bytes, tmp_path: Path, text: bytes) -> None:
    (at,) = struct.unpack_from("<Q", good, 56)
    data = put(good[:at] + text + good[at + len(text) :], 64, "Q", len(text))
    path = tmp_path / "tokenizer.cflow"
    path.write_bytes(rehash(put(data, 72, "Q", xxhash.xxh64_intdigest(text))))
    with Model(path) as model:
        with pytest.raises(FormatError, match="the tokenizer is not UTF-8 at its byte"):
            _ = model.tokenizer_json
        with pytest.raises(FormatError, match="the tokenizer is not UTF-8"):
            model.verify()
    with pytest.raises(FormatError, match="tokenizer is not UTF-8 at its byte"):
        read_file(path)


# Bytes at the edges of the rules, and characters of every length, halves of surrogate pairs among them.
EDGES = st.lists(
    st.sampled_from(list(b"\x7f\x80\x8f\x90\x9f\xa0\xbf\xc1\xc2\xdf\xe0\xec\xed\xee\xf0\xf4\xf5"))
)
LETTERS = st.text(max_size=4).map(lambda text: text.encode("utf-8", "surrogatepass"))


@given(st.one_of(st.binary(max_size=12), EDGES.map(lambda edges: bytes(edges[:8])), LETTERS))
def test_utf8_is_what_python_takes_for_it(
    good_path: Path, tmp_path_factory: pytest.TempPathFactory, text: bytes
) -> None:
    path = tmp_path_factory.mktemp("utf8") / "any.cflow"
    path.write_bytes(rehash(named(good_path.read_bytes(), b"a" + text.replace(b"\0", b"") + b"b")))
    try:
        found = read_file(path).name
    except FormatError:
        with pytest.raises(FormatError):
            Model(path).close()
    else:
        with Model(path) as model:
            assert model.name == found


def test_a_file_name_that_is_not_utf8(good: bytes, tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe.cflow"))
    path.write_bytes(good)
    with Model(path) as model:
        assert model.tensors
    path.write_bytes(good[:100])
    with pytest.raises(FormatError, match="too short"):
        Model(path)


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "pipe.cflow"
    os.mkfifo(path)
    with pytest.raises(FileError, match="not a regular file"):
        Model(path)


def test_a_context_beyond_memory_is_refused_with_its_bytes(tmp_path: Path) -> None:
    geometry = replace(Geometry.named("tiny_dense"), layers=4096, blocks=1, context=1 << 24)
    path = write_random_model(tmp_path / "wide.cflow", geometry, seed=1)
    # 2 * 4,096 layers * 2 heads * 2^24 positions * 16 values of 2 bytes: 8 TiB
    with Model(path) as model:
        with pytest.raises(
            MemoryExhaustedError, match=r"16777216 positions needs \d+ bytes, of them 8796093022208"
        ):
            Session(model, threads=1)
        with Session(model, threads=1, context=4) as session:
            assert np.isfinite(session.decode([1])).all()


def test_regions_that_overlap(good: bytes, tmp_path: Path) -> None:
    (first,) = struct.unpack_from("<Q", good, TABLE + 56)
    second = TABLE + TENSOR_ENTRY.size + 56
    assert "overlaps" in refusal(tmp_path, rehash(put(good, second, "Q", first)))


def test_experts_of_a_block_that_differ_in_type(tmp_path: Path) -> None:
    # Written with f32 experts, so that any smaller type fits in their place: only the rule itself is broken.
    types = {role: Type.F32 for role in Role}
    path = write_random_model(tmp_path / "f32.cflow", Geometry.named("tiny_standard"), seed=1, types=types)
    data = path.read_bytes()
    index = next(
        i for i in range(1000) if b".exp.1.gate_up" in data[TABLE + i * 128 + 80 : TABLE + (i + 1) * 128]
    )
    entry = TABLE + index * TENSOR_ENTRY.size
    rows, columns = (
        struct.unpack_from("<Q", data, entry + 24)[0],
        struct.unpack_from("<Q", data, entry + 48)[0],
    )
    down = entry + TENSOR_ENTRY.size
    assert b".exp.1.down" in data[down + 80 : down + 128]
    # gate_up becomes f16: half the bytes; the down matrix and the expert's region move up with it.
    half = 2 * rows * columns * 2
    (offset,) = struct.unpack_from("<Q", data, entry + 56)
    (down_bytes,) = struct.unpack_from("<Q", data, down + 64)
    data = put(put(data, entry + 12, "I", Type.F16), entry + 64, "Q", half)
    data = put(data, down + 56, "Q", offset + half)
    (experts,) = struct.unpack_from("<Q", data, EXPERT_OFFSET)
    data = put(data, experts + EXPERT_ENTRY.size + 8, "Q", half + down_bytes)
    assert "the experts of a block have one type" in refusal(tmp_path, rehash(data))


@pytest.mark.parametrize("dropped", ["blk.1.attn_q_norm", "blk.1.attn_k_norm"])
def test_one_norm_of_q_and_k_without_the_other(tmp_path: Path, dropped: str) -> None:
    geometry = replace(Geometry.named("tiny_dense"), layers=2, blocks=2)
    data = write_random_model(tmp_path / "m.cflow", geometry, 1, qk_norm=True).read_bytes()
    (count,) = struct.unpack_from("<I", data, 32)
    entries = [data[TABLE + 128 * i : TABLE + 128 * (i + 1)] for i in range(count)]
    kept = [entry for entry in entries if entry[80:].rstrip(b"\0").decode() != dropped]
    assert len(kept) == count - 1
    data = data[:TABLE] + b"".join(kept) + data[TABLE + 128 * (count - 1) :]
    hostile = rehash(put(data, 32, "I", count - 1))
    assert "block 1 has one of the tensors of role 15 and 16" in refusal(tmp_path, hostile)
    with pytest.raises(FormatError, match=r"blk\.1\.attn_[qk]_norm: comes without its pair"):
        read_file(tmp_path / "hostile.cflow")


def test_a_schedule_of_hours_is_refused(tmp_path: Path) -> None:
    geometry = replace(
        Geometry.named("tiny_standard"), layers=4096, blocks=1, experts=64, experts_per_token=64
    )
    path = write_random_model(tmp_path / "long.cflow", geometry, seed=1)
    with Model(path) as model, pytest.raises(CflowError, match="a schedule holds at most"):
        Session(model)


def test_a_tensor_given_twice(good: bytes, tmp_path: Path) -> None:
    entry = good[TABLE : TABLE + TENSOR_ENTRY.size]
    data = good[: TABLE + TENSOR_ENTRY.size] + entry + good[TABLE + 2 * TENSOR_ENTRY.size :]
    assert "same role and place" in refusal(tmp_path, rehash(data))


def test_every_flipped_bit_of_the_header_is_noticed(good: bytes, tmp_path: Path) -> None:
    for byte in range(HEADER_BYTES):
        data = bytearray(good)
        data[byte] ^= 1 << (byte % 8)
        refusal(tmp_path, bytes(data))


def test_a_flipped_bit_of_the_tables_is_a_checksum_error(good: bytes, tmp_path: Path) -> None:
    path = tmp_path / "flipped.cflow"
    data = bytearray(good)
    data[TABLE + 3 * TENSOR_ENTRY.size + 70] ^= 4
    path.write_bytes(data)
    with pytest.raises(ChecksumError, match="tables do not match their hash"):
        Model(path)


@pytest.mark.parametrize("length", [0, 1, 511, 512, 4096])
def test_cut_files(good: bytes, tmp_path: Path, length: int) -> None:
    path = tmp_path / "cut.cflow"
    path.write_bytes(good[:length])
    with pytest.raises(FormatError):
        Model(path)


@hypothesis_settings(max_examples=300)
@given(st.lists(st.tuples(st.integers(0, 8191), st.integers(0, 255)), min_size=1, max_size=6))
def test_any_bytes_in_the_front_open_or_are_refused(
    good_path: Path, tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[int, int]]
) -> None:
    data = bytearray(good_path.read_bytes())
    for offset, value in edits:
        data[offset] = value
    path = tmp_path_factory.mktemp("any") / "any.cflow"
    try:
        path.write_bytes(rehash(bytes(data)))
    except struct.error:
        return  # the table offsets themselves lie outside what can be hashed
    try:
        with Model(path) as model:
            assert model.tensors
            _ = model.name, model.tokenizer_json
    except CflowError:
        pass
    with suppress(CflowError):
        read_file(path)
