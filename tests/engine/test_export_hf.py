"""The folder for other engines against the values of the model, read by the safetensors library."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine import part_rows, pending
from engine.enums import Activation, Type
from engine.errors import ChecksumError, FileError, UnsupportedError
from engine.export_hf import CONFIG, WEIGHTS, export_hf
from engine.format import read_file
from engine.geometry import Geometry
from engine.hf_forms import HfForm, bf16_bits, bf16_values, encode
from engine.reference.quant import Matrix
from engine.reference.weights import load_weights
from tests.engine.models import write_random_model

DENSE = Geometry.parse(
    "d=128,heads=2,kv_heads=1,head_dim=64,ffn=256,layers=2,vocab=131,activation=swiglu,eps=1e-5"
)
Array = NDArray[Any]

_TYPES = {"BF16": np.uint16, "F32": np.float32, "I8": np.int8, "I32": np.int32, "I64": np.int64}


def read_folder(folder: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """config.json, and the tensors; bfloat16 as float32."""
    tensors = {}
    for name, found in safetensors.deserialize((folder / WEIGHTS).read_bytes()):
        array = np.frombuffer(found["data"], _TYPES[found["dtype"]]).reshape(found["shape"])
        tensors[name] = bf16_values(array) if found["dtype"] == "BF16" else array
    return json.loads((folder / CONFIG).read_text()), tensors


def expected(path: Path) -> dict[str, Array]:
    """Values by the loaders' names, from the reference's own reader."""
    weights = load_weights(path, np.float32)
    found: dict[str, Array | Matrix] = {
        "model.embed_tokens": weights.embedding,
        "model.norm": weights.output_norm,
    }
    if weights.head is not weights.embedding:
        found["lm_head"] = weights.head
    for index, block in enumerate(weights.blocks):
        assert block.dense is not None and block.ffn_norm is not None
        layer: dict[str, Array | Matrix] = {
            "input_layernorm": block.attn_norm,
            "post_attention_layernorm": block.ffn_norm,
            "self_attn.q_proj": block.query,
            "self_attn.k_proj": block.key,
            "self_attn.v_proj": block.value,
            "self_attn.o_proj": block.output,
            "mlp.gate_proj": block.dense.gate,
            "mlp.up_proj": block.dense.up,
            "mlp.down_proj": block.dense.down,
        }
        if block.query_norm is not None and block.key_norm is not None:
            layer |= {"self_attn.q_norm": block.query_norm, "self_attn.k_norm": block.key_norm}
        found |= {f"model.layers.{index}.{name}": value for name, value in layer.items()}
    return {name: value.values if isinstance(value, Matrix) else value for name, value in found.items()}


def unpack_int4(words: Array) -> Array:
    """Codes -8..7, int [rows, columns], of int32 words, the first column in the lowest bits."""
    shifts = np.arange(0, 32, 4, dtype=np.uint32)
    codes = (words.view(np.uint32)[..., None] >> shifts) & np.uint32(15)
    return codes.reshape(words.shape[0], -1).astype(np.int64) - 8


@st.composite
def dense_geometries(draw: st.DrawFn) -> Geometry:
    """Any shape that the loaders know, with columns for int4's groups."""
    kv_heads = draw(st.integers(1, 2))
    layers = draw(st.integers(1, 2))
    return Geometry(
        layers=layers,
        blocks=layers,
        d_model=128 * draw(st.integers(1, 2)),
        heads=2 * kv_heads,
        kv_heads=kv_heads,
        head_dim=draw(st.sampled_from([64, 128])),
        ffn_hidden=128 * draw(st.integers(1, 3)),
        vocab=draw(st.integers(1, 99)),
        context=16,
        activation=Activation.SWIGLU,
        tied=draw(st.booleans()),
        qk_norm=draw(st.booleans()),
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=20)
@given(
    geometry=dense_geometries(),
    kind=st.sampled_from(Type),
    form=st.sampled_from(HfForm),
    tile_rows=st.sampled_from([16, 128]),
    band_bytes=st.sampled_from([1, 4 << 20]),
)
def test_every_value_is_that_of_the_model(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    geometry: Geometry,
    kind: Type,
    form: HfForm,
    tile_rows: int,
    band_bytes: int,
) -> None:
    source = write_random_model(
        tmp_path / "m.cflow", geometry, 5, kind, tile_rows=tile_rows, qk_norm=geometry.qk_norm
    )
    with monkeypatch.context() as patch:
        patch.setattr(part_rows, "BAND_BYTES", band_bytes)
        done = export_hf(source, tmp_path / "m", form)
    config, tensors = read_folder(tmp_path / "m")
    assert done.tensors == len(tensors)
    for name, values in expected(source).items():
        plain = values.ndim == 1 or name == "model.embed_tokens" or form is HfForm.BF16
        if plain:
            found = tensors.pop(f"{name}.weight")
            np.testing.assert_array_equal(found, bf16_values(bf16_bits(values)), err_msg=name)
            continue
        if form is HfForm.INT8:
            codes, scales = tensors.pop(f"{name}.weight"), tensors.pop(f"{name}.weight_scale")
        else:
            codes = unpack_int4(tensors.pop(f"{name}.weight_packed"))
            scales = np.repeat(tensors.pop(f"{name}.weight_scale"), 128, axis=1)
            assert tensors.pop(f"{name}.weight_shape").tolist() == list(values.shape)
        # A code at the end of its range stands for up to half a step more, and bf16 rounds an int4 scale.
        error = np.abs(codes * scales - values)
        assert (error <= 0.51 * scales + np.abs(values) / 256).all(), name
    assert not tensors
    assert config["tie_word_embeddings"] is geometry.tied


