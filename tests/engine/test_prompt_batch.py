"""Prompts in chunks: the bits of token-by-token decode, and what counters, trace and errors say about them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.enums import Architecture, Isa, Param, Role, Route, Stream, Type
from engine.errors import ArgumentError, ContextError
from engine.geometry import Geometry
from engine.kernels import isa_supported
from engine.model import Model
from engine.session import Session
from tests.engine.models import write_random_model

ISAS = [isa for isa in Isa if isa_supported(isa)]
TOKENS = [int(token) for token in np.random.default_rng(0).integers(0, 1 << 30, 80)]
NAMES = ["tiny_standard", "tiny_dense", "tiny_arch1", "tiny_arch2_4_combined", "tiny_arch3", "tiny_arch4"]
QUANTISED = (Type.Q4_0, Type.Q4_1, Type.Q8_0)


class State:
    """Everything that a session tells about its last token, and a token after it, which reads the whole cache."""

    def __init__(self, model: Model, prompt: list[int], before: int = 0, **options: int | str) -> None:
        with Session(model, **options) as session:
            if before:
                session.decode(prompt[:before])
            self.logits = session.decode(prompt[before:])
            self.norms = session.residual_norms()
            self.routing = session.routing() if model.param(Param.EXPERTS) else ()
            self.position = session.position
            self.next_logits = session.decode([prompt[0]])

    def assert_equal(self, other: State) -> None:
        np.testing.assert_array_equal(self.logits.view(np.uint32), other.logits.view(np.uint32))
        np.testing.assert_array_equal(self.next_logits.view(np.uint32), other.next_logits.view(np.uint32))
        np.testing.assert_array_equal(self.norms, other.norms)
        for mine, others in zip(self.routing, other.routing, strict=True):
            np.testing.assert_array_equal(mine, others)
        assert self.position == other.position


def prompt_of(model: Model, count: int) -> list[int]:
    return [token % model.vocab for token in TOKENS[:count]]


@pytest.fixture(scope="module", params=NAMES)
def model_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("batch") / "m.cflow"
    return write_random_model(path, Geometry.named(str(request.param)), seed=4)


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name.lower())
@pytest.mark.parametrize("q8", [0, 1])
def test_chunks_have_the_bits_of_single_tokens(model_path: Path, isa: Isa, q8: int) -> None:
    with Model(model_path) as model:
        prompt = prompt_of(model, 37)
        options = {"isa": isa, "q8_activations": q8, "context": 48}
        expected = State(model, prompt, threads=1, prompt_batch=1, **options)
        for batch, threads in ((32, 1), (32, 3), (5, 2), (2, 5), (31, 8)):
            State(model, prompt, threads=threads, prompt_batch=batch, **options).assert_equal(expected)
        State(model, prompt, before=3, threads=2, **options).assert_equal(expected)
