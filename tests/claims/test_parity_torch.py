"""A .cflow model in PyTorch, where it is installed: against the reference, and the pinned traces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from claims.parity_trace import PINNED, SIX, Trace
from engine.convert_checkpoint import convert_checkpoint
from engine.reference import Reference, load_weights
from tests.engine.checkpoints import TINY, CheckpointFolder

torch = pytest.importorskip("torch")
TOKENS = [int(token) for token in np.random.default_rng(3).integers(0, 300, 30)]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("name", SIX)
def test_equals_the_reference(tmp_path: Path, name: str) -> None:
    from claims.parity_torch import trace

    path = tmp_path / "m.cflow"
    convert_checkpoint(CheckpointFolder(TINY[name], name).write(tmp_path / "m"), path)
    found = trace(path, TOKENS, every=4)
    reference = Reference(load_weights(path))
    for position, token in enumerate(TOKENS[:-1]):
        logits = reference.decode([token])
        top = np.sort(logits)[-2:]
        assert int(np.argmax(logits)) == found.choices[position]
        assert found.top_gaps[position] == pytest.approx((top[1] - top[0]) / np.abs(logits).max(), abs=1e-5)
        p = np.exp(logits - logits.max())
        assert found.nats[position] == pytest.approx(-np.log(p[TOKENS[position + 1]] / p.sum()), rel=1e-4)
        if position % 4 == 0:
            np.testing.assert_allclose(found.logits[position // 4], logits, atol=1e-4)
            np.testing.assert_allclose(found.norms[position // 4], reference.residual_norms, rtol=1e-5)
    assert found.positions.tolist() == list(range(0, len(TOKENS) - 1, 4))
    assert 0 < found.router_gaps.min() < found.router_gaps.max() < 1


@pytest.mark.parametrize("name", SIX)
def test_the_pinned_trace_is_that_of_this_pytorch(name: str) -> None:
    from claims.parity_torch import trace

    pinned = Trace.load(PINNED / f"{name}.npz")
    here = trace(PINNED / f"{name}.cflow", pinned.tokens.tolist(), every=8)
    difference = np.linalg.norm(here.logits - pinned.logits, axis=1)
    assert (difference < 1e-5 * np.linalg.norm(pinned.logits, axis=1)).all()
    clear = ~pinned.exempt
    np.testing.assert_array_equal(here.choices[clear], pinned.choices[clear])
    np.testing.assert_allclose(here.router_gaps, pinned.router_gaps, rtol=1e-2, atol=1e-5)


def test_all_experts_chosen_has_no_gap() -> None:
    from claims.parity_torch import router_gap

    logits = np.log(np.array([[0.1, 0.4, 0.3, 0.2]], np.float32))
    assert router_gap(logits, 2)[0] == pytest.approx((0.3 - 0.2) / 0.3, rel=1e-5)
    assert router_gap(logits, 4)[0] == np.inf
