"""GGUF architectures: what their layers have, and the names and row order of their tensors.

Shared by import and export. What an architecture is comes from llama.cpp, whose format this is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.enums import Role

#: Role -> GGUF tensors of its parts; {b} is the block. Experts are stacked: [experts, rows, columns].
NAMES: dict[Role, tuple[str, ...]] = {
    Role.EMBEDDING: ("token_embd.weight",),
    Role.ATTN_NORM: ("blk.{b}.attn_norm.weight",),
    Role.ATTN_QKV: ("blk.{b}.attn_q.weight", "blk.{b}.attn_k.weight", "blk.{b}.attn_v.weight"),
    Role.ATTN_QKV_BIAS: ("blk.{b}.attn_q.bias", "blk.{b}.attn_k.bias", "blk.{b}.attn_v.bias"),
    Role.ATTN_Q_NORM: ("blk.{b}.attn_q_norm.weight",),
    Role.ATTN_K_NORM: ("blk.{b}.attn_k_norm.weight",),
    Role.ATTN_OUTPUT: ("blk.{b}.attn_output.weight",),
    Role.FFN_NORM: ("blk.{b}.ffn_norm.weight",),
    Role.FFN_GATE_UP: ("blk.{b}.ffn_gate.weight", "blk.{b}.ffn_up.weight"),
    Role.FFN_DOWN: ("blk.{b}.ffn_down.weight",),
    Role.MOE_NORM: ("blk.{b}.ffn_norm.weight",),
    Role.ROUTER: ("blk.{b}.ffn_gate_inp.weight",),
    Role.OUTPUT_NORM: ("output_norm.weight",),
    Role.HEAD: ("output.weight",),
    Role.EXPERT_GATE_UP: ("blk.{b}.ffn_gate_exps.weight", "blk.{b}.ffn_up_exps.weight"),
    Role.EXPERT_DOWN: ("blk.{b}.ffn_down_exps.weight",),
}


@dataclass(frozen=True)
class GgufArchitecture:
    """A `general.architecture`.

    A layer has a dense network or experts, never both; `dense`, `experts`: which of them a model may have.
    """

    name: str
    adjacent_pairs: bool
    """The rows of q and k are for rotary pairs of adjacent elements (2i, 2i + 1); else, as in the engine,
    for pairs (i, i + head_dim / 2)."""
    dense: bool
    experts: bool
    qkv_bias: bool | None
    """Whether q, k and v have biases; None: a model may have them."""
    qk_norm: bool
    """Whether each head of q and k is normed before the rotation."""


#: All that can be read and written. Experts: softmax over all logits, renormalised over the chosen.
ARCHITECTURES: dict[str, GgufArchitecture] = {
    architecture.name: architecture
    for architecture in (
        GgufArchitecture("llama", True, True, True, None, False),
        GgufArchitecture("qwen2", False, True, False, True, False),
        GgufArchitecture("qwen3", False, True, False, False, True),
        GgufArchitecture("qwen3moe", False, False, True, False, True),
    )
}

#: Of the parts q, k and v those whose rows rotary embeddings pair: q and k.
ROTATED_PARTS = 2


def half_split_order(rows: int, head_dim: int) -> npt.NDArray[np.intp]:
    """Row order that turns rotary pairs of adjacent rows into pairs (i, i + head_dim / 2), head by head.

    New row i of a head is old row 2i; new row head_dim / 2 + i is old row 2i + 1.
    """
    return np.arange(rows).reshape(-1, head_dim // 2, 2).transpose(0, 2, 1).reshape(-1)


def adjacent_order(rows: int, head_dim: int) -> npt.NDArray[np.intp]:
    """The inverse of `half_split_order`."""
    return np.arange(rows).reshape(-1, 2, head_dim // 2).transpose(0, 2, 1).reshape(-1)
