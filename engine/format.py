"""The .cflow and .vflow file, version 1: what it holds, where, its writer, and a reader that needs no C.

The layout is the comment "FILE FORMAT" of `include/cflow.h`. The writer here is the authoritative one; the C
library reads what it writes. `read_file` is independent of the C reader: for the reference and the tests.
"""

from __future__ import annotations

import struct
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import xxhash
from numpy.typing import NDArray

from engine.arrangement import LAYER_MAJOR, Arrangement
from engine.enums import Order, Param, Role, Type
from engine.errors import ArgumentError, ChecksumError, FileError, FormatError, NonFiniteError
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
    FileLayout,
    plan,
)
from engine.pending import PendingFile
from engine.tensors import (
    DATA_ALIGN_BYTES,
    MAX_TENSORS,
    TensorSpec,
    checked_specs,
    model_specs,
    shape_of,
    tensor_spec,
)
from engine.tiles import BLOCK_COLUMNS, GROUP_ROWS, Bytes, Run, TileShape, group_bytes, nonfinite_group

__all__ = [
    "CflowFile",
    "CflowWriter",
    "FileLayout",
    "Hyperparameters",
    "TensorEntry",
    "TensorSpec",
    "model_specs",
    "plan",
    "read_file",
    "shape_of",
    "tensor_spec",
]


class CflowWriter:
    """Writes a .cflow or .vflow file, tensor by tensor in file order. Use as a context manager::

        with CflowWriter(path, hparams, specs, tokenizer_json) as writer:
            for spec in writer.specs:             # file order
                writer.write(spec, data)          # one or more pieces until the tensor is whole

    `data` are the stored bytes: tiles (`engine.tiles.pack`), or the f32 values of a vector, without padding.
    On leaving the block normally the file is completed, fsynced and renamed to `path`; after any exception
    nothing is left. Raises ArgumentError (specs, wrong order, too much or too little data), NonFiniteError
    naming tensor and block, and FileError (disk full, path not writable; the space is checked first).
    """

    def __init__(
        self,
        path: Path,
        hparams: Hyperparameters,
        specs: Iterable[TensorSpec],
        tokenizer_json: str | None = None,
        name: str = "",
        arrangement: Arrangement = LAYER_MAJOR,
    ) -> None:
        self.layout = plan(hparams, specs, name, tokenizer_json, arrangement)
        self._index = 0
        self._filled = 0
        self._hash = xxhash.xxh64()
        self._expert_hash = xxhash.xxh64()
        self._hashes: list[int] = []
        self._expert_hashes: list[int] = []
        self._checker = _FiniteChecker(self.specs[0], hparams.tile_shape)
        self._path = Path(path)
        self._file: PendingFile | None = None

    @property
    def specs(self) -> tuple[TensorSpec, ...]:
        """All tensors in file order."""
        return self.layout.specs

    def __enter__(self) -> Self:
        self._file = PendingFile(self._path, self.layout.file_bytes)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._opened() as file:
            if error is None:
                self._finish(file)

    def write(self, spec: TensorSpec, data: Bytes | NDArray[np.float32] | bytes | memoryview) -> None:
        """Appends a piece of any length to tensor `spec`, which must be the one whose turn it is."""
        if self._index == len(self.specs) or spec != self.specs[self._index]:
            turn = self.specs[self._index].name if self._index < len(self.specs) else "none, all are written"
            raise ArgumentError(f"{spec.name}: written out of turn; next is {turn}")
        view = memoryview(data.data if isinstance(data, np.ndarray) else data).cast("B")
        length = self.layout.lengths[self._index]
        if self._filled + len(view) > length:
            raise ArgumentError(f"{spec.name}: more than its {length} bytes were written")
        self._append(view)
        values_end = 4 * spec.part_rows[0] if spec.is_vector else length
        if self._filled == values_end:
            self._append(memoryview(bytes(length - self._filled)))
        if self._filled == length:
            self._end_tensor(spec)

    def _append(self, view: memoryview) -> None:
        self._checker.feed(view)
        self._hash.update(view)
        if self.specs[self._index].expert is not None:
            self._expert_hash.update(view)
        self._opened().write_at(self.layout.offsets[self._index] + self._filled, view)
        self._filled += len(view)

    def _end_tensor(self, spec: TensorSpec) -> None:
        self._hashes.append(self._hash.intdigest())
        # Tiles are whole multiples of 64 bytes, so the two matrices of an expert touch: no gap to hash.
        if spec.role is Role.EXPERT_DOWN:
            self._expert_hashes.append(self._expert_hash.intdigest())
            self._expert_hash.reset()
        self._hash.reset()
        self._index += 1
        self._filled = 0
        if self._index < len(self.specs):
            self._checker = _FiniteChecker(self.specs[self._index], self.layout.hparams.tile_shape)

    def _finish(self, file: PendingFile) -> None:
        if self._index < len(self.specs):
            spec, length = self.specs[self._index], self.layout.lengths[self._index]
            raise ArgumentError(f"{spec.name}: {self._filled} of {length} bytes were written")
        file.write_at(0, self.layout.front(self._hashes, self._expert_hashes))
        file.extend_to(self.layout.file_bytes)
        file.commit()

    def _opened(self) -> PendingFile:
        if self._file is None:
            raise ArgumentError("CflowWriter: use it in a with statement")
        return self._file


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


class _FiniteChecker:
    """Looks at the stored bytes of one tensor, in pieces of any length, for numbers that are not finite."""

    def __init__(self, spec: TensorSpec, shape: TileShape) -> None:
        self._spec = spec
        self._shape = shape
        self._runs: Iterator[Run] = iter(()) if spec.is_vector else spec.layout(shape).runs()
        self._run: Run | None = next(self._runs, None)
        self._done_groups = 0
        self._carry = b""

    def feed(self, view: memoryview) -> None:
        """The next bytes. Raises NonFiniteError naming tensor and block."""
        data = np.frombuffer(self._carry + bytes(view) if self._carry else view, np.uint8)
        data = data[self._take(data) :]
        self._carry = data.tobytes()

    def _take(self, data: Bytes) -> int:
        """Checks the whole groups (of a vector: values) at the start of `data`; returns their bytes."""
        if self._spec.is_vector:
            whole = len(data) // 4 * 4
            values = data[:whole].view(np.float32)
            if not np.isfinite(values).all():
                raise NonFiniteError(f"{self._spec.name}: holds a value that is not finite")
            return whole
        used = 0
        while self._run is not None:
            size = group_bytes(self._spec.kind, self._run.blocks)
            count = min((len(data) - used) // size, self._run.groups - self._done_groups)
            groups = data[used : used + count * size].reshape(count, size)
            self._check(groups, self._run)
            used += count * size
            self._done_groups += count
            if self._done_groups < self._run.groups:
                break
            self._run = next(self._runs, None)
            self._done_groups = 0
        return used

    def _check(self, groups: Bytes, run: Run) -> None:
        found = nonfinite_group(self._spec.kind, groups, run.blocks)
        if found is None:
            return
        group, row, block = found
        index = run.first_group + self._done_groups + group
        layout = self._spec.layout(self._shape)
        tile = next(t for t in layout.tiles() if t.first_group <= index < t.first_group + t.groups)
        matrix_row = tile.first_row + GROUP_ROWS * (index - tile.first_group) + row
        matrix_block = tile.first_column // BLOCK_COLUMNS + block
        raise NonFiniteError(
            f"{self._spec.name}: part {tile.part}, row {matrix_row}, block {matrix_block} "
            f"(32 columns each) holds a scale or value that is not finite"
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
