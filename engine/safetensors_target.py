"""Where the tensors of a safetensors file lie: a length, a JSON header, then the data without gaps.

The format is that of the `safetensors` library, whose reader checks these files in the tests. The header is
laid out before any data exist, so that tensors larger than memory can be written one piece after another.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from engine.tiles import align_up

#: Bytes of a value, by the format's names of types.
ITEM_BYTES = {"BF16": 2, "F32": 4, "I8": 1, "I32": 4, "I64": 8}

_ALIGN_BYTES = 8
_METADATA = {"format": "pt"}


@dataclass(frozen=True)
class SafeTensor:
    """A tensor: its name, its type as the format names it, and its shape."""

    name: str
    type: str
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Of its data."""
        return math.prod(self.shape) * ITEM_BYTES[self.type]


def header(tensors: Sequence[SafeTensor]) -> bytes:
    """What stands before the data, whose order is that of `tensors`."""
    described: dict[str, object] = {"__metadata__": _METADATA}
    offset = 0
    for tensor in tensors:
        end = offset + tensor.bytes
        described[tensor.name] = {
            "dtype": tensor.type,
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(described, separators=(",", ":")).encode()
    padded = text.ljust(align_up(len(text), _ALIGN_BYTES))
    return struct.pack("<Q", len(padded)) + padded
