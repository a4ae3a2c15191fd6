"""The material of claim 1: ids, routing, and which experts a trace says were loaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claims.experts import (
    GEMMA_LAYER,
    TEXT,
    ExpertBank,
    distinct_bytes,
    geometries,
    model_name,
    random_ids,
    routing_entropy,
    text_ids,
    traced_reads,
)
from claims.models import synthetic
from engine.errors import FileError
from engine.model import Model
from engine.session import Session
from engine.smollm2 import gguf_path

LABELS = tuple(geometries("smoke"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def model_of(folder: Path, label: str) -> Path:
    return synthetic(folder, model_name(label), geometries("smoke")[label])


@pytest.mark.parametrize("label", LABELS)
def test_routing_spreads_over_the_experts(folder: Path, label: str) -> None:
    geometry = geometries("smoke")[label]
    chosen: list[list[list[int]]] = [[] for _ in range(geometry.layers)]
    with Model(model_of(folder, label)) as model, Session(model, threads=1) as session:
        for token in random_ids(geometry.vocab, 200):
            session.decode([token])
            for layer, experts in enumerate(session.routing()[0]):
                chosen[layer].append([int(expert) for expert in experts])
    for of_layer in chosen:
        assert routing_entropy(of_layer, geometry.experts) > 0.9


@pytest.mark.parametrize("label", LABELS)
def test_output_is_neither_constant_nor_equal_for_two_prompts(folder: Path, label: str) -> None:
    vocab = geometries("smoke")[label].vocab
    with Model(model_of(folder, label)) as model, Session(model, threads=1) as session:
        logits, generated = [], []
        for seed in (1, 2):
            session.reset()
            prompt = np.random.default_rng(seed).integers(0, vocab, 8)
            logits.append(session.decode([int(token) for token in prompt]))
            generated.append(session.generate(int(np.argmax(logits[-1])), 12)[0].tolist())
    assert all(np.std(row) > 0.1 for row in logits)
    assert np.linalg.norm(logits[0] - logits[1]) > 0.5 * np.linalg.norm(logits[0])
    assert all(len(set(ids)) > 3 for ids in generated)
    assert generated[0] != generated[1]


@pytest.mark.parametrize("label", LABELS)
def test_loads_are_those_of_the_routed_experts_and_of_all_in_the_control(folder: Path, label: str) -> None:
    geometry = geometries("smoke")[label]
    with Model(model_of(folder, label)) as model:
        bank = ExpertBank(model)
        assert (bank.blocks, bank.experts) == (geometry.blocks, geometry.experts)
        with Session(model, threads=2) as session:
            for read in traced_reads(session, bank, [3, 700]):
                assert read.experts == read.routed
                assert len(read.experts) == geometry.experts_per_token
                assert read.bytes == geometry.experts_per_token * bank.expert_bytes
        with Session(model, threads=2, read_all_experts=True) as session:
            for read in traced_reads(session, bank, [3]):
                assert read.experts == tuple(range(geometry.experts))
                assert read.bytes == geometry.experts * bank.expert_bytes


def test_the_bank_ends_the_file(folder: Path) -> None:
    with Model(model_of(folder, "8 top-2")) as model:
        bank = ExpertBank(model)
        assert bank.offset % 4096 == 0
        assert all(t.offset < bank.offset for t in model.tensors if t.expert is None)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), max_size=12))
def test_distinct_bytes_are_those_of_the_union(ranges: list[tuple[int, int]]) -> None:
    touched = {byte for start, size in ranges for byte in range(start, start + size)}
    offsets = np.array([start for start, _ in ranges], np.uint64)
    sizes = np.array([size for _, size in ranges], np.uint64)
    assert distinct_bytes(offsets, sizes) == len(touched)


def test_entropy_of_even_uneven_and_constant_routing() -> None:
    assert routing_entropy([(0, 1), (2, 3)], 4) == pytest.approx(1.0)
    assert routing_entropy([(0, 1), (0, 1)], 4) == pytest.approx(0.5)
    assert routing_entropy([(2,), (2,)], 4) == 0.0


def test_ids_of_the_text_are_those_of_the_tokenizer_modulo_the_vocabulary(folder: Path) -> None:
    try:
        gguf_path()
    except FileError as error:
        pytest.skip(str(error))
    whole, cut = text_ids(folder, 1 << 31, 48), text_ids(folder, 2048, 48)
    assert cut == [token % 2048 for token in whole]
    assert len(set(whole)) > 24
    assert TEXT.read_text().startswith("The mill stood")


def test_the_gemma_layer_has_the_bytes_of_the_paper() -> None:
    routed = GEMMA_LAYER.experts_per_token * GEMMA_LAYER.expert_weights * 0.5
    assert routed / 1e6 == pytest.approx(23.79, abs=0.005)
    assert GEMMA_LAYER.experts * GEMMA_LAYER.expert_weights * 0.5 / 1e6 == pytest.approx(380.6, abs=0.05)
