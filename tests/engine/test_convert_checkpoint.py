"""Trained models to .cflow: what is stored equals what was trained, and what is wrong is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.checkpoint import TENSOR_NAMES, Checkpoint
from engine.convert_checkpoint import WeightClass, convert_checkpoint, parse_types
from engine.enums import Order, Role, Type
from engine.errors import ArgumentError, CflowError, FileError, FormatError, NonFiniteError
from engine.format import read_file
from engine.geometry import Geometry
from engine.model import Model
from engine.reference import Reference, load_weights
from engine.reference.quant import load_parts, load_vector
from engine.session import Session
from engine.tiles import TileShape, dequantise, quantise
from engine.tokenizer import Tokenizer
from tests.engine.checkpoints import TINY, CheckpointFolder
from tests.engine.models import geometries

F32 = dict.fromkeys(WeightClass, Type.F32)


def check_stored(path: Path, source: CheckpointFolder, types: dict[WeightClass, Type]) -> None:
    """Every tensor of the file against the one of the folder, quantised here."""
    file = read_file(path)
    class_of = {
        Role.ATTN_QKV: WeightClass.ATTENTION,
        Role.ATTN_OUTPUT: WeightClass.ATTENTION,
        Role.FFN_GATE_UP: WeightClass.DENSE,
        Role.FFN_DOWN: WeightClass.DENSE,
        Role.EXPERT_GATE_UP: WeightClass.EXPERT,
        Role.EXPERT_DOWN: WeightClass.EXPERT,
        Role.EMBEDDING: WeightClass.EMBEDDING,
        Role.HEAD: WeightClass.HEAD,
    }
    for entry in file.tensors:
        spec = entry.spec
        trained = [source.tensors[name.format(b=spec.block)] for name in TENSOR_NAMES[spec.role]]
        if spec.is_vector:
            np.testing.assert_array_equal(load_vector(file, entry, np.float32), trained[0])
            continue
        kind = types[class_of[spec.role]] if spec.role in class_of else Type.F32
        assert spec.kind is kind
        for matrix, stored in zip(trained, load_parts(file, entry, np.float32), strict=True):
            one = matrix if spec.expert is None else matrix[spec.expert]
            np.testing.assert_array_equal(stored.values, dequantise(quantise(one, kind), kind))


@settings(max_examples=30)
@given(
    geometry=geometries(context=16),
    kinds=st.tuples(*[st.sampled_from(Type)] * len(WeightClass)),
    tile=st.sampled_from([TileShape(), TileShape(16, 32), TileShape(48, 64)]),
    order=st.sampled_from(Order),
)
def test_any_shape_and_any_types(
    tmp_path_factory: pytest.TempPathFactory,
    geometry: Geometry,
    kinds: tuple[Type, ...],
    tile: TileShape,
    order: Order,
) -> None:
    folder = tmp_path_factory.mktemp("trained")
    geometry = replace(geometry, vocab=max(geometry.vocab, 2))
    source = CheckpointFolder(geometry)
    types = dict(zip(WeightClass, kinds, strict=True))
    done = convert_checkpoint(
        source.write(folder / "m"), folder / "m.cflow", types=types, tile_shape=tile, order=order
    )
    check_stored(folder / "m.cflow", source, types)
    file = read_file(folder / "m.cflow")
    file.verify()
    assert file.order is order
    assert file.hparams == replace(
        geometry.hyperparameters(tile.rows, tile.cols), bos=None, eos=geometry.vocab - 1
    )
    assert {error.weights for error in done.errors} == {
        weights
        for weights in WeightClass
        if not (weights is WeightClass.DENSE and geometry.ffn_hidden == 0)
        and not (weights is WeightClass.EXPERT and geometry.experts == 0)
        and not (weights is WeightClass.HEAD and geometry.tied)
    }


@pytest.mark.parametrize("name", TINY)
def test_the_engine_computes_the_trained_weights(tmp_path: Path, name: str) -> None:
    source = CheckpointFolder(TINY[name], name)
    path = tmp_path / "m.cflow"
    convert_checkpoint(source.write(tmp_path / "m"), path, types=F32)
    reference = Reference(load_weights(path))
    with Model(path) as model, Session(model, q8_activations=0, kv_f32=1) as session:
        assert model.name == name
        assert model.tokenizer_json is not None
        ids = Tokenizer.from_json(model.tokenizer_json).encode("She sat in the tent.")
        assert Tokenizer.from_json(model.tokenizer_json).decode(ids) == "She sat in the tent."
        for token in ids:
            expected = reference.decode([token])
            assert np.linalg.norm(session.decode([token]) - expected) < 1e-4 * np.linalg.norm(expected)


def test_errors_are_those_of_the_stored_values(tmp_path: Path) -> None:
    source = CheckpointFolder(TINY["arch4"])
    worst = source.tensors["blocks.2.moe.up"][3]
    worst[:, ::32] *= 8  # one large value a block makes its steps wide
    done = convert_checkpoint(
        source.write(tmp_path / "m"), tmp_path / "m.cflow", types={WeightClass.HEAD: Type.F32}
    )
    errors = {error.weights: error for error in done.errors}
    assert errors[WeightClass.HEAD].relative == 0
    stored = read_file(tmp_path / "m.cflow")
    squares = np.zeros(2)
    for entry in stored.tensors:
        if entry.spec.expert is None:
            continue
        names = [name.format(b=entry.spec.block) for name in TENSOR_NAMES[entry.spec.role]]
        for name, part in zip(names, load_parts(stored, entry, np.float64), strict=True):
            trained = source.tensors[name][entry.spec.expert].astype(np.float64)
            squares += np.sum((part.values - trained) ** 2), np.sum(trained**2)
    assert errors[WeightClass.EXPERT].relative == pytest.approx(np.sqrt(squares[0] / squares[1]))
    assert errors[WeightClass.EXPERT].worst == "blocks.2.moe.up[3]"
    assert errors[WeightClass.EXPERT].worst_relative > errors[WeightClass.EXPERT].relative
    assert 0.05 < errors[WeightClass.ATTENTION].relative < 0.12, "4 bits of normal weights"


# ---- bad input ----


def shorten(folder: Path, name: str) -> None:
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole[: len(whole) // 2])


Spoil = Callable[[CheckpointFolder], None]
SPOILT: dict[str, tuple[Spoil, type[CflowError], str]] = {
    "another width": (
        lambda s: s.config.update(d_model=96),
        FormatError,
        r"model.safetensors: tensor embedding.weight has shape \[300, 64\], config.json asks for \[300, 96\]",
    ),
    "more blocks": (
        lambda s: s.config.update(layers=5, blocks=5),
        FormatError,
        r"tensor blocks.4.attn_norm.weight is missing; config.json asks for \[64\]",
    ),
    "fewer blocks": (
        lambda s: s.config.update(layers=3, blocks=3),
        FormatError,
        "tensor blocks.3.attention.key.weight belongs to no part of the model that config.json",
    ),
    "a register too many": (
        lambda s: s.tensors.update({"blocks.0.register": np.zeros(64, np.float32)}),
        FormatError,
        "tensor blocks.0.register belongs to no part",
    ),
    "doubles": (
        lambda s: s.tensors.update({"head.weight": s.tensors["head.weight"].astype(np.float64)}),
        FormatError,
        "tensor head.weight is F64, must be F32",
    ),
    "NaN": (
        lambda s: s.tensors["blocks.1.moe.down"].__setitem__((2, 5, 7), np.nan),
        NonFiniteError,
        r"tensor blocks.1.moe.down, element \[2, 5, 7\], is not finite",
    ),
    "another tokenizer": (
        lambda s: setattr(
            s, "tokenizer_json", CheckpointFolder(replace(s.geometry, vocab=290)).tokenizer_json
        ),
        FormatError,
        "tokenizer.json: has 290 tokens, config.json says vocab = 300: it is the tokenizer of another model",
    ),
    "another end of text": (
        lambda s: s.config.update(eos=0),
        FormatError,
        r"<\|endoftext\|> has id 299, config.json says eos = 0",
    ),
    "no tokenizer": (
        lambda s: setattr(s, "tokenizer_json", "{}"),
        FormatError,
        "tokenizer.json: cannot be read",
    ),
    "no number": (lambda s: s.config.update(layers="4"), FormatError, "layers is '4', must be an integer"),
    "no truth": (lambda s: s.config.update(tied=1), FormatError, "tied is 1, must be true or false"),
    "no word": (
        lambda s: s.config.update(route="next"),
        FormatError,
        "route is 'next', must be one of current, pre_dense",
    ),
    "no field": (lambda s: s.config.pop("vocab"), FormatError, "vocab is None, must be an integer"),
    "an unknown field": (lambda s: s.config.update(dropout=0.1), FormatError, "field dropout is unknown"),
    "a number beyond floats": (
        lambda s: s.config.update(eps=10**400),
        FormatError,
        "config.json: eps is 1000000",
    ),
    "a number beyond float32": (
        lambda s: s.config.update(rope_base=1e300),
        FormatError,
        "config.json: rope_base is inf",
    ),
    "half of a surrogate pair": (
        lambda s: s.config.update(name="\ud800"),
        FormatError,
        "config.json: name is '.ud800', must be a text of valid Unicode",
    ),
    "an odd width": (lambda s: s.config.update(d_model=65), FormatError, "d_model is 65, must be a multiple"),
    "a delay of arch1": (
        lambda s: s.config.update(architecture="two_stream"),
        FormatError,
        "must be 0, 0 and current for two_stream",
    ),
    "biases": (lambda s: s.config.update(qkv_bias=True), FormatError, "qkv_bias is true, must be false"),
    "an id outside": (
        lambda s: s.config.update(eos=300),
        FormatError,
        "eos is 300, must be below vocab = 300",
    ),
    "another format": (
        lambda s: s.config.update(format="llama"),
        FormatError,
        "format is 'llama', must be 'cflow-architectures'",
    ),
    "a later version": (lambda s: s.config.update(version=2), FormatError, "version is 2, must be 1"),
}


@pytest.mark.parametrize("fault", SPOILT)
def test_bad_folders_are_refused_and_leave_nothing(tmp_path: Path, fault: str) -> None:
    spoil, error, words = SPOILT[fault]
    source = CheckpointFolder(TINY["arch2_4_combined"])
    spoil(source)
    folder = source.write(tmp_path / "m")
    (tmp_path / "out").mkdir()
    with pytest.raises(error, match=words):
        convert_checkpoint(folder, tmp_path / "out" / "m.cflow")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_partial_folders(tmp_path: Path, name: str) -> None:
    folder = CheckpointFolder(TINY["arch4"]).write(tmp_path / "m")
    shorten(folder, name)
    with pytest.raises(FormatError, match=f"m/{name}: "):
        convert_checkpoint(folder, tmp_path / "m.cflow")
    (folder / name).unlink()
    with pytest.raises(FileError, match=f"m: {name} missing; a trained model has config.json"):
        convert_checkpoint(folder, tmp_path / "m.cflow")
    assert list(tmp_path.iterdir()) == [folder]


def test_config_that_is_no_object(tmp_path: Path) -> None:
    folder = CheckpointFolder(TINY["arch4"]).write(tmp_path / "m")
    (folder / "config.json").write_text(json.dumps([1]))
    with pytest.raises(FormatError, match=r"config.json: is a JSON list, must be an object"):
        convert_checkpoint(folder, tmp_path / "m.cflow")


def test_config_that_is_nested_too_deeply(tmp_path: Path) -> None:
    folder = CheckpointFolder(TINY["arch4"]).write(tmp_path / "m")
    (folder / "config.json").write_text(100_000 * "[")
    with pytest.raises(FormatError, match=r"config.json: is not JSON: maximum recursion"):
        Checkpoint(folder)


def test_a_weight_beyond_the_scales_of_its_type_names_the_folder(tmp_path: Path) -> None:
    source = CheckpointFolder(TINY["arch4"])
    source.tensors["head.weight"][0, 0] = 1e30
    folder = source.write(tmp_path / "m")
    with pytest.raises(NonFiniteError, match=r"/m: head"):
        convert_checkpoint(folder, tmp_path / "m.cflow")
    assert list(tmp_path.iterdir()) == [folder]


def test_types_by_class() -> None:
    assert parse_types("f16") == dict.fromkeys(WeightClass, Type.F16)
    assert parse_types("q8_0, head=f16,expert=q4_1") == {
        **dict.fromkeys(WeightClass, Type.Q8_0),
        WeightClass.HEAD: Type.F16,
        WeightClass.EXPERT: Type.Q4_1,
    }
    assert parse_types("attention=f32")[WeightClass.DENSE] is Type.Q4_0
    for wrong in ("router=f32", "q4_0,f16", "head=", "", "q3"):
        with pytest.raises(ArgumentError):
            parse_types(wrong)
