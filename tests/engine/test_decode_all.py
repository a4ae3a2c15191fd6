"""Logits of every token of a prompt: the bits of one token at a time, wherever weights come from."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.enums import Isa, Role, Status, Type
from engine.errors import ArgumentError, CancelledError, ContextError, NonFiniteError
from engine.geometry import Geometry
from engine.kernels import isa_supported
from engine.model import Model
from engine.native import lib, pointer
from engine.session import Session
from tests.engine.models import geometries, write_random_model

TOKENS = [int(token) for token in np.random.default_rng(5).integers(0, 131, 40)]


def one_by_one(session: Session, tokens: list[int]) -> npt.NDArray[np.float32]:
    return np.stack([session.decode([token]) for token in tokens])


@pytest.fixture(scope="module")
def moe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("all")
    return write_random_model(folder / "m.cflow", Geometry.named("tiny_arch2_4_combined"), seed=4)


@pytest.mark.parametrize("isa", [isa for isa in Isa if isa_supported(isa)], ids=lambda isa: isa.name.lower())
@pytest.mark.parametrize("q8", [0, 1])
@pytest.mark.parametrize(("batch", "threads"), [(1, 2), (2, 1), (7, 3), (32, 2), (32, 8)])
def test_bits_of_single_tokens(moe: Path, isa: Isa, q8: int, batch: int, threads: int) -> None:
    options = {"isa": isa, "q8_activations": q8, "prompt_batch": batch, "threads": threads}
    with Model(moe) as model, Session(model, **options) as session:
        expected = one_by_one(session, TOKENS)
        session.reset()
        np.testing.assert_array_equal(session.decode_all(TOKENS), expected)
        np.testing.assert_array_equal(session.logits(), expected[-1])
        assert session.position == len(TOKENS)


@settings(max_examples=25)
@given(geometry=geometries(context=40), count=st.integers(1, 40), before=st.integers(0, 39))
def test_any_shape_from_any_position(
    tmp_path_factory: pytest.TempPathFactory, geometry: Geometry, count: int, before: int
) -> None:
    path = write_random_model(tmp_path_factory.mktemp("shape") / "m.cflow", geometry, 3)
    before = min(before, count - 1)
    with Model(path) as model, Session(model, threads=2, prompt_batch=8) as session:
        tokens = [token % model.vocab for token in TOKENS[:count]]
        expected = one_by_one(session, tokens)
        session.reset()
        for token in tokens[:before]:
            session.decode([token])
        np.testing.assert_array_equal(session.decode_all(tokens[before:]), expected[before:])


@pytest.mark.parametrize(
    "options", [{"residency": "copy"}, {"residency": "direct"}, {"stream_bytes": 1 << 20}]
)
def test_from_memory_and_from_disk(moe: Path, options: dict[str, int | str]) -> None:
    if "stream_bytes" in options:
        options = {**options, "residency": "direct"}
    with Model(moe) as model:
        with Session(model, threads=2) as session:
            expected = session.decode_all(TOKENS)
        with Session(model, threads=2, **options) as session:
            np.testing.assert_array_equal(session.decode_all(TOKENS), expected)


def test_decode_and_generate_afterwards_take_the_last_alone(moe: Path) -> None:
    with Model(moe) as model, Session(model, threads=2) as session:
        session.decode_all(TOKENS[:9])
        last = session.decode(TOKENS[9:20])
        head_bytes = session.counters()["head_bytes"]
        token = int(np.argmax(last))
        continuation = session.generate(token, 5)[0].tolist()
        session.reset()
        np.testing.assert_array_equal(session.decode(TOKENS[:20]), last)
        assert session.generate(token, 5)[0].tolist() == continuation
    with Model(moe) as model, Session(model, threads=2) as session:
        session.decode_all(TOKENS[:9])
        assert head_bytes == 2 * session.counters()["head_bytes"], "one load of the head per chunk"


def test_errors_come_before_anything_is_computed(moe: Path) -> None:
    with Model(moe) as model, Session(model, context=8, threads=1) as session:
        with pytest.raises(ContextError):
            session.decode_all(TOKENS[:9])
        with pytest.raises(ArgumentError, match="token 1 is 131; allowed: 0 to 130"):
            session.decode_all([1, 131])
        with pytest.raises(ArgumentError, match="cflow_session_decode_all: NULL argument or no tokens"):
            session.decode_all([])
        assert session.position == 0
        tokens = np.zeros(1, np.int32)
        status = lib().cflow_session_decode_all(
            session.handle, pointer("tokens", tokens, np.int32, 1), 1, ctypes.POINTER(ctypes.c_float)()
        )
        assert status == Status.ERR_ARGUMENT
        session.cancel()
        with pytest.raises(CancelledError):
            session.decode_all(TOKENS[:8])
        assert session.position == 0


@pytest.mark.parametrize("batch", [1, 16])
def test_a_logit_that_is_not_finite_ends_the_call(tmp_path: Path, batch: int) -> None:
    """A weight of the head is infinite: the first token meets it, and is named."""
    types = {role: Type.F32 if role in (Role.ROUTER, Role.HEAD) else Type.Q4_0 for role in Role}
    path = write_random_model(tmp_path / "m.cflow", Geometry.named("tiny_standard"), 6, types)
    with Model(path) as model:
        head = next(tensor for tensor in model.tensors if tensor.role is Role.HEAD)
    with path.open("r+b") as file:
        file.seek(head.offset)
        file.write(np.float32(np.inf).tobytes())
    with Model(path) as model, Session(model, threads=2, prompt_batch=batch) as session:
        with pytest.raises(NonFiniteError, match="token at position 0: the head gave a logit"):
            session.decode_all(TOKENS)
        assert session.position == 0
