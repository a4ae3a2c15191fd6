"""The GGUF and the .cflow of one model: another engine loads the former, ours the latter, block for block the
same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from claims.models import from_gguf
from engine.enums import Role
from engine.model import Model, Tensor
from engine.tiles import BLOCK_COLUMNS, block_bytes
from harness.errors import HarnessError

_EXPERT_ROLES: Final = (Role.EXPERT_GATE_UP, Role.EXPERT_DOWN)


class TwinError(HarnessError):
    """A .cflow does not hold the weights of a GGUF."""


def check_twin(model: Model, gguf: Path, cache: Path) -> None:
    """Raises TwinError unless `model` is what the converter makes of `gguf`: parameters, tensors, every hash.

    The data of both are read, so that the hashes speak of what is there. The conversion is kept in `cache`.
    """
    model.verify()
    with Model(from_gguf(cache, gguf)) as made:
        for name, value in made.params.items():
            if model.params[name] != value:
                raise TwinError(
                    f"{model.path} is not made from {gguf}: {name} is {model.params[name]}, {value} expected"
                )
        found, expected = ({tensor.name: _content(tensor) for tensor in one.tensors} for one in (model, made))
        wrong = next((name for name in expected if found.get(name) != expected[name]), None)
        if wrong is not None or len(found) != len(expected):
            raise TwinError(
                f"{model.path} is not made from {gguf}, block for block: {wrong or 'tensors'} differ"
            )


def block_bytes_per_token(model: Model, experts_per_token: int) -> float:
    """Bytes of the blocks that one token needs, as a GGUF stores them: every matrix, of the experts those
    that are routed, of the embedding one row, or all of it when it is the head, too. Vectors are left out.
    """
    roles = {tensor.role for tensor in model.tensors}
    experts = 1 + max((tensor.expert or 0 for tensor in model.tensors), default=0)
    total = 0.0
    for tensor in model.tensors:
        if tensor.columns == 1:
            continue
        size = tensor.weights * block_bytes(tensor.type) / BLOCK_COLUMNS
        if tensor.role in _EXPERT_ROLES:
            size *= experts_per_token / experts
        elif tensor.role is Role.EMBEDDING:
            row = size / sum(tensor.rows)
            size = row if Role.HEAD in roles else size + row
        total += size
    return total


def _content(tensor: Tensor) -> tuple[object, ...]:
    return tensor.role, tensor.type, tensor.rows, tensor.columns, tensor.bytes, tensor.hash
