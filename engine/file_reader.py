"""A reader of .cflow and .vflow files that needs no C, independent of the C one.

For the reference, reordering and the tests. The layout is the comment "FILE FORMAT" of `include/cflow.h`.
"""

from __future__ import annotations

import struct
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from engine.enums import Order, Param, Role, Type
from engine.errors import ArgumentError, ChecksumError, FileError, FormatError
from engine.hyperparameters import NONE_U32, Hyperparameters
from engine.layout import (
    EXPERT_ENTRY,
    FORMAT_VERSION,
    HASH_OFFSET,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    MAX_TOKENIZER_BYTES,
    NAME_OFFSET,
    PAGE_BYTES,
    PARAMS_OFFSET,
    TENSOR_ENTRY,
)
from engine.native import path_bytes
from engine.tensors import DATA_ALIGN_BYTES, MAX_TENSORS, TensorSpec, checked_specs
from engine.tiles import Bytes


@dataclass(frozen=True)
class TensorEntry:
    """A row of the tensor table."""

    spec: TensorSpec
    offset: int
    length: int
    digest: int


@dataclass(frozen=True)
class CflowFile:
    """A model file that `read_file` has checked. Tensor data are checked when `data` reads them."""

    path: Path
    name: str
    hparams: Hyperparameters
    order: Order
    tensors: tuple[TensorEntry, ...]
    experts: tuple[tuple[int, int, int], ...]
    """(offset, length, XXH64) of each, in order block * experts + expert."""
    tokenizer_json: str | None
    bytes_: Bytes = field(repr=False)

    def entry(self, role: Role, block: int | None = None, expert: int | None = None) -> TensorEntry | None:
        """The tensor with this role, block and expert, or None."""
        wanted = (role, block, expert)
        return next((entry for entry in self.tensors if entry.spec.key == wanted), None)

    def data(self, entry: TensorEntry) -> Bytes:
        """The stored bytes of a tensor, read-only. Raises ChecksumError naming the tensor."""
        stored = self.bytes_[entry.offset : entry.offset + entry.length]
        _check_hash(self.path, f"tensor {entry.spec.name}", stored, entry.digest)
        return stored

    def verify(self) -> None:
        """Checks the hash of each tensor and expert. Raises ChecksumError naming the first that is wrong."""
        for entry in self.tensors:
            self.data(entry)
        for index, (offset, length, digest) in enumerate(self.experts):
            block, expert = divmod(index, self.hparams.experts)
            what = f"expert {expert} of block {block}"
            _check_hash(self.path, what, self.bytes_[offset : offset + length], digest)


