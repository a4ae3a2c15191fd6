"""Figures of claim 7 from an exported schedule: the paper's law, the longest dependency path, bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from engine.enums import Stream
from engine.session import Piece

MIB: Final = 2**20
BYTES_PER_WEIGHT: Final = 0.5
"""The paper counts 4-bit codes without their scales."""

Cost = Callable[[Piece], float]


def nominal_mib(piece: Piece) -> float:
    """MiB at 0.5 byte per weight."""
    return piece.weights * BYTES_PER_WEIGHT / MIB


def stored_mib(piece: Piece) -> float:
    """MiB as stored: scales and padding included."""
    return piece.bytes / MIB


@dataclass(frozen=True)
class Law:
    """Per layer the three terms of the paper's law, MiB, delays applied, and the largest of them."""

    attention: tuple[float, ...]
    dense: tuple[float, ...]
    expert: tuple[float, ...]

    @property
    def binding(self) -> tuple[float, ...]:
        """max(attention, dense / (dd + 1), experts / (de + 1)) of each layer; its sum is the law."""
        return tuple(max(terms) for terms in zip(self.attention, self.dense, self.expert, strict=True))

    @property
    def mib(self) -> float:
        """The law."""
        return sum(self.binding)


def law(schedule: Sequence[Piece], dd: int, de: int, cost: Cost = nominal_mib) -> Law:
    """B_crit of section 4 of the paper; the router counts for nothing there."""
    layers = 1 + max(piece.layer for piece in schedule if piece.layer is not None)

    def stream(which: Stream, divisor: int) -> tuple[float, ...]:
        sums = [0.0] * layers
        for piece in schedule:
            if piece.stream is which and piece.layer is not None:
                sums[piece.layer] += cost(piece) / divisor
        return tuple(sums)

    return Law(stream(Stream.ATTENTION, 1), stream(Stream.DENSE, dd + 1), stream(Stream.EXPERT, de + 1))


def longest_path(schedule: Sequence[Piece], cost: Cost = nominal_mib) -> list[Piece]:
    """The chain of dependent pieces of the layers with the largest cost; pieces come in program order."""
    best: dict[int, float] = {}
    came_from: dict[int, int | None] = {}
    layers = [piece for piece in schedule if piece.layer is not None]
    for piece in layers:
        before = max(piece.dependencies, key=lambda index: best[index], default=None)
        best[piece.index] = cost(piece) + (best[before] if before is not None else 0.0)
        came_from[piece.index] = before
    end: int | None = max(best, key=lambda index: best[index])
    by_index = {piece.index: piece for piece in layers}
    path = []
    while end is not None:
        path.append(by_index[end])
        end = came_from[end]
    return path[::-1]


def name_of(piece: Piece) -> str:
    """`3.down`, `3.expert_down.1`."""
    slot = f".{piece.slot}" if piece.stream is Stream.EXPERT else ""
    return f"{piece.layer}.{piece.kind.name.lower()}{slot}"
