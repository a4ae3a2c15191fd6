"""The tables of docs/reference/formats.md are those of the header, of the writer, and of a file."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

import pytest
import xxhash

from engine.enums import Order, Param, Type
from engine.format import read_file
from engine.geometry import Geometry
from engine.layout import EXPERT_ENTRY, HEADER, HEADER_BYTES, MAGIC, TENSOR_ENTRY
from engine.synth import synthesise
from engine.tiles import block_bytes, group_bytes
from tests.docs.tables import table_of
from tools.build_engine import ROOT

DOCUMENT = ROOT / "docs/reference/formats.md"
C_HEADER = (ROOT / "engine/include/cflow.h").read_text(encoding="utf-8")
CODES = {"u32": "I", "u64": "Q"}
NONE = 0xFFFFFFFF
SMALL = "arch4,d=64,layers=2,ffn=64,heads=2,kv_heads=2,head_dim=32,vocab=64,expert_hidden=32"

Field = tuple[int, int, str, str]


def fields(column: str) -> list[Field]:
    """Offset, size, type and name of each row of the table whose name column has that heading."""
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith(f"| Offset | Size | Type | {column} |"))
    found = []
    for line in lines[head + 2 :]:
        if not line.startswith("|"):
            break
        offset, size, kind, name = (cell.strip() for cell in line.strip("|").split("|")[:4])
        found.append((int(offset), int(size), kind, name.strip("`")))
    return found


def values(raw: bytes, table: list[Field]) -> dict[str, Any]:
    """The fields of a record as the table says where they are."""
    found: dict[str, Any] = {}
    for offset, size, kind, name in table:
        code = CODES.get(kind, f"{size}s")
        if kind == "u32 x 25":
            code = "25I"
        unpacked = struct.unpack_from(f"<{code}", raw, offset)
        found[name] = unpacked if len(unpacked) > 1 else unpacked[0]
    return found


@pytest.mark.parametrize("column", ["Field", "Entry field", "Expert field"])
def test_fields_follow_each_other_and_do_not_overlap(column: str) -> None:
    end = 0
    for offset, size, kind, name in fields(column):
        assert offset >= end, name
        assert kind not in CODES or size == {"u32": 4, "u64": 8}[kind], name
        end = offset + size


def test_header_and_tables_have_the_sizes_of_the_writer() -> None:
    header, entry, expert = (fields(column) for column in ("Field", "Entry field", "Expert field"))
    assert header[-1][0] + header[-1][1] == HEADER_BYTES
    assert entry[-1][0] + entry[-1][1] == TENSOR_ENTRY.size
    assert expert[-1][0] + expert[-1][1] == EXPERT_ENTRY.size
    assert dict((name, size) for _, size, _, name in header)["parameters"] == 4 * len(Param)
    packed = [(offset, size) for offset, size, _, _ in header if offset < HEADER.size]
    assert sum(size for _, size in packed) == HEADER.size


@pytest.mark.parametrize(
    ("column", "begins"), [("Field", "Header, 512 bytes"), ("Entry field", "Tensor table entry, 128 bytes")]
)
def test_offsets_and_sizes_are_those_of_the_c_header(column: str, begins: str) -> None:
    block = C_HEADER.split(f"*   {begins}:")[1]
    stated = []
    for line in block.splitlines()[1:]:
        match = re.match(r" \* +(\d+) +(\d+|4\*n) (char|u32|u64) ", line)
        if match:
            size = 4 * len(Param) if match[2] == "4*n" else int(match[2])
            stated.append((int(match[1]), size, match[3]))
        elif not re.match(r" \* {10}|.*off size type", line):
            break
    assert len(stated) > 10
    assert stated == [(offset, size, kind.split(" ")[0]) for offset, size, kind, _ in fields(column)]


def test_a_file_reads_as_the_tables_say(tmp_path: Path) -> None:
    path = tmp_path / "model.cflow"
    synthesise(path, Geometry.parse(SMALL), 1, "q4_0")
    raw, file = path.read_bytes(), read_file(path)
    header = values(raw, fields("Field"))
    assert header["magic"] == MAGIC
    assert (header["version"], header["header_bytes"], header["order"]) == (1, 512, 0)
    assert header["file_bytes"] == len(raw)
    assert header["header_hash"] == xxhash.xxh64_intdigest(raw[:504])
    assert list(header["parameters"]) == file.hparams.words()
    assert raw[100:128] == bytes(28) and raw[228:440] == bytes(212)
    assert header["tensor_count"] == len(file.tensors)
    for index, tensor in enumerate(file.tensors):
        entry = values(raw[header["table_offset"] + 128 * index :][:128], fields("Entry field"))
        spec = tensor.spec
        assert entry["name"].rstrip(b"\0").decode() == spec.name
        assert (entry["role"], entry["type"], entry["parts"]) == (spec.role, spec.kind, len(spec.part_rows))
        assert entry["block"] == (NONE if spec.block is None else spec.block)
        assert entry["expert"] == (NONE if spec.expert is None else spec.expert)
        assert (entry["rows0"], entry["rows1"], entry["rows2"]) == (*spec.part_rows, 0, 0)[:3]
        assert (entry["columns"], entry["reserved"]) == (spec.columns, 0)
        data = raw[entry["offset"] : entry["offset"] + entry["length"]]
        assert (entry["offset"], entry["hash"]) == (tensor.offset, xxhash.xxh64_intdigest(data))
    assert header["expert_entry_count"] == len(file.experts) == 2 * 8
    for index, region in enumerate(file.experts):
        expert = values(raw[header["expert_offset"] + 32 * index :][:32], fields("Expert field"))
        assert (expert["offset"], expert["length"], expert["hash"]) == region
        assert expert["offset"] % 4096 == 0 and expert["reserved"] == 0


@pytest.mark.parametrize("order", list(Order))
def test_the_order_of_a_file_is_the_number_in_its_table(tmp_path: Path, order: Order) -> None:
    rows = {int(number): (suffix.strip("`"), data) for number, suffix, data in table_of(DOCUMENT, "`order`")}
    assert sorted(rows) == [one.value for one in Order]
    suffix, data = rows[order]
    path = tmp_path / f"model{suffix}"
    synthesise(path, Geometry.parse(SMALL), 1, "q4_0", order=order)
    assert values(path.read_bytes(), fields("Field"))["order"] == order
    assert order.name.lower() in data


def test_tile_sizes_are_those_of_the_engine() -> None:
    for name, _, _, per_block, tile in table_of(DOCUMENT, "Type"):
        kind = Type[name.strip("`").upper()]
        assert group_bytes(kind, 256 // 32) * (128 // 16) == int(tile.replace(",", ""))
        assert int(per_block) == block_bytes(kind)
