"""The mixture of experts against one token after another, and its loss against the formula."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.geometry import Geometry

torch = pytest.importorskip("torch")

from architectures.moe import Moe, choices, load_balancing_loss  # noqa: E402
from tests.architectures.small import small_geometry  # noqa: E402


def _geometry(experts: int, chosen: int, norm: bool) -> Geometry:
    return replace(small_geometry("arch4"), experts=experts, experts_per_token=chosen, norm_topk=norm)


@settings(max_examples=25)
@given(st.data(), st.integers(1, 6), st.integers(1, 9), st.booleans())
def test_grouped_experts_equal_one_token_after_another(
    data: st.DataObject, experts: int, tokens: int, norm: bool
) -> None:
    chosen = data.draw(st.integers(1, experts))
    torch.manual_seed(data.draw(st.integers(0, 99)))
    moe = Moe(_geometry(experts, chosen, norm))
    for parameter in moe.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    n = torch.randn(1, tokens, 32)
    with torch.no_grad():
        total, logits = moe(n)
        for t in range(tokens):
            p = logits[0, t].softmax(-1)
            top = sorted(range(experts), key=lambda i, p=p: (-p[i], i))[:chosen]
            scale = sum(p[i] for i in top) if norm else 1
            wanted = sum(
                p[i]
                / scale
                * (moe.down[i] @ (torch.nn.functional.gelu(moe.gate[i] @ n[0, t]) * (moe.up[i] @ n[0, t])))
                for i in top
            )
            torch.testing.assert_close(total[0, t], wanted, rtol=1e-4, atol=1e-5)


def test_equal_logits_choose_the_lower_index() -> None:
    moe = Moe(_geometry(6, 2, True))
    torch.nn.init.zeros_(moe.router.weight)
    chosen, weights = moe._choose(torch.zeros(3, 6))
    assert chosen.tolist() == [[0, 1]] * 3
    assert weights.tolist() == [[0.5, 0.5]] * 3


def test_balance_is_one_for_equal_experts_and_their_number_for_a_single_one() -> None:
    even = torch.zeros(2, 4, 8)
    shares = torch.full((1, 8), 1 / 8)
    assert load_balancing_loss([even], shares).item() == pytest.approx(1)
    single = torch.zeros(2, 4, 8)
    single[..., 3] = 50.0
    shares = torch.stack([choices(single, 1)])
    assert shares[0].tolist() == [0, 0, 0, 1, 0, 0, 0, 0]
    assert load_balancing_loss([single], shares).item() == pytest.approx(8)


def test_the_gradient_of_the_balance_moves_weight_to_idle_experts() -> None:
    logits = torch.zeros(1, 1, 4, requires_grad=True)
    load_balancing_loss([logits], torch.tensor([[0.7, 0.3, 0.0, 0.0]])).backward()
    slope = logits.grad[0, 0]
    assert slope[0] > slope[1] > 0 > slope[2]
    assert slope[2] == slope[3]