def test_bf16_rounds_to_nearest_even() -> None:
    values = np.array([1.0, 1.0 + 2**-8, 1.0 + 3 * 2**-8, 1.0 + 2**-8 + 2**-20, -2.5, 0.0], np.float32)
    rounded = [1.0, 1.0, 1.0 + 2**-6, 1.0 + 2**-7, -2.5, 0.0]
    assert bf16_values(bf16_bits(values)).tolist() == rounded


def test_the_largest_weights_use_the_whole_range(tmp_path: Path) -> None:
    """Else half of the codes could be lost without any other test that sees it."""
    source = write_random_model(tmp_path / "m.cflow", DENSE, 5, Type.F32)
    export_hf(source, tmp_path / "int4", HfForm.INT4)
    export_hf(source, tmp_path / "int8", HfForm.INT8)
    _, int4 = read_folder(tmp_path / "int4")
    _, int8 = read_folder(tmp_path / "int8")
    groups = unpack_int4(int4["lm_head.weight_packed"]).reshape(-1, 128)
    assert np.abs(groups).max(axis=1).min() >= 7
    assert np.abs(int8["lm_head.weight"].astype(int)).max(axis=1).min() >= 127


def test_a_row_of_zeros_stays_zero() -> None:
    for form in HfForm:
        weights, scales = encode(np.zeros((2, 128), np.float32), form)
        assert set(weights.tolist()) == ({0x88} if form is HfForm.INT4 else {0})
        assert scales.any() or form is HfForm.BF16


def test_sizes_are_those_of_the_file(tmp_path: Path) -> None:
    source = write_random_model(tmp_path / "m.cflow", DENSE, 5)
    done = export_hf(source, tmp_path / "m", HfForm.BF16)
    _, tensors = read_folder(tmp_path / "m")
    values = sum(array.size for array in tensors.values())
    assert done.weight_bytes == 2 * values
    assert done.bytes_per_token == 2 * (values - 130 * 128)
    tied = write_random_model(tmp_path / "t.cflow", replace(DENSE, tied=True), 5)
    assert export_hf(tied, tmp_path / "t", HfForm.BF16).bytes_per_token == 2 * (values - 130 * 128)


