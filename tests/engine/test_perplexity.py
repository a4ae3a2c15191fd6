"""Perplexity: windows, log probabilities, and equality with a plain loop over the reference."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ArgumentError, ContextError
from engine.geometry import Geometry
from engine.model import Model
from engine.perplexity import negative_log_probabilities, perplexity, windows
from engine.reference import Reference, load_weights
from engine.session import Session
from tests.engine.models import write_random_model

TOKENS = [int(token) for token in np.random.default_rng(2).integers(0, 131, 200)]


@given(tokens=st.integers(2, 300), window=st.integers(1, 70), data=st.data())
def test_every_token_but_the_first_counts_once(tokens: int, window: int, data: st.DataObject) -> None:
    stride = data.draw(st.integers(1, window))
    counted = []
    for one in windows(tokens, window, stride):
        assert one.first % stride == 0
        assert one.last - one.first <= window
        predicted = range(max(one.first + 1, one.counted), one.last + 1)
        assert len(predicted) > 0, "a window that adds nothing"
        counted += predicted
        if one.first > 0:
            assert predicted[0] - one.first >= window - stride + 1, "tokens that it is given"
    assert counted == list(range(1, tokens))


def test_what_is_not_allowed() -> None:
    for tokens, window, stride, words in (
        (10, 0, 1, "window is 0, must be at least 1"),
        (10, 4, 5, "stride is 5, must be 1 to the window, 4"),
        (10, 4, 0, "stride is 0"),
        (1, 4, 4, "the text has 1 tokens, at least 2 are needed"),
        (0, 4, 4, "the text has 0 tokens"),
    ):
        with pytest.raises(ArgumentError, match=words):
            list(windows(tokens, window, stride))


def test_log_probabilities_of_large_logits() -> None:
    logits = np.array([[1000.0, 1000.0, -1000.0], [0.0, math.log(3.0), -math.inf]], np.float32)
    np.testing.assert_allclose(
        negative_log_probabilities(logits, np.array([1, 1])), [math.log(2), math.log(4 / 3)], rtol=1e-7
    )
    assert negative_log_probabilities(logits[:1], np.array([2])) == pytest.approx(2000 + math.log(2))


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ppl")
    return write_random_model(folder / "m.cflow", Geometry.parse("tiny_arch2_4_combined,context=96"), seed=4)


@pytest.mark.parametrize(("window", "stride"), [(48, 48), (48, 16), (7, 3), (1, 1), (96, 90)])
def test_equals_a_plain_loop(model_path: Path, window: int, stride: int) -> None:
    """Each token through the reference, one by one, with the tokens of the first window that predicts it."""
    tokens = TOKENS[:120]
    reference = Reference(load_weights(model_path), kv="f16")
    expected = [math.nan] * len(tokens)
    for first in range(0, len(tokens) - 1, stride):
        reference.reset()
        for at in range(first, min(first + window, len(tokens) - 1)):
            logits = reference.decode([tokens[at]])
            p = np.exp(logits - logits.max())
            if math.isnan(expected[at + 1]):
                expected[at + 1] = -math.log(p[tokens[at + 1]] / p.sum())
    with Model(model_path) as model, Session(model, q8_activations=0, context=window) as session:
        done = perplexity(session, tokens, window, stride)
    np.testing.assert_allclose(done.nats, expected[1:], rtol=1e-4, atol=1e-4)
    assert done.value == pytest.approx(math.exp(np.mean(expected[1:])), rel=1e-4)
    assert done.fed >= done.tokens == len(tokens) - 1
    assert done.wall_ns > 0


def test_progress_ends_at_the_total_and_a_long_window_is_refused(model_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    with Model(model_path) as model, Session(model, context=90) as session:
        perplexity(session, TOKENS, 90, 45, lambda done, total: seen.append((done, total)))
        assert seen[-1] == (199, 199)
        assert [done for done, _ in seen] == sorted(done for done, _ in seen)
        with pytest.raises(ContextError):
            perplexity(session, TOKENS, 96, 96)
