""".cflow to GGUF and back: the same bytes, whatever the tiles, types and shapes."""

from __future__ import annotations

import os
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import part_rows
from engine.convert_gguf import convert
from engine.enums import Activation, Role, Type
from engine.errors import ChecksumError, FileError, UnsupportedError
from engine.export_gguf import architecture_of, export
from engine.format import read_file
from engine.geometry import Geometry
from engine.gguf_source import GgufSource
from engine.synth import synthesise
from engine.tiles import TileShape
from tests.engine.gguf_files import RELATIVES, LlamaGguf
from tests.engine.models import write_random_model

DENSE = "d=96,heads=2,kv_heads=1,head_dim=48,ffn=224,layers=2,vocab=131,activation=swiglu,eps=1e-5"
MOE = DENSE + ",ffn=0,experts=3,top_k=2,expert_hidden=64"


@pytest.mark.parametrize("kind", list(Type))
@pytest.mark.parametrize(
    ("geometry", "architecture"),
    [
        (DENSE, "llama"),
        (DENSE + ",tied=1", "llama"),
        (MOE, "llama"),
        (MOE + ",qkv_bias=1", "llama"),
        (DENSE + ",qkv_bias=1", "qwen2"),
        (DENSE + ",qk_norm=1", "qwen3"),
        (MOE + ",qk_norm=1", "qwen3moe"),
    ],
)
def test_convert_gives_the_model_back(tmp_path: Path, geometry: str, architecture: str, kind: Type) -> None:
    """Bands of one stripe (64 rows, that heads of 48 cross); the last one narrower than the others."""
    source, target, back = (tmp_path / name for name in ("m.cflow", "m.gguf", "back.cflow"))
    synthesise(source, Geometry.parse(geometry), 3, kind.name.lower(), tile_rows=64, tile_cols=64, name="m")
    done = export(source, target)
    assert (done.architecture, done.file_bytes) == (architecture, target.stat().st_size)
    convert(target, back, tile_shape=TileShape(64, 64))
    assert back.read_bytes() == source.read_bytes()


@st.composite
def geometries(draw: st.DrawFn) -> Geometry:
    """Any shape that GGUF can describe."""
    kv_heads = draw(st.integers(1, 3))
    heads = kv_heads * draw(st.integers(1, 3))
    head_dim = draw(st.sampled_from([32, 64, 96]))
    experts = draw(st.sampled_from([0, 1, 3]))
    layers = draw(st.integers(1, 2))
    bias, norm = draw(st.sampled_from([(False, False), (True, False), (False, True)]))
    return Geometry(
        layers=layers,
        blocks=layers,
        d_model=32 * draw(st.integers(1, 4)),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn_hidden=0 if experts else 32 * draw(st.integers(1, 5)),
        vocab=draw(st.integers(1, 99)),
        context=16,
        experts=experts,
        experts_per_token=min(experts, 2),
        expert_hidden=32 * draw(st.integers(1, 3)) if experts else 0,
        activation=Activation.SWIGLU,
        tied=draw(st.booleans()),
        qkv_bias=bias,
        qk_norm=norm,
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25)
@given(
    geometry=geometries(),
    kind=st.sampled_from(Type),
    tile_rows=st.sampled_from([16, 48, 128]),
    tile_cols=st.sampled_from([32, 96, 256]),
    band_bytes=st.sampled_from([1, 4 << 20]),
)
def test_any_shape_comes_back(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    geometry: Geometry,
    kind: Type,
    tile_rows: int,
    tile_cols: int,
    band_bytes: int,
) -> None:
    source, target, back = (tmp_path / name for name in ("m.cflow", "m.gguf", "back.cflow"))
    synthesise(source, geometry, 3, kind.name.lower(), tile_rows=tile_rows, tile_cols=tile_cols, name="m")
    with monkeypatch.context() as patch:
        patch.setattr(part_rows, "BAND_BYTES", band_bytes)
        export(source, target)
    convert(target, back, tile_shape=TileShape(tile_rows, tile_cols))
    assert back.read_bytes() == source.read_bytes()


def test_bands_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "m.cflow"
    synthesise(source, Geometry.parse(DENSE), 3, tile_rows=16, tile_cols=32)
    export(source, tmp_path / "whole.gguf")
    monkeypatch.setattr(part_rows, "BAND_BYTES", 1)
    export(source, tmp_path / "bands.gguf")
    assert (tmp_path / "whole.gguf").read_bytes() == (tmp_path / "bands.gguf").read_bytes()


