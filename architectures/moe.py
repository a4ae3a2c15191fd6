"""The sparse mixture of experts, and the loss that keeps its experts equally busy.

Shapes: N tokens (B * T), d = d_model, E experts of hidden size h, k of them chosen per token.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from architectures.layers import activate
from engine.geometry import Geometry


class Moe(nn.Module):
    """MoE(n) = sum over the chosen experts i, ascending, of p_i Expert_i(n).

    p = softmax over all logits of Wr n, in f32, renormalised over the chosen k when norm_topk. Equal logits:
    the lower index. The paper's: 8 GeGLU experts, top-2. This project's reading: renormalisation.
    """

    def __init__(self, geometry: Geometry) -> None:
        super().__init__()
        experts, hidden, d_model = geometry.experts, geometry.expert_hidden, geometry.d_model
        self.router = nn.Linear(d_model, experts, bias=False)
        self.gate = nn.Parameter(torch.empty(experts, hidden, d_model))
        self.up = nn.Parameter(torch.empty(experts, hidden, d_model))
        self.down = nn.Parameter(torch.empty(experts, d_model, hidden))
        self.chosen_count = geometry.experts_per_token
        self.norm_topk = geometry.norm_topk
        self.activation = geometry.activation

    def forward(self, n: Tensor) -> tuple[Tensor, Tensor]:
        """`[B, T, d]`, normed -> the sum `[B, T, d]` and the router's logits `[B, T, E]`."""
        tokens = n.flatten(0, 1)
        with torch.autocast(n.device.type, enabled=False):
            logits = functional.linear(tokens.float(), self.router.weight)
        chosen, weights = self._choose(logits)
        outputs = self._grouped(tokens, chosen)
        total = (outputs * weights.unsqueeze(-1)).sum(1)
        return total.view(n.shape), logits.view(*n.shape[:2], -1)

    def _choose(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Chosen experts, ascending, and their weights: both `[N, k]`."""
        order = logits.argsort(dim=-1, descending=True, stable=True)
        chosen = order[:, : self.chosen_count].sort(dim=-1).values
        weights = logits.softmax(-1).gather(-1, chosen)
        if self.norm_topk:
            weights = weights / weights.sum(-1, keepdim=True)
        return chosen, weights

    def _grouped(self, tokens: Tensor, chosen: Tensor) -> Tensor:
        """Outputs of the chosen experts, `[N, k, d]`: the tokens of an expert go through it as one matrix.

        An expert without tokens multiplies an empty matrix: all experts get a gradient, as DDP needs.
        """
        flat = chosen.flatten()
        by_expert = flat.argsort(stable=True)
        counts = torch.bincount(flat, minlength=len(self.gate)).tolist()
        groups = tokens[by_expert // self.chosen_count].split(counts)
        # unbind: one backward node per stack, where indexing would add up a whole stack per expert.
        matrices = zip(groups, self.gate.unbind(), self.up.unbind(), self.down.unbind(), strict=True)
        outputs = [
            functional.linear(
                activate(functional.linear(x, gate), self.activation) * functional.linear(x, up), down
            )
            for x, gate, up, down in matrices
        ]
        return torch.cat(outputs)[by_expert.argsort()].view(*chosen.shape, -1)


def choices(router_logits: Tensor, chosen_count: int) -> Tensor:
    """Share of the choices that fell on each expert, `[E]`, sum 1, of logits `[..., E]`; without gradient."""
    order = router_logits.detach().flatten(0, -2).argsort(dim=-1, descending=True, stable=True)
    counts = torch.bincount(order[:, :chosen_count].flatten(), minlength=router_logits.shape[-1])
    return counts / counts.sum()


def load_balancing_loss(router_logits: list[Tensor], shares: Tensor) -> Tensor:
    """Mean over the layers of E * sum over i of f_i P_i: 1 when all experts are equally busy, E when one is.

    f_i: share of the choices that fell on expert i (`shares`, `[layers, E]`, see `choices`). P_i: mean over
    the tokens of the softmax of `router_logits` (`[B, T, E]` per layer). After Fedus, Zoph and Shazeer,
    Switch Transformers (2021), equations 4 to 6, with the choices of all k slots counted.
    """
    means = torch.stack([logits.softmax(-1).flatten(0, -2).mean(0) for logits in router_logits])
    return len(means[0]) * (shares * means).sum(-1).mean()
