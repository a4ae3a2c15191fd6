"""Where the experts lie in a GGUF file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.enums import Role, Type
from engine.geometry import Geometry, weight_bytes
from engine.gguf_names import NAMES
from engine.gguf_source import GgufSource


@dataclass(frozen=True)
class ExpertTensor:
    """All experts of one matrix of a layer, one after the other; offset and bytes in the file."""

    layer: int
    offset: int
    bytes: int


@dataclass(frozen=True)
class ExpertFile:
    """A GGUF file and the places of its experts."""

    path: Path
    experts: int
    tensors: tuple[ExpertTensor, ...]

    @property
    def bank_bytes(self) -> int:
        """Of all experts of all layers."""
        return sum(tensor.bytes for tensor in self.tensors)

    @property
    def expert_bytes(self) -> int:
        """Of one expert of a layer: gate, up and down."""
        return sum(tensor.bytes for tensor in self.tensors if tensor.layer == 0) // self.experts


def expert_file(path: Path, geometry: Geometry) -> ExpertFile:
    """A q4_0 file of that geometry. Raises FileError and FormatError when it cannot be read."""
    source = GgufSource(path)
    size = weight_bytes(geometry.experts * geometry.expert_hidden * geometry.d_model, Type.Q4_0)
    tensors = tuple(
        ExpertTensor(layer, source.offset(name.format(b=layer)), size)
        for layer in range(geometry.layers)
        for role in (Role.EXPERT_GATE_UP, Role.EXPERT_DOWN)
        for name in NAMES[role]
    )
    return ExpertFile(path, geometry.experts, tensors)