@pytest.mark.parametrize("align_bytes", [64, 4096])
def test_tensors_can_begin_on_pages(tmp_path: Path, align_bytes: int) -> None:
    source, target, back = (tmp_path / name for name in ("m.cflow", "m.gguf", "back.cflow"))
    synthesise(source, Geometry.parse(MOE), 3, name="m")
    export(source, target, align_bytes=align_bytes)
    tensors = gguf.GGUFReader(target).tensors
    assert all(tensor.data_offset % align_bytes == 0 for tensor in tensors)
    convert(target, back)
    assert back.read_bytes() == source.read_bytes()


@pytest.mark.parametrize("relative", [name for name in RELATIVES if name != "llama with biases"])
def test_a_gguf_comes_back_block_for_block(tmp_path: Path, relative: str) -> None:
    model = LlamaGguf(**RELATIVES[relative])
    source = model.write(tmp_path / "m.gguf")
    convert(source, tmp_path / "m.cflow")
    export(tmp_path / "m.cflow", tmp_path / "back.gguf")
    reader = gguf.GGUFReader(tmp_path / "back.gguf")
    assert {tensor.name for tensor in reader.tensors} == set(model.tensors)
    for tensor in reader.tensors:
        kind, data = model.tensors[tensor.name]
        assert tensor.tensor_type == kind
        np.testing.assert_array_equal(tensor.data, data, err_msg=tensor.name)
    for key, value in model.metadata.items():
        if key.startswith(f"{model.architecture}."):
            assert reader.fields[key].contents() == pytest.approx(value), key


def test_a_dense_llama_with_biases_comes_back_as_qwen2(tmp_path: Path) -> None:
    """Another architecture, whose rows have another order: the same function."""
    source = LlamaGguf(bias=True).write(tmp_path / "m.gguf")
    convert(source, tmp_path / "m.cflow")
    assert export(tmp_path / "m.cflow", tmp_path / "n.gguf").architecture == "qwen2"
    convert(tmp_path / "n.gguf", tmp_path / "n.cflow")
    digests = [
        {entry.spec: entry.digest for entry in read_file(tmp_path / f"{name}.cflow").tensors} for name in "mn"
    ]
    assert digests[0] == digests[1]


def test_heads_need_not_divide_the_width(tmp_path: Path) -> None:
    source = tmp_path / "m.cflow"
    synthesise(source, Geometry.parse(DENSE + ",head_dim=32"), 3)
    export(source, tmp_path / "m.gguf")
    convert(tmp_path / "m.gguf", tmp_path / "back.cflow")
    assert read_file(tmp_path / "back.cflow").hparams == read_file(source).hparams
    found = GgufSource(tmp_path / "m.gguf")
    assert found.value("llama.attention.value_length", int) == 32
    assert "general.name" not in found.keys  # the model has none


def test_progress_ends_at_the_total(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    synthesise(tmp_path / "m.cflow", Geometry.parse(MOE), 3)
    export(
        tmp_path / "m.cflow", tmp_path / "m.gguf", progress=lambda done, total: calls.append((done, total))
    )
    assert calls == sorted(calls)
    assert 0 <= calls[-1][1] - calls[-1][0] < 64  # padding, and the last gain


@pytest.mark.parametrize(
    ("name", "reasons"),
    [
        ("tiny_arch1", ["architecture is two_stream", "activation is geglu", "a dense network and experts"]),
        ("tiny_arch2_4_combined", ["dense_delay is 1", "expert_delay is 2"]),
        ("tiny_arch4", ["route is pre_dense"]),
        ("tiny_arch5", ["4 layers share 2 blocks"]),
        ("tiny_moe", ["norm_topk is 0", "biases and norms"]),
    ],
)
def test_what_gguf_cannot_say_is_named(name: str, reasons: list[str]) -> None:
    with pytest.raises(UnsupportedError) as caught:
        architecture_of(Geometry.named(name).hyperparameters(), True, True, "m.cflow")
    assert all(reason in str(caught.value) for reason in reasons)
    assert str(caught.value).startswith("m.cflow: ")


def test_a_damaged_model_leaves_nothing(tmp_path: Path) -> None:
    source = write_random_model(tmp_path / "m.cflow", Geometry.parse(DENSE), 1, tile_rows=16, qkv_bias=True)
    file = read_file(source)
    assert file.hparams.activation is Activation.SWIGLU
    entry = file.entry(Role.FFN_DOWN, 1)
    assert entry is not None
    with source.open("r+b") as stream:
        stream.seek(entry.offset)
        stream.write(b"\x01\x02")
    with pytest.raises(ChecksumError, match=r"blk\.1\.ffn_down"):
        export(source, tmp_path / "m.gguf")
    with pytest.raises(FileError, match="absent"):
        export(source, tmp_path / "absent" / "m.gguf")
    assert os.listdir(tmp_path) == ["m.cflow"]
