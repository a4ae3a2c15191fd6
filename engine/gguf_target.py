"""The front of a GGUF file that is to be written: metadata, tensor infos, and where the data go."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import gguf

from engine.enums import Type
from engine.tiles import align_up, row_bytes

ALIGN_BYTES = 32
"""Of tensors; the default of the format."""
_VERSION = 3

MetadataValue = str | bool | int | float


@dataclass(frozen=True)
class GgufTensor:
    """A tensor: shape with rows first, as `GgufSource` gives it."""

    name: str
    kind: Type
    shape: tuple[int, ...]

    @property
    def data_bytes(self) -> int:
        """Bytes without the padding behind."""
        rows = 1
        for size in self.shape[:-1]:
            rows *= size
        width = 4 * self.shape[0] if len(self.shape) == 1 else row_bytes(self.kind, self.shape[-1])
        return width * rows


@dataclass(frozen=True)
class GgufLayout:
    """`front`: the bytes before the data. `offsets`: of the tensors, in order, from the start of the file."""

    front: bytes
    offsets: tuple[int, ...]
    file_bytes: int


def plan_gguf(
    metadata: Mapping[str, MetadataValue], tensors: Sequence[GgufTensor], align_bytes: int = ALIGN_BYTES
) -> GgufLayout:
    """Places the tensors in the given order, each at a multiple of `align_bytes`, a power of two from 32 on.

    Integers become uint32, floats float32. Vectors must be f32. Another alignment than the format's default
    is added to the metadata.
    """
    if align_bytes != ALIGN_BYTES:
        metadata = {**metadata, "general.alignment": align_bytes}
    front = bytearray(struct.pack("<4sIQQ", b"GGUF", _VERSION, len(tensors), len(metadata)))
    for key, value in metadata.items():
        front += _string(key) + _value(value)
    relative, end = [], 0
    for tensor in tensors:
        relative.append(end)
        dimensions = tensor.shape[::-1]
        front += _string(tensor.name)
        front += struct.pack(f"<I{len(dimensions)}Q", len(dimensions), *dimensions)
        front += struct.pack("<IQ", gguf.GGMLQuantizationType[tensor.kind.name], end)
        end = align_up(end + tensor.data_bytes, align_bytes)
    start = align_up(len(front), align_bytes)
    front += bytes(start - len(front))
    return GgufLayout(bytes(front), tuple(start + offset for offset in relative), start + end)


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(value: MetadataValue) -> bytes:
    kinds = gguf.GGUFValueType
    if isinstance(value, str):
        return struct.pack("<I", kinds.STRING) + _string(value)
    if isinstance(value, bool):
        return struct.pack("<I?", kinds.BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", kinds.UINT32, value)
    return struct.pack("<If", kinds.FLOAT32, value)