@pytest.mark.parametrize(
    ("extra", "architecture"), [("", "LlamaForCausalLM"), (",qkv_bias=1", "Qwen2ForCausalLM")]
)
def test_config_names_what_the_model_is(tmp_path: Path, extra: str, architecture: str) -> None:
    geometry = Geometry.parse(f"tiny_dense,d=128,heads=2,kv_heads=1,head_dim=64,ffn=128,tied=0{extra}")
    source = write_random_model(tmp_path / "m.cflow", geometry, 5, qkv_bias=geometry.qkv_bias)
    done = export_hf(source, tmp_path / "m", HfForm.INT4)
    config, tensors = read_folder(tmp_path / "m")
    assert config["architectures"] == [architecture] == [done.architecture]
    assert (config["hidden_size"], config["num_key_value_heads"], config["vocab_size"]) == (128, 1, 131)
    assert config["quantization_config"]["config_groups"]["group_0"]["weights"]["group_size"] == 128
    biases = [name for name in tensors if name.endswith(".bias")]
    assert len(biases) == (12 if geometry.qkv_bias else 0)
    if geometry.qkv_bias:
        stored = load_weights(source, np.float32).blocks[1].qkv_bias
        parts = [tensors[f"model.layers.1.self_attn.{part}_proj.bias"] for part in "qkv"]
        assert stored is not None
        np.testing.assert_array_equal(np.concatenate(parts), bf16_values(bf16_bits(stored)))


@pytest.mark.parametrize(
    ("geometry", "form", "sentence"),
    [
        ("tiny_moe", HfForm.BF16, r"m\.cflow: has 4 experts, only dense models"),
        ("tiny_dense,dd=1", HfForm.BF16, r"dense_delay is 1"),
        ("tiny_dense", HfForm.INT4, r"blk\.0\.attn_qkv has 64 columns, int4 needs a multiple of 128"),
        ("tiny_dense,heads=8,qkv_bias=1", HfForm.BF16, r"heads \* head_dim is 128, .* d_model = 64"),
    ],
)
def test_what_cannot_run_is_named(tmp_path: Path, geometry: str, form: HfForm, sentence: str) -> None:
    shape = Geometry.parse(geometry)
    source = write_random_model(tmp_path / "m.cflow", shape, 5, qkv_bias=shape.qkv_bias)
    with pytest.raises(UnsupportedError, match=sentence):
        export_hf(source, tmp_path / "m", form)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.cflow"]


def test_an_earlier_export_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    source = write_random_model(tmp_path / "m.cflow", DENSE, 5)
    target = tmp_path / "m"
    export_hf(source, target, HfForm.INT8)
    export_hf(source, target, HfForm.BF16)
    assert "quantization_config" not in read_folder(target)[0]
    (target / "notes.txt").write_text("mine")
    with pytest.raises(FileError, match=r"is not replaced: it holds notes\.txt"):
        export_hf(source, target, HfForm.INT8)
    with pytest.raises(FileError, match=r"exists and is no folder"):
        export_hf(source, source, HfForm.INT8)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m", "m.cflow"]


def test_damage_and_a_full_disk_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_random_model(tmp_path / "m.cflow", DENSE, 5)
    last = read_file(source).tensors[-1]
    with source.open("r+b") as file:
        file.seek(last.offset)
        file.write(b"\xff")
    with pytest.raises(ChecksumError, match=last.spec.name):
        export_hf(source, tmp_path / "m", HfForm.BF16)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.cflow"]
    monkeypatch.setattr(
        pending.os, "statvfs", lambda _: type("State", (), {"f_bavail": 1, "f_frsize": 512})()
    )
    with pytest.raises(FileError, match=r"the file system has 512 bytes free"):
        export_hf(source, tmp_path / "m", HfForm.BF16)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.cflow"]
