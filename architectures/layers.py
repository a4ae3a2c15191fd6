"""Building blocks of a layer: RMSNorm, rotary positions, causal attention, and the gated dense network.

Shapes: B sequences, T positions, d = d_model, H query heads of dh values, K heads of keys and values.
Matrices are `[out, in]`, without biases.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.enums import Activation
from engine.geometry import Geometry


class RmsNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * gain over the last axis. The paper's: eps 1e-6."""

    def __init__(self, d_model: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """`[..., d]` -> `[..., d]`."""
        return functional.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


class Rotary(nn.Module):
    """Rotates the pairs (i, i + dh / 2) of each head by position * base^(-2 i / dh). The paper's: 10000."""

    def __init__(self, geometry: Geometry) -> None:
        super().__init__()
        half = geometry.head_dim // 2
        frequency = geometry.rope_base ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = torch.arange(geometry.context, dtype=torch.float64)[:, None] * frequency
        # [context, dh / 2]; not part of the saved weights.
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)

    def forward(self, heads: Tensor) -> Tensor:
        """`[B, heads, T, dh]` -> the same, rotated."""
        positions = heads.shape[2]
        cos, sin = self.cos[:positions], self.sin[:positions]
        low, high = heads.float().chunk(2, dim=-1)
        return torch.cat([low * cos - high * sin, low * sin + high * cos], dim=-1).to(heads.dtype)


class Attention(nn.Module):
    """Causal attention with grouped queries; scores are scaled by 1 / sqrt(dh)."""

    def __init__(self, geometry: Geometry) -> None:
        super().__init__()
        d_model, self.head_dim = geometry.d_model, geometry.head_dim
        queries, keys = geometry.heads * self.head_dim, geometry.kv_heads * self.head_dim
        self.query = nn.Linear(d_model, queries, bias=False)
        self.key = nn.Linear(d_model, keys, bias=False)
        self.value = nn.Linear(d_model, keys, bias=False)
        self.output = nn.Linear(queries, d_model, bias=False)
        self.grouped = geometry.heads != geometry.kv_heads

    def forward(self, n: Tensor, rotary: Rotary) -> Tensor:
        """`[B, T, d]`, normed -> `[B, T, d]`."""
        query, key, value = (self._heads(matrix(n)) for matrix in (self.query, self.key, self.value))
        out = functional.scaled_dot_product_attention(
            rotary(query), rotary(key), value, is_causal=True, enable_gqa=self.grouped
        )
        return self.output(out.transpose(1, 2).flatten(2))

    def _heads(self, projected: Tensor) -> Tensor:
        """`[B, T, heads * dh]` -> `[B, heads, T, dh]`."""
        return projected.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)


class GatedFfn(nn.Module):
    """Dense(n) = Wd(act(Wg n) * Wu n). The paper's: GeGLU; the exact (erf) GELU is this project's reading."""

    def __init__(self, geometry: Geometry) -> None:
        super().__init__()
        self.gate = nn.Linear(geometry.d_model, geometry.ffn_hidden, bias=False)
        self.up = nn.Linear(geometry.d_model, geometry.ffn_hidden, bias=False)
        self.down = nn.Linear(geometry.ffn_hidden, geometry.d_model, bias=False)
        self.activation = geometry.activation

    def forward(self, n: Tensor) -> Tensor:
        """`[..., d]` -> `[..., d]`."""
        return self.down(activate(self.gate(n), self.activation) * self.up(n))


def activate(gate: Tensor, activation: Activation) -> Tensor:
    """The exact GELU x (1 + erf(x / sqrt 2)) / 2, or SiLU x / (1 + exp(-x))."""
    return functional.gelu(gate) if activation is Activation.GEGLU else functional.silu(gate)