def read_file(path: Path) -> CflowFile:
    """Reads and checks header, tables and tokenizer.

    Raises FileError, or FormatError or ChecksumError naming the field.
    """
    path = Path(path)
    path_bytes(path)
    try:
        size = path.stat().st_size
        if size < HEADER_BYTES:
            raise FormatError(f"{path}: has {size} bytes, a header alone has {HEADER_BYTES}")
        data: Bytes = np.memmap(path, np.uint8, "r")
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}") from error
    header = bytes(data[:HEADER_BYTES])
    (
        magic,
        version,
        header_bytes,
        file_bytes,
        table_offset,
        tensor_count,
        tensor_entry_bytes,
        expert_offset,
        expert_count,
        expert_entry_bytes,
        tokenizer_offset,
        tokenizer_bytes,
        tokenizer_hash,
        tables_hash,
        data_offset,
        order,
    ) = HEADER.unpack_from(header)
    _expect(path, "magic", magic, MAGIC)
    _expect(path, "format version", version, FORMAT_VERSION)
    _expect(path, "header_bytes", header_bytes, HEADER_BYTES)
    _check_hash(path, "header", data[:HASH_OFFSET], struct.unpack_from("<Q", header, HASH_OFFSET)[0])
    _expect(path, "file_bytes", file_bytes, len(data))
    _expect(path, "tensor_entry_bytes", tensor_entry_bytes, TENSOR_ENTRY.size)
    _expect(path, "expert_entry_bytes", expert_entry_bytes, EXPERT_ENTRY.size)
    if order >= len(Order):
        allowed = ", ".join(f"{one.value} ({one.name.lower()})" for one in Order)
        raise FormatError(f"{path}: order is {order}, must be {allowed}")
    try:
        hparams = Hyperparameters.from_words(
            list(struct.unpack_from(f"<{len(Param)}I", header, PARAMS_OFFSET))
        )
    except ArgumentError as error:
        raise FormatError(f"{path}: {error}") from error
    _expect(path, "expert_entry_count", expert_count, hparams.blocks * hparams.experts)
    if not 1 <= tensor_count <= MAX_TENSORS:
        raise FormatError(f"{path}: tensor_count is {tensor_count}, must be 1..{MAX_TENSORS}")
    if tokenizer_bytes > MAX_TOKENIZER_BYTES:
        raise FormatError(
            f"{path}: tokenizer_bytes is {tokenizer_bytes}, must be at most {MAX_TOKENIZER_BYTES}"
        )
    params_end = PARAMS_OFFSET + 4 * len(Param)
    if any(header[HEADER.size : PARAMS_OFFSET]) or any(header[params_end:NAME_OFFSET]):
        raise FormatError(f"{path}: the header has something in a reserved place, must be zeros")
    if data_offset % PAGE_BYTES or data_offset > len(data):
        raise FormatError(
            f"{path}: data_offset is {data_offset}, must be a multiple of {PAGE_BYTES} up to {len(data)}"
        )
    front = {
        "tensor table": (table_offset, tensor_count * TENSOR_ENTRY.size),
        "expert offset table": (expert_offset, expert_count * EXPERT_ENTRY.size),
        "tokenizer": (tokenizer_offset, tokenizer_bytes),
    }
    for what, offset in (("tensor table", table_offset), ("expert offset table", expert_offset)):
        if offset % DATA_ALIGN_BYTES:
            raise FormatError(f"{path}: {what} lies at {offset}, must be aligned to {DATA_ALIGN_BYTES}")
    _check_front(path, front, data_offset)
    table, experts, tokenizer = (data[offset : offset + length] for offset, length in front.values())
    _check_hash(path, "tables", np.concatenate([table, experts]), tables_hash)
    if tokenizer_bytes:
        _check_hash(path, "tokenizer", tokenizer, tokenizer_hash)
    entries = tuple(_read_entry(path, raw) for raw in TENSOR_ENTRY.iter_unpack(table.tobytes()))
    for *_, reserved in EXPERT_ENTRY.iter_unpack(experts.tobytes()):
        _expect(path, "reserved field of an expert", reserved, 0)
    regions = tuple(raw[:3] for raw in EXPERT_ENTRY.iter_unpack(experts.tobytes()))
    _check_regions(path, hparams, entries, data_offset, len(data))
    _check_experts(path, entries, regions, hparams.experts)
    return CflowFile(
        path=path,
        name=_read_name(path, header[NAME_OFFSET:HASH_OFFSET]),
        hparams=hparams,
        order=Order(order),
        tensors=entries,
        experts=regions,
        tokenizer_json=_read_text(path, "tokenizer", tokenizer.tobytes()) if tokenizer_bytes else None,
        bytes_=data,
    )


