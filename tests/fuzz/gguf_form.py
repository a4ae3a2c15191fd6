"""GGUF files in parts, so that each part can lie: counts, lengths, types, names, shapes, offsets."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from tests.engine.gguf_files import RELATIVES, LlamaGguf

_ALIGNMENT: Final = 32
_BOOL, _UINT32, _INT32, _FLOAT32, _STRING, _ARRAY = 7, 4, 5, 6, 8, 9
_SCALARS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_SIZES: Final = (0, 1, 2, 31, 32, 33, 1 << 20, 1 << 31, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)
_NAMES: Final = (
    b"",
    b"\xff\xfe",
    b"general.alignment",
    b"general.architecture",
    b"llama.rope.scaling.type",
    b"token_embd.weight",
    b"blk.9999.attn_q.weight",
    b"rope_freqs.weight",
    b"../../etc/passwd",
    b"\x1b[31m\n\xe2\x80\xae<script>",
    5000 * b"n",
)


@dataclass
class Entry:
    """A key with its value as stored."""

    key: bytes
    kind: int
    payload: bytes


@dataclass
class TensorInfo:
    """A tensor: sizes with columns first, as stored."""

    name: bytes
    sizes: list[int]
    kind: int
    offset: int


def string(text: bytes, length: int | None = None) -> bytes:
    """A string as stored; `length` when it lies."""
    return struct.pack("<Q", len(text) if length is None else length) + text


@dataclass
class GgufParts:
    """A whole file. `tensor_count`, `entry_count`: None for the truth."""

    entries: list[Entry]
    tensors: list[TensorInfo]
    data: bytes
    version: int = 3
    tensor_count: int | None = None
    entry_count: int | None = None

    @classmethod
    def of(cls, model: LlamaGguf) -> GgufParts:
        """A valid file."""
        entries = [Entry(key.encode(), *_value(value)) for key, value in model.metadata.items()]
        tensors, data = [], b""
        for name, (kind, values) in model.tensors.items():
            columns = values.shape[-1] if values.dtype.kind == "f" else _columns(values.shape[-1], int(kind))
            sizes = [columns, *reversed(values.shape[:-1])]
            tensors.append(TensorInfo(name.encode(), sizes, int(kind), len(data)))
            data += values.tobytes()
            data += bytes(-len(data) % _ALIGNMENT)
        return cls(entries, tensors, data)

    def to_bytes(self) -> bytes:
        """The file."""
        counts = (
            len(self.tensors) if self.tensor_count is None else self.tensor_count,
            len(self.entries) if self.entry_count is None else self.entry_count,
        )
        out = b"GGUF" + struct.pack("<IQQ", self.version, *counts)
        for entry in self.entries:
            out += string(entry.key) + struct.pack("<I", entry.kind) + entry.payload
        for info in self.tensors:
            out += string(info.name) + struct.pack("<I", len(info.sizes))
            out += b"".join(struct.pack("<Q", size % (1 << 64)) for size in info.sizes)
            out += struct.pack("<IQ", info.kind, info.offset % (1 << 64))
        return out + bytes(-len(out) % _ALIGNMENT) + self.data


def seed_files(random: Random) -> GgufParts:
    """A small valid file of some architecture."""
    relatives: list[dict[str, Any]] = [{}, {"tied": False}, *RELATIVES.values()]
    arguments = {"layers": 1, "d_model": 64, "heads": 4, "kv_heads": 2, "hidden": 32}
    return GgufParts.of(LlamaGguf(**{**arguments, **random.choice(relatives)}))


def spoil(random: Random, parts: GgufParts) -> None:
    """One to three lies."""
    for _ in range(random.randint(1, 3)):
        kind = random.randrange(8)
        if kind == 0:
            parts.version = random.choice((0, 1, 2, 4, 0x03000000, 0xFFFFFFFF))
        elif kind == 1:
            parts.tensor_count = random.choice(_SIZES)
        elif kind == 2:
            parts.entry_count = random.choice(_SIZES)
        elif kind in (3, 4, 5) and parts.entries:
            _spoil_entry(random, parts.entries)
        elif kind == 6 and parts.tensors:
            _spoil_tensor(random, parts.tensors)
        elif parts.data:
            at = random.randrange(len(parts.data))
            spoilt = random.choice((b"\x00\x7e", b"\x00\x7c", b"\x00\x00\xc0\x7f", 8 * b"\xff"))
            parts.data = parts.data[:at] + spoilt + parts.data[at + len(spoilt) :]


def _spoil_entry(random: Random, entries: list[Entry]) -> None:
    at = random.randrange(len(entries))
    kind = random.randrange(7)
    if kind == 0:
        del entries[at]
    elif kind == 1:
        entries.insert(at, entries[at])
    elif kind == 2:
        entries[at] = Entry(random.choice(_NAMES), entries[at].kind, entries[at].payload)
    elif kind == 3:
        entries[at] = Entry(entries[at].key, random.randrange(16), entries[at].payload)
    elif kind == 4:
        entries[at] = Entry(entries[at].key, *_number(random))
    elif kind == 5:
        payload = string(random.choice(_NAMES), random.choice((None, None, *_SIZES)))
        entries[at] = Entry(entries[at].key, _STRING, payload)
    else:
        element, count = random.choice((*_SCALARS, _STRING, _ARRAY, 99)), random.choice(_SIZES)
        body = random.choice((b"", 64 * b"\x00", 512 * b"\xff", string(b"a") * 8))
        entries[at] = Entry(entries[at].key, _ARRAY, struct.pack("<IQ", element, count) + body)


def _spoil_tensor(random: Random, tensors: list[TensorInfo]) -> None:
    at = random.randrange(len(tensors))
    info, kind = tensors[at], random.randrange(7)
    if kind == 0:
        del tensors[at]
    elif kind == 1:
        tensors.append(info)
    elif kind == 2:
        info.name = random.choice(_NAMES)
    elif kind == 3:
        info.sizes[random.randrange(len(info.sizes))] = random.choice(_SIZES)
    elif kind == 4:
        info.sizes = random.choice(([], [1], [32, 1, 1, 1], 5 * [1], 1000 * [1], list(reversed(info.sizes))))
    elif kind == 5:
        info.kind = random.choice((0, 1, 2, 3, 8, 12, 14, 30, 36, 255, 0xFFFFFFFF))
    else:
        info.offset = random.choice((1, 31, *_SIZES))


def _number(random: Random) -> tuple[int, bytes]:
    kind = random.choice(list(_SCALARS))
    code = "<" + _SCALARS[kind]
    if code[1] in "fd":
        return kind, struct.pack(code, random.choice((0.0, -1.0, 1e-30, 1e30, float("nan"), float("inf"))))
    if code[1] == "?":
        return kind, random.choice((b"\x00", b"\x01", b"\x07"))
    bits = 8 * struct.calcsize(code)
    value = random.choice((0, 1, 2, 3, 7, 32, 48, 64, 4096, (1 << bits) - 1, 1 << (bits - 1))) % (1 << bits)
    signed = code[1].islower() and value >= 1 << (bits - 1)
    return kind, struct.pack(code, value - (1 << bits) if signed else value)


def _value(value: Any) -> tuple[int, bytes]:
    if isinstance(value, bool):
        return _BOOL, struct.pack("<?", value)
    if isinstance(value, int):
        return _UINT32, struct.pack("<I", value)
    if isinstance(value, float):
        return _FLOAT32, struct.pack("<f", value)
    if isinstance(value, str):
        return _STRING, string(value.encode())
    if value and isinstance(value[0], str):
        body = b"".join(string(item.encode()) for item in value)
        return _ARRAY, struct.pack("<IQ", _STRING, len(value)) + body
    return _ARRAY, struct.pack(f"<IQ{len(value)}i", _INT32, len(value), *value)


def _columns(row_bytes: int, kind: int) -> int:
    """Columns of a row of quantised blocks of 32."""
    return row_bytes // {2: 18, 3: 20, 8: 34}[kind] * 32
