"""The pinned traces of the parity claim: whole, and equal to the NumPy reference, another implementation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from claims.parity_cells import choice_cell, logits_cell
from claims.parity_trace import EXACT, PINNED, SIX, TEXT_TOKENS, Trace, observe
from claims.trained import text_tokens, trained_models
from engine.convert_checkpoint import convert_checkpoint
from engine.errors import FileError
from engine.geometry import GEOMETRIES
from engine.model import Model
from engine.perplexity import negative_log_probabilities
from engine.reference import Reference, load_weights
from engine.tokenizer import Tokenizer
from tests.engine.checkpoints import TINY, CheckpointFolder

TEXT = Path(__file__).resolve().parents[2] / "claims" / "text.txt"


@pytest.fixture(scope="module", params=SIX)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_trace_is_whole_and_of_its_architecture(name: str) -> None:
    trace = Trace.load(PINNED / f"{name}.npz")
    assert len(trace.tokens) == TEXT_TOKENS + 1
    for array in (trace.choices, trace.top_gaps, trace.router_gaps, trace.nats):
        assert array.shape == (TEXT_TOKENS,)
    assert len(trace.positions) == len(trace.norms) == len(trace.logits) == 64
    np.testing.assert_array_equal(trace.logits.argmax(axis=1), trace.choices[trace.positions])
    np.testing.assert_allclose(
        negative_log_probabilities(trace.logits, trace.tokens[trace.positions + 1].astype(np.int64)),
        trace.nats[trace.positions],
    )
    with Model(PINNED / f"{name}.cflow") as model:
        model.verify()
        assert model.name == name
        words = Tokenizer.from_json(str(model.tokenizer_json)).decode(trace.tokens.tolist())
        shape, named = model.params, GEOMETRIES[name].hyperparameters()
    assert TEXT.read_text(encoding="utf-8").startswith(words)
    for field in ("layers", "blocks", "architecture", "dense_delay", "expert_delay", "route", "activation"):
        assert shape[field] == int(getattr(named, field)), field
    assert np.exp(trace.nats.mean()) < 60, "it has learnt something: 257 tokens"


def test_the_reference_agrees_with_pytorch(name: str) -> None:
    trace = Trace.load(PINNED / f"{name}.npz")
    reference = Reference(load_weights(PINNED / f"{name}.cflow"))
    for position, token in enumerate(trace.tokens[:17].tolist()):
        logits = reference.decode([token])
        assert int(np.argmax(logits)) == trace.choices[position]
        if position % 8 == 0:
            theirs = trace.logits[position // 8]
            assert np.linalg.norm(logits - theirs) < 1e-5 * np.linalg.norm(theirs)
            np.testing.assert_allclose(reference.residual_norms, trace.norms[position // 8], rtol=1e-5)


def test_near_ties_alone_are_left_out() -> None:
    trace = Trace.load(PINNED / "arch4.npz").first(24)
    ours = observe(PINNED / "arch4.cflow", trace, **EXACT)
    assert choice_cell("arch4", trace, ours).value == 0
    wrong = ours.choices.copy()
    wrong[[3, 5, 7]] += 1
    gaps = trace.top_gaps.copy(), trace.router_gaps.copy()
    gaps[0][3], gaps[1][5] = 0.9e-4, 0.9e-4
    gaps[0][7] = 1.1e-4
    tied = replace(trace, top_gaps=gaps[0], router_gaps=gaps[1])
    cell = choice_cell("arch4", tied, replace(ours, choices=wrong))
    assert cell.value == 1
    assert cell.inputs["exempt"] == "3, 5"
    errors = ours.errors.copy()
    errors[1] = 0.5
    assert logits_cell("arch4", trace, replace(ours, errors=errors)).value == 0.5


# ---- --trained DIR ----


def test_trained_models_of_one_folder_and_of_many(tmp_path: Path) -> None:
    for folder, kind in (("a_seed0", "arch1"), ("b_seed0", "arch4"), ("b_seed1", "arch4")):
        CheckpointFolder(TINY[kind], kind).write(tmp_path / "runs" / folder)
    (tmp_path / "runs" / "unfinished").mkdir()
    many = trained_models(tmp_path / "runs", tmp_path / "cache")
    assert sorted(many) == ["arch1", "arch4"]
    one = trained_models(tmp_path / "runs" / "b_seed0", tmp_path / "cache")
    assert one == {"arch4": many["arch4"]}, "the first of a name, cached"
    convert_checkpoint(tmp_path / "runs" / "b_seed0", tmp_path / "again.cflow")
    assert (tmp_path / "again.cflow").read_bytes() == many["arch4"].read_bytes()
    with pytest.raises(FileError, match="--trained .*: no folder of a trained model"):
        trained_models(tmp_path / "cache", tmp_path / "cache")


def test_the_text_is_long_enough_or_refused(tmp_path: Path) -> None:
    folder = CheckpointFolder(TINY["arch4"], "arch4").write(tmp_path / "m")
    path = trained_models(folder, tmp_path)["arch4"]
    assert len(text_tokens(path, TEXT_TOKENS + 1)) == TEXT_TOKENS + 1
    with pytest.raises(FileError, match=r"have \d+ of its tokens, 100000 are needed"):
        text_tokens(path, 100_000)