def _read_text(path: Path, what: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: {what} is not UTF-8 at its byte {error.start}") from error


def _read_name(path: Path, padded: bytes) -> str:
    name, _, padding = padded.partition(b"\0")
    if len(name) == len(padded) or any(padding):
        raise FormatError(f"{path}: the model's name is not terminated, or not padded with zeros")
    text = _read_text(path, "the model's name", name)
    if any(unicodedata.category(letter) == "Cc" for letter in text):
        raise FormatError(f"{path}: the model's name {text!r} has a control character")
    return text


def _read_entry(path: Path, raw: tuple[Any, ...]) -> TensorEntry:
    role, block, expert, kind, parts, reserved, r0, r1, r2, columns, offset, length, digest, padded_name = raw
    raw_name, _, padding = padded_name.partition(b"\0")
    name = raw_name.decode("ascii", "replace")
    if any(padding):
        raise FormatError(f"{path}: the name of tensor {name!r} is not padded with zeros")
    if role >= len(Role) or kind >= len(Type) or not 1 <= parts <= 3:
        raise FormatError(f"{path}: tensor {name!r} has role {role}, type {kind} and {parts} parts")
    _expect(path, f"reserved field of tensor {name!r}", reserved, 0)
    _expect(path, f"rows of parts that tensor {name!r} has not", (r0, r1, r2)[parts:], (0,) * (3 - parts))
    spec = TensorSpec(
        Role(role),
        None if block == NONE_U32 else block,
        None if expert == NONE_U32 else expert,
        Type(kind),
        (r0, r1, r2)[:parts],
        columns,
    )
    _expect(path, "tensor name", name, spec.name)
    return TensorEntry(spec, offset, length, digest)


def _check_regions(
    path: Path, hparams: Hyperparameters, entries: tuple[TensorEntry, ...], data_offset: int, file_bytes: int
) -> None:
    try:
        checked_specs(hparams, (entry.spec for entry in entries))
    except ArgumentError as error:
        raise FormatError(f"{path}: tensor {error}") from error
    end = data_offset
    for entry in sorted(entries, key=lambda entry: entry.offset):
        spec = entry.spec
        _expect(path, f"length of tensor {spec.name}", entry.length, spec.data_bytes(hparams.tile_shape))
        if entry.offset % DATA_ALIGN_BYTES or not end <= entry.offset <= file_bytes - entry.length:
            raise FormatError(
                f"{path}: tensor {spec.name} lies at {entry.offset}, must be aligned to {DATA_ALIGN_BYTES} "
                f"and lie in {end}..{file_bytes - entry.length}"
            )
        end = entry.offset + entry.length


def _check_front(path: Path, regions: dict[str, tuple[int, int]], data_offset: int) -> None:
    """Tables and tokenizer lie side by side between header and data."""
    end = HEADER_BYTES
    for what, (offset, length) in sorted(regions.items(), key=lambda item: item[1]):
        if length and not end <= offset <= data_offset - length:
            raise FormatError(
                f"{path}: {what} lies at {offset} with {length} bytes, must lie in {end}..{data_offset}"
            )
        end = max(end, offset + length) if length else end


def _check_experts(
    path: Path, entries: tuple[TensorEntry, ...], regions: tuple[tuple[int, int, int], ...], experts: int
) -> None:
    """Each entry of the expert offset table is where the two tensors of that expert are."""
    places = {entry.spec.key: entry for entry in entries}
    for index, (offset, length, _) in enumerate(regions):
        block, expert = divmod(index, experts)
        gate_up = places[Role.EXPERT_GATE_UP, block, expert]
        down = places[Role.EXPERT_DOWN, block, expert]
        _expect(path, f"offset of expert {expert} of block {block}", offset, gate_up.offset)
        _expect(path, f"length of expert {expert} of block {block}", length, gate_up.length + down.length)
        _expect(path, f"offset of tensor {down.spec.name}", down.offset, offset + gate_up.length)
        if offset % PAGE_BYTES:
            raise FormatError(
                f"{path}: expert {expert} of block {block} lies at {offset}, must be aligned to {PAGE_BYTES}"
            )


def _expect(path: Path, what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise FormatError(f"{path}: {what} is {found!r}, must be {wanted!r}")


def _check_hash(path: Path, what: str, data: Bytes, wanted: int) -> None:
    found = xxhash.xxh64_intdigest(np.ascontiguousarray(data).data)
    if found != wanted:
        raise ChecksumError(f"{path}: {what} has XXH64 {found:016x}, the file says {wanted:016x}")
