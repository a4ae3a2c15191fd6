"""GGUF architectures: the names of their tensors and the order of their rows, for import and export."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.enums import Role

#: Role -> GGUF tensors of its parts; {b} is the block. Experts are stacked: [experts, rows, columns].
NAMES: dict[Role, tuple[str, ...]] = {
    Role.EMBEDDING: ("token_embd.weight",),
    Role.ATTN_NORM: ("blk.{b}.attn_norm.weight",),
    Role.ATTN_QKV: ("blk.{b}.attn_q.weight", "blk.{b}.attn_k.weight", "blk.{b}.attn_v.weight"),
    Role.ATTN_QKV_BIAS: ("blk.{b}.attn_q.bias", "blk.{b}.attn_k.bias", "blk.{b}.attn_v.bias"),
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
