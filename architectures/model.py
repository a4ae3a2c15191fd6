"""The decoder: embedding, blocks combined in the style of its architecture, final norm, head."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from architectures.combine import STYLES
from architectures.config import Config
from architectures.layers import Attention, GatedFfn, RmsNorm, Rotary
from architectures.moe import Moe
from engine.enums import Architecture
from engine.errors import ArgumentError, ContextError
from engine.geometry import Geometry

#: Standard deviation of all matrices at the start; this project's reading.
INITIAL_DEVIATION = 0.02


@dataclass
class Trace:
    """What one forward pass met on its way.

    residuals: `[B, T, d]` behind each layer (arch1: of s, then of t). router_logits: `[B, T, E]` per layer.
    output: y `[B, T, d]`, the input of the final norm.
    """

    residuals: list[Tensor] = field(default_factory=list)
    router_logits: list[Tensor] = field(default_factory=list)
    output: Tensor | None = None


class Block(nn.Module):
    """The weights of one unique block. `register` exists in arch3 only."""

    def __init__(self, geometry: Geometry) -> None:
        super().__init__()
        self.attn_norm = RmsNorm(geometry.d_model, geometry.eps)
        self.attention = Attention(geometry)
        self.ffn_norm = RmsNorm(geometry.d_model, geometry.eps)
        self.dense = GatedFfn(geometry)
        self.moe_norm = RmsNorm(geometry.d_model, geometry.eps)
        self.moe = Moe(geometry)
        if geometry.architecture is Architecture.REGISTER:
            self.register = nn.Parameter(torch.zeros(geometry.d_model))


@dataclass(frozen=True)
class _Applied:
    """A block in one forward pass: what the combine styles call. Router logits are kept per application."""

    block: Block
    rotary: Rotary
    router_logits: list[Tensor]

    @property
    def register(self) -> Tensor:
        return self.block.register

    def attend(self, x: Tensor) -> Tensor:
        return self.block.attention(self.block.attn_norm(x), self.rotary)

    def dense_of(self, u: Tensor) -> Tensor:
        return self.block.dense(self.block.ffn_norm(u))

    def experts_of(self, r: Tensor) -> Tensor:
        total, logits = self.block.moe(self.block.moe_norm(r))
        self.router_logits.append(logits)
        return total


class Decoder(nn.Module):
    """A decoder-only transformer with random weights: N(0, 0.02), gains 1, registers 0.

    The residual stream is kept in f32. Raises ArgumentError for a geometry without dense network or experts.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        geometry = config.geometry
        if not geometry.ffn_hidden or not geometry.experts:
            raise ArgumentError("ffn_hidden and experts must be above 0: every layer here has both")
        self.config = config
        self.embedding = nn.Embedding(geometry.vocab, geometry.d_model)
        self.rotary = Rotary(geometry)
        self.blocks = nn.ModuleList(Block(geometry) for _ in range(geometry.blocks))
        self.output_norm = RmsNorm(geometry.d_model, geometry.eps)
        self.head = nn.Linear(geometry.d_model, geometry.vocab, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=INITIAL_DEVIATION)

    def forward(self, ids: Tensor, trace: Trace | None = None) -> Tensor:
        """Logits `[B, T, vocab]` of ids `[B, T]`; fills `trace`. Raises ContextError: T is too large."""
        geometry = self.config.geometry
        if ids.shape[1] > geometry.context:
            raise ContextError(f"{ids.shape[1]} tokens exceed context {geometry.context}")
        trace = Trace() if trace is None else trace
        applied = [_Applied(block, self.rotary, trace.router_logits) for block in self.blocks]
        combine = STYLES[geometry.architecture]
        trace.output, trace.residuals = combine(applied, self.embedding(ids), geometry)
        return self.head(self.output_norm(trace.output))
