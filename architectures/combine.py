"""How the outputs of attention, dense network and experts become the residual stream: the combine styles.

Notation: x[l] is the residual behind layer l, x[-1] the embedding, X(j) = x[max(j, -1)]; layer l uses block
l mod `blocks`. Every function takes the blocks and the embedding `[B, T, d]`, and returns y, which the final
norm and the head read, and the residuals behind the layers. Delays count layers of the same token.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from engine.enums import Architecture, Route
from engine.geometry import Geometry


class Parts(Protocol):
    """A block as the styles see it. Each part norms its input with its own gain, all `[B, T, d]`."""

    @property
    def register(self) -> Tensor:
        """w, `[d]`; arch3 only."""

    def attend(self, x: Tensor) -> Tensor:
        """Attn(Na(x))."""

    def dense_of(self, u: Tensor) -> Tensor:
        """Dense(Nf(u))."""

    def experts_of(self, r: Tensor) -> Tensor:
        """MoE(Nm(r))."""


Style = Callable[[Sequence[Parts], Tensor, Geometry], tuple[Tensor, list[Tensor]]]


def delayed(blocks: Sequence[Parts], embedding: Tensor, geometry: Geometry) -> tuple[Tensor, list[Tensor]]:
    """DelayedSum, and AsyncExperts, which is the same with route = pre_dense.

    The paper's: the delays, and pre-dense routing. This project's reading: X(j) at negative j, the experts
    that are still due after the last layer, and current routing elsewhere.

        h[l] = x[l-1] + Attn_l(Na(x[l-1]))
        u[l] = h[l] if dd = 0 else X(l-dd)
        r[l] = x[l-1] if route = pre_dense else h[l]
        x[l] = (h[l] + Dense(Nf(u[l]))) + e[l-de],   e[l] = MoE(Nm(r[l]));   no e when l < de
        y    = x[L-1] + e[L-de] + ... + e[L-1]
    """
    layers, dd, de = geometry.layers, geometry.dd, geometry.de
    x = [embedding]  # x[l] is x[l + 1] of this list
    e: list[Tensor] = []
    for layer in range(layers):
        block = blocks[layer % len(blocks)]
        h = x[-1] + block.attend(x[-1])
        u = h if dd == 0 else x[max(layer - dd, -1) + 1]
        e.append(block.experts_of(x[-1] if geometry.route is Route.PRE_DENSE else h))
        after = h + block.dense_of(u)
        x.append(after + e[layer - de] if layer >= de else after)
    y = x[-1]
    for late in e[max(layers - de, 0) :]:
        y = y + late
    return y, x[1:]


def two_stream(blocks: Sequence[Parts], embedding: Tensor, geometry: Geometry) -> tuple[Tensor, list[Tensor]]:
    """ParallelSqrt2, arch1. The name of the style is the paper's; the equations are this project's reading.

        s[-1] = t[-1] = embedding
        s[l] = s[l-1] + Attn_l(Na((s[l-1] + t[l-1]) / sqrt 2))
        v    = (s[l] + t[l-1]) / sqrt 2
        t[l] = t[l-1] + Dense(Nf(v)) + MoE(Nm(v))
        y    = (s[L-1] + t[L-1]) / sqrt 2

    The residuals returned are all s, then all t.
    """
    s = t = embedding
    all_s, all_t = [], []
    for layer in range(geometry.layers):
        block = blocks[layer % len(blocks)]
        s = s + block.attend((s + t) / math.sqrt(2))
        v = (s + t) / math.sqrt(2)
        t = t + block.dense_of(v) + block.experts_of(v)
        all_s.append(s)
        all_t.append(t)
    return (s + t) / math.sqrt(2), all_s + all_t


def register(blocks: Sequence[Parts], embedding: Tensor, geometry: Geometry) -> tuple[Tensor, list[Tensor]]:
    """Pipeline registers, arch3. The paper names them; the equations are this project's reading.

    p[-1] = 0
    h[l] = x[l-1] + Attn_l(Na(x[l-1]))
    p[l] = a * p[l-1] + (1 - a) * h[l],   a = sigmoid(w_l), per channel, w_l learned, 0 at first
    x[l] = h[l] + Dense(Nf(p[l])) + MoE(Nm(p[l]))
    """
    x, p = embedding, torch.zeros_like(embedding)
    residuals = []
    for layer in range(geometry.layers):
        block = blocks[layer % len(blocks)]
        h = x + block.attend(x)
        a = block.register.sigmoid()
        p = a * p + (1 - a) * h
        x = h + block.dense_of(p) + block.experts_of(p)
        residuals.append(x)
    return x, residuals


STYLES: dict[Architecture, Style] = {
    Architecture.DELAYED: delayed,
    Architecture.TWO_STREAM: two_stream,
    Architecture.REGISTER: register,
}
