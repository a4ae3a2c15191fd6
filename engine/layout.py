"""Where everything in a .cflow or .vflow file lies, its header and tables ("FILE FORMAT" of cflow.h)."""

from __future__ import annotations

import struct
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

import xxhash

from engine.arrangement import LAYER_MAJOR, Arrangement
from engine.enums import Order, Param, Role
from engine.errors import ArgumentError
from engine.hyperparameters import NONE_U32, Hyperparameters
from engine.tensors import DATA_ALIGN_BYTES, TensorSpec, checked_specs
from engine.tiles import align_up

MAGIC = b"CFLOW\r\n\x1a"
FORMAT_VERSION = 1
HEADER_BYTES = 512
PAGE_BYTES = 4096
NAME_BYTES = 64
MAX_TOKENIZER_BYTES = 1 << 28

HEADER = struct.Struct("<8sIIQQIIQIIQQQQQI")
PARAMS_OFFSET = 128
NAME_OFFSET = 440
HASH_OFFSET = 504
TENSOR_ENTRY = struct.Struct("<IIIIIIQQQQQQQ48s")
EXPERT_ENTRY = struct.Struct("<QQQQ")


def fitting_name(text: str) -> str:
    """What of a text fits as a model's name: no control characters, cut at a character."""
    kept = "".join(letter for letter in text if unicodedata.category(letter) != "Cc")
    return kept.encode(errors="ignore")[: NAME_BYTES - 1].decode(errors="ignore")


@dataclass(frozen=True)
class FileLayout:
    """Where everything lies. Made by `plan()`; offsets and lengths are parallel to `specs`, in file order.

    expert_regions: (offset, length) of each expert, in file order, too.
    """

    hparams: Hyperparameters
    name: str
    order: Order
    specs: tuple[TensorSpec, ...]
    offsets: tuple[int, ...]
    lengths: tuple[int, ...]
    expert_regions: tuple[tuple[int, int], ...]
    expert_offset: int
    tokenizer: bytes
    tokenizer_offset: int
    data_offset: int
    file_bytes: int

    def front(self, hashes: list[int], expert_hashes: list[int]) -> bytes:
        """Bytes 0 .. data_offset of the file: header, tables, tokenizer. Takes the XXH64 of all data,
        parallel to `specs` and `expert_regions`.
        """
        table = b"".join(
            TENSOR_ENTRY.pack(
                spec.role,
                NONE_U32 if spec.block is None else spec.block,
                NONE_U32 if spec.expert is None else spec.expert,
                spec.kind,
                len(spec.part_rows),
                0,
                *(*spec.part_rows, 0, 0)[:3],
                spec.columns,
                offset,
                length,
                digest,
                spec.name.encode("ascii"),
            )
            for spec, offset, length, digest in zip(
                self.specs, self.offsets, self.lengths, hashes, strict=True
            )
        )
        owners = [(spec.block, spec.expert) for spec in self.specs if spec.role is Role.EXPERT_GATE_UP]
        entries = zip(owners, self.expert_regions, expert_hashes, strict=True)
        experts = b"".join(
            EXPERT_ENTRY.pack(offset, length, digest, 0) for _, (offset, length), digest in sorted(entries)
        )
        out = bytearray(self.data_offset)
        out[HEADER_BYTES : HEADER_BYTES + len(table)] = table
        out[self.expert_offset : self.expert_offset + len(experts)] = experts
        out[self.tokenizer_offset : self.tokenizer_offset + len(self.tokenizer)] = self.tokenizer
        out[:HEADER_BYTES] = self._header(xxhash.xxh64_intdigest(table + experts))
        return bytes(out)

    def _header(self, tables_hash: int) -> bytes:
        out = bytearray(HEADER_BYTES)
        HEADER.pack_into(
            out,
            0,
            MAGIC,
            FORMAT_VERSION,
            HEADER_BYTES,
            self.file_bytes,
            HEADER_BYTES,
            len(self.specs),
            TENSOR_ENTRY.size,
            self.expert_offset,
            len(self.expert_regions),
            EXPERT_ENTRY.size,
            self.tokenizer_offset,
            len(self.tokenizer),
            xxhash.xxh64_intdigest(self.tokenizer) if self.tokenizer else 0,
            tables_hash,
            self.data_offset,
            self.order,
        )
        struct.pack_into(f"<{len(Param)}I", out, PARAMS_OFFSET, *self.hparams.words())
        name = self.name.encode()
        out[NAME_OFFSET : NAME_OFFSET + len(name)] = name
        struct.pack_into("<Q", out, HASH_OFFSET, xxhash.xxh64_intdigest(bytes(out[:HASH_OFFSET])))
        return bytes(out)


def plan(
    hparams: Hyperparameters,
    specs: Iterable[TensorSpec],
    name: str = "",
    tokenizer_json: str | None = None,
    arrangement: Arrangement = LAYER_MAJOR,
) -> FileLayout:
    """Places all tensors. `specs` may come in any order; `arrangement` says which they take in the file.

    Raises ArgumentError naming the tensor that is missing, twice, unexpected, or of the wrong shape or type,
    and for a model name that is too long.
    """
    try:
        name_bytes = len(name.encode())
    except UnicodeEncodeError as error:
        raise ArgumentError(f"name {name!r} has a character that no UTF-8 stands for") from error
    if name_bytes >= NAME_BYTES or any(unicodedata.category(letter) == "Cc" for letter in name):
        raise ArgumentError(
            f"name {name!r} must have at most {NAME_BYTES - 1} UTF-8 bytes and no control character"
        )
    ordered = arrangement.arranged(checked_specs(hparams, specs))
    tokenizer = (tokenizer_json or "").encode()
    if len(tokenizer) > MAX_TOKENIZER_BYTES:
        raise ArgumentError(
            f"the tokenizer has {len(tokenizer)} bytes, must have at most {MAX_TOKENIZER_BYTES}"
        )
    expert_count = hparams.blocks * hparams.experts
    end = HEADER_BYTES + len(ordered) * TENSOR_ENTRY.size
    expert_offset = align_up(end, DATA_ALIGN_BYTES) if expert_count else 0
    end = max(end, expert_offset + expert_count * EXPERT_ENTRY.size)
    tokenizer_offset = align_up(end, DATA_ALIGN_BYTES) if tokenizer else 0
    end = max(end, tokenizer_offset + len(tokenizer))
    data_offset = end = align_up(end, PAGE_BYTES)

    offsets, lengths = [], []
    regions: list[tuple[int, int]] = []
    for spec in ordered:
        starts_expert = spec.role is Role.EXPERT_GATE_UP
        offset = align_up(end, PAGE_BYTES if starts_expert else DATA_ALIGN_BYTES)
        length = spec.data_bytes(hparams.tile_shape)
        end = offset + length
        if starts_expert:
            regions.append((offset, length))
        elif spec.role is Role.EXPERT_DOWN:
            regions[-1] = (regions[-1][0], end - regions[-1][0])
        offsets.append(offset)
        lengths.append(length)
    return FileLayout(
        hparams=hparams,
        name=name,
        order=arrangement.order,
        specs=ordered,
        offsets=tuple(offsets),
        lengths=tuple(lengths),
        expert_regions=tuple(regions),
        expert_offset=expert_offset,
        tokenizer=tokenizer,
        tokenizer_offset=tokenizer_offset,
        data_offset=data_offset,
        # Whole pages, so that the last region can be read and written with O_DIRECT.
        file_bytes=align_up(end, PAGE_BYTES),
    )
