"""How long a token takes whose experts are read beside the computation: models, as paths for harness Paths.

With C the computing of a token, IO the reading of its experts, N its layers:

- one after the other: C + IO;
- in N equal steps, each read one step ahead of its use: IO / N + (N - 1) max(C / N, IO / N) + C / N.
  Whichever of the two is longer hides all of the other but one step: the fill of the pipeline;
- side by side without a beginning or an end: max(C, IO), the paper's denominator;
- from the schedule: every phase computes its bytes, a read begins after the phase of its router, one read
  at a time, and a phase waits for the experts that it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from engine.enums import PieceKind, Stream
from engine.session import Piece

Terms = tuple[tuple[float, float], ...]
"""Paths: (share of the computing, share of the reading)."""

SERIAL: Final[Terms] = ((1.0, 1.0),)
BESIDE: Final[Terms] = ((1.0, 0.0), (0.0, 1.0))
_SAME: Final = 1e-12


def pipeline(steps: int) -> Terms:
    """A token of `steps` equal steps whose reads run one step ahead."""
    return ((1.0, 1.0 / steps), (1.0 / steps, 1.0))


@dataclass(frozen=True)
class Window:
    """What a token computes between the router of a layer and the first use of its experts.

    routed, needed: phases. bytes: of the weights in the phases between them, and in the last one, which waits
    for experts when all else is done; those of experts of other layers are left out.
    """

    layer: int
    routed: int
    needed: int
    bytes: int


def windows(schedule: Sequence[Piece]) -> list[Window]:
    """The window of every layer with experts, in order."""
    routed = {piece.layer: piece.phase for piece in schedule if piece.kind is PieceKind.ROUTER}
    needed = {piece.layer: piece.phase for piece in schedule if piece.kind is PieceKind.EXPERT_GATE_UP}
    found = []
    for layer, first in needed.items():
        assert layer is not None
        between = sum(
            piece.bytes
            for piece in schedule
            if routed[layer] < piece.phase <= first and piece.stream is not Stream.EXPERT
        )
        found.append(Window(layer, routed[layer], first, between))
    return sorted(found, key=lambda window: window.layer)


def scheduled(schedule: Sequence[Piece], *, staged: bool) -> Terms:
    """Paths through the phases of a token. staged: reads begin after the router, else when they are needed.

    Computing is shared out by bytes, reading in equal parts: every layer reads as many experts. Barriers and
    vector work are spread like the bytes.
    """
    total = sum(piece.bytes for piece in schedule)
    layers = len({piece.layer for piece in schedule if piece.kind is PieceKind.ROUTER})
    now: Terms = ((0.0, 0.0),)
    free = now  # when the device has done what it was asked for
    done: dict[int | None, Terms] = {}

    def read(begins: Terms) -> Terms:
        return _after(_later(begins, free), 0.0, 1.0 / layers)

    for phase in range(1 + max(piece.phase for piece in schedule)):
        own = [piece for piece in schedule if piece.phase == phase]
        experts = sum(piece.bytes for piece in own if piece.stream is Stream.EXPERT)
        now = _after(now, (sum(piece.bytes for piece in own) - experts) / total, 0.0)
        for layer in sorted({piece.layer or 0 for piece in own if piece.kind is PieceKind.EXPERT_GATE_UP}):
            if not staged:
                free = done[layer] = read(now)
            now = _later(now, done[layer])
        now = _after(now, experts / total, 0.0)
        for layer in sorted({piece.layer or 0 for piece in own if piece.kind is PieceKind.ROUTER}):
            if staged:
                free = done[layer] = read(now)
    return now


def longest(terms: Terms, compute: float, read: float) -> float:
    """Time of the longest path."""
    return max(a * compute + b * read for a, b in terms)


def _after(moment: Terms, compute: float, read: float) -> Terms:
    return tuple((a + compute, b + read) for a, b in moment)


def _later(one: Terms, other: Terms) -> Terms:
    """Both moments have come. Paths that are never the longest, whatever computing and reading take, are left
    out.
    """
    kept: list[tuple[float, float]] = []
    for a, b in sorted({*one, *other}, reverse=True):
        if kept and b <= kept[-1][1] + _SAME:
            continue
        while len(kept) > 1 and _under(kept[-2], kept[-1], (a, b)):
            kept.pop()
        kept.append((a, b))
    return tuple(kept)


def _under(left: tuple[float, float], middle: tuple[float, float], right: tuple[float, float]) -> bool:
    """Whether `middle` lies on or under the line from `left` to `right`."""
    return (left[0] - middle[0]) * (right[1] - middle[1]) >= (middle[1] - left[1]) * (middle[0] - right[0])
