"""The order of the tensors in a file (cflow_order of cflow.h): layer-major, stage-major by phase or kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from engine.enums import Order, PieceKind, Role
from engine.session import Piece
from engine.tensors import BLOCK_ROLES, VECTOR_ROLES, TensorSpec

_READER: Final[Mapping[Role, PieceKind]] = {
    Role.ATTN_NORM: PieceKind.QKV,
    Role.ATTN_QKV: PieceKind.QKV,
    Role.ATTN_QKV_BIAS: PieceKind.QKV,
    Role.ATTN_Q_NORM: PieceKind.ATTENTION,
    Role.ATTN_K_NORM: PieceKind.ATTENTION,
    Role.ATTN_OUTPUT: PieceKind.OUTPUT,
    Role.REGISTER: PieceKind.GATE_UP,
    Role.FFN_NORM: PieceKind.GATE_UP,
    Role.FFN_GATE_UP: PieceKind.GATE_UP,
    Role.FFN_DOWN: PieceKind.DOWN,
    Role.MOE_NORM: PieceKind.ROUTER,
    Role.ROUTER: PieceKind.ROUTER,
    Role.OUTPUT_NORM: PieceKind.HEAD,
    Role.HEAD: PieceKind.HEAD,
    Role.EMBEDDING: PieceKind.HEAD,
    Role.EXPERT_GATE_UP: PieceKind.EXPERT_GATE_UP,
    Role.EXPERT_DOWN: PieceKind.EXPERT_DOWN,
}


def reader(role: Role, dense: bool) -> PieceKind:
    """The piece that reads a tensor, or before which a vector is applied.

    dense: the model has a dense network; without one a register weight is first needed by the router. An
    embedding that is not the head as well is read by no piece.
    """
    return PieceKind.ROUTER if role is Role.REGISTER and not dense else _READER[role]


Place = tuple[int, ...]
"""Sorts the tensors of a file; tensors of one place stay in layer-major order."""

_FIRST, _STAGES, _BANK = (0,), (1,), (2,)


@dataclass(frozen=True)
class Arrangement:
    """An order, and what sorts the tensors by it."""

    order: Order
    place: Callable[[TensorSpec], Place]

    def arranged(self, specs: Iterable[TensorSpec]) -> tuple[TensorSpec, ...]:
        """`specs`, which are in layer-major order, in this one."""
        return tuple(sorted(specs, key=self.place))


LAYER_MAJOR: Final = Arrangement(Order.LAYER, lambda spec: ())


def by_kind(tied_head: bool) -> Arrangement:
    """Stage-major by kind. tied_head: the embedding is the head."""

    def place(spec: TensorSpec) -> Place:
        if spec.expert is not None:
            return (*_BANK, spec.expert)
        if spec.block is not None:
            return (*_STAGES, BLOCK_ROLES.index(spec.role))
        if spec.role is Role.EMBEDDING and not tied_head:
            return _FIRST
        return (*_STAGES, len(BLOCK_ROLES))

    return Arrangement(Order.KIND, place)


def by_phase(pieces: Iterable[Piece], blocks: int, tied_head: bool) -> Arrangement:
    """Stage-major by the phases of a schedule with pieces `pieces`.

    blocks: unique blocks; a piece of layer l reads block l mod blocks. tied_head: the embedding is the head.
    """
    readers: dict[tuple[PieceKind, int | None], Piece] = {}
    dense = False
    for piece in pieces:
        dense = dense or piece.kind is PieceKind.GATE_UP
        key = (piece.kind, None if piece.layer is None else piece.layer % blocks)
        if key not in readers or piece.phase < readers[key].phase:
            readers[key] = piece

    def place(spec: TensorSpec) -> Place:
        if spec.expert is not None:
            return _BANK
        if spec.role is Role.EMBEDDING and not tied_head:
            return _FIRST
        first = readers[reader(spec.role, dense), spec.block]
        return (*_STAGES, first.phase, int(spec.role not in VECTOR_ROLES), first.index)

    return Arrangement(Order.PHASE, place)
