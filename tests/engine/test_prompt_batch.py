"""Prompts in chunks: the bits of token-by-token decode, and what counters, trace and errors say of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.enums import Isa, Option, Param, Role, Stream, Type
from engine.errors import ArgumentError, CancelledError, ContextError, NonFiniteError
from engine.geometry import Geometry
from engine.kernels import isa_supported
from engine.model import Model
from engine.session import Session
from tests.engine.models import geometries, write_random_model

ISAS = [isa for isa in Isa if isa_supported(isa)]
TOKENS = [int(token) for token in np.random.default_rng(0).integers(0, 1 << 30, 80)]
NAMES = ["tiny_standard", "tiny_dense", "tiny_arch1", "tiny_arch2_4_combined", "tiny_arch3", "tiny_arch4"]
QUANTISED = (Type.Q4_0, Type.Q4_1, Type.Q8_0)


class State:
    """What a session tells about its last token, and the logits of one more, which reads the whole cache."""

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


@settings(max_examples=40)
@given(
    geometry=geometries(context=80),
    kind=st.sampled_from(QUANTISED),
    tile=st.sampled_from([(128, 256), (16, 32), (48, 64)]),
    bias=st.booleans(),
    count=st.integers(2, 79),
    before=st.integers(0, 40),
    batch=st.integers(2, 32),
    threads=st.integers(1, 6),
    read_all=st.integers(0, 1),
)
def test_any_shape_and_any_chunk(
    tmp_path_factory: pytest.TempPathFactory,
    geometry: Geometry,
    kind: Type,
    tile: tuple[int, int],
    bias: bool,
    count: int,
    before: int,
    batch: int,
    threads: int,
    read_all: int,
) -> None:
    path = tmp_path_factory.mktemp("shape") / "m.cflow"
    types = {role: Type.F32 if role is Role.ROUTER else kind for role in Role}
    write_random_model(path, geometry, 3, types, *tile, qkv_bias=bias)
    with Model(path) as model:
        prompt = prompt_of(model, count)
        expected = State(model, prompt, threads=1, prompt_batch=1, read_all_experts=read_all)
        chunked = State(
            model,
            prompt,
            before=min(before, count - 1),
            threads=threads,
            prompt_batch=batch,
            read_all_experts=read_all,
        )
        chunked.assert_equal(expected)


# ---- what is counted ----


@pytest.fixture(scope="module")
def standard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    path = write_random_model(
        tmp_path_factory.mktemp("standard") / "m.cflow", Geometry.named("tiny_standard"), seed=4
    )
    with Model(path) as opened:
        yield opened


@pytest.mark.parametrize("threads", [1, 3])
def test_bytes_are_those_of_one_pass_per_chunk(standard: Model, threads: int) -> None:
    prompt = prompt_of(standard, 24)
    with Session(standard, threads=threads, prompt_batch=8) as session:
        session.trace(1 << 14)
        session.decode(prompt)
        counters = session.counters()
        records = np.concatenate([session.trace_records(thread) for thread in range(threads)])
        phases = session.phase_count
        once = dict.fromkeys(Stream, 0)
        for piece in session.schedule():
            once[piece.stream] += piece.bytes
    assert counters["tokens"] == 24
    assert counters["phases"] == 3 * (phases - 1) + 1
    for stream in (Stream.ATTENTION, Stream.DENSE, Stream.ROUTER):
        assert counters[f"{stream.name.lower()}_bytes"] == 3 * once[stream]
    assert counters["head_bytes"] == once[Stream.HEAD]
    names = ("attention", "dense", "expert", "router", "head")
    assert int(records[:, 1].sum()) == sum(counters[f"{name}_bytes"] for name in names)
    with Session(standard, threads=threads, prompt_batch=1) as session:
        session.decode(prompt)
        single = session.counters()
    assert counters["kv_bytes"] == single["kv_bytes"]
    assert counters["embedding_bytes"] == single["embedding_bytes"]
    assert counters["wall_ns"] > 0


def test_a_chunk_reads_each_chosen_expert_once(standard: Model) -> None:
    prompt = prompt_of(standard, 12)
    chosen = set()
    with Session(standard, threads=2, prompt_batch=1) as session:
        for token in prompt:
            session.decode([token])
            experts, _ = session.routing()
            chosen |= {(layer, int(expert)) for layer, row in enumerate(experts) for expert in row}
    with Session(standard, threads=2, prompt_batch=12) as session:
        session.trace(1 << 14)
        session.decode(prompt)
        records = np.concatenate([session.trace_records(thread) for thread in range(2)])
        expert_bytes = session.counters()["expert_bytes"]
    starts = {t.offset: (t.block, t.expert) for t in standard.tensors if t.expert is not None}
    sizes = {
        owner: sum(t.bytes for t in standard.tensors if (t.block, t.expert) == owner)
        for owner in starts.values()
    }
    offsets = np.array(sorted(starts))
    inside = records[np.isin(records[:, 3], _expert_phases(standard))]
    read = {starts[int(offsets[np.searchsorted(offsets, at, "right") - 1])] for at in inside[:, 0]}
    assert read == chosen
    assert expert_bytes == sum(sizes[owner] for owner in chosen)
    assert len({(int(at), int(size)) for at, size in inside[:, :2]}) == len(inside), "nothing twice"


def _expert_phases(model: Model) -> list[int]:
    with Session(model) as session:
        return sorted({piece.phase for piece in session.schedule() if piece.stream is Stream.EXPERT})


# ---- limits and errors ----


def test_the_option_is_reported_as_it_acts(standard: Model) -> None:
    with Session(standard) as session:
        assert session.option(Option.PROMPT_BATCH) == 32
    with Session(standard, context=7) as session:
        assert session.option(Option.PROMPT_BATCH) == 7
    for wrong in (0, 33):
        with pytest.raises(ArgumentError, match=f"option prompt_batch is {wrong}; allowed: 1 to 32"):
            Session(standard, prompt_batch=wrong)


def test_memory_for_chunks_is_taken_only_when_wanted(standard: Model) -> None:
    sizes = []
    for batch in (1, 2, 32):
        with Session(standard, threads=1, prompt_batch=batch) as session:
            sizes.append(session.memory_bytes()[1])
    assert sizes[0] < sizes[1] <= sizes[2]


def test_a_prompt_that_fills_the_context(standard: Model) -> None:
    with Session(standard, context=33, threads=2) as session:
        session.decode(prompt_of(standard, 33))
        assert session.position == 33
        with pytest.raises(ContextError):
            session.decode([1])


def test_cancelled_between_chunks_or_inside(standard: Model) -> None:
    with Session(standard, context=48, prompt_batch=8) as session:
        session.cancel()
        with pytest.raises(CancelledError, match="cancelled after 0 of 40 tokens"):
            session.decode(prompt_of(standard, 40))
        assert session.position == 0
        session.decode(prompt_of(standard, 40))
        assert session.position == 40


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("bad", [0, 3, 20, 36])
def test_a_nonfinite_value_names_its_token(
    tmp_path_factory: pytest.TempPathFactory, bad: int, threads: int
) -> None:
    """One row of the embedding is infinite: the token that uses it is named, and those before it stand."""
    path = tmp_path_factory.mktemp("bad") / "m.cflow"
    types = {role: Type.F32 if role in (Role.ROUTER, Role.EMBEDDING) else Type.Q4_0 for role in Role}
    write_random_model(path, Geometry.named("tiny_standard"), 6, types)
    with Model(path) as model:
        embedding = next(tensor for tensor in model.tensors if tensor.role is Role.EMBEDDING)
        prompt = [token % (model.vocab - 1) for token in TOKENS[:37]]
        poison = model.vocab - 1
    _make_infinite(path, embedding.offset, poison, 64)
    with Model(path) as model, Session(model, threads=threads, prompt_batch=16) as session:
        expected = session.decode(prompt)
        session.reset()
        poisoned = [*prompt[:bad], poison, *prompt[bad + 1 :]]
        with pytest.raises(NonFiniteError, match=f"token at position {bad}: .* layer 0 of 4"):
            session.decode(poisoned)
        assert session.position == bad
        np.testing.assert_array_equal(session.decode(prompt[bad:]), expected)


def _make_infinite(path: Path, offset: int, row: int, columns: int) -> None:
    """Sets one value of a row of an f32 matrix in tiles of 128 x 256, at most 256 columns wide."""
    with path.open("r+b") as file:
        file.seek(offset + (row // 16 * columns * 16 + row % 16) * 4)
        file.write(np.float32(np.inf).tobytes())
