"""Counts and bytes of the paper's geometries against the figures that the paper prints."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.enums import Route, Stream, Type
from engine.errors import ArgumentError
from engine.geometry import GEOMETRIES, Geometry, weight_bytes
from engine.layout import plan
from engine.tensors import model_specs

MIB = 1 << 20


@pytest.mark.parametrize(
    ("name", "parameters", "digits"),
    [
        ("arch1", 114e6, -6),
        ("arch5", 76.0e6, -5),
        ("arch2_4_8k_4l", 8.34e9, -7),
        ("arch2_4_8k_16l", 30.9e9, -8),
        ("dense_246m", 246e6, -6),
        ("dense_4096", 1.88e9, -7),
        ("moe_399m", 399e6, -6),
    ],
)
def test_parameters(name: str, parameters: float, digits: int) -> None:
    assert round(Geometry.named(name).parameters, digits) == parameters


@pytest.mark.parametrize(
    ("name", "stored_bytes", "digits"),
    [
        ("arch4", 64e6, -6),
        ("arch5", 43e6, -6),
        ("arch2_4_8k_4l", 4.7e9, -8),
    ],
)
def test_q4_0_bytes(name: str, stored_bytes: float, digits: int) -> None:
    assert round(Geometry.named(name).stored_bytes(Type.Q4_0), digits) == stored_bytes


def test_q4_0_bytes_of_the_largest_model() -> None:
    """17.37 GB by the paper's own check, and 17.39 GB on its card with headers."""
    assert 17.37e9 < Geometry.named("arch2_4_8k_16l").stored_bytes(Type.Q4_0) < 17.39e9


@pytest.mark.parametrize(
    ("name", "mib"),
    [
        ("arch1", 9.00),
        ("arch2_4_combined", 4.50),
        ("arch2_4_sync", 4.50),
        ("arch3", 9.00),
        ("arch4", 9.00),
        ("arch5", 14.0625),
    ],
)
def test_the_law_gives_the_papers_column(name: str, mib: float) -> None:
    assert Geometry.named(name).critical_path_bytes(0.5) == mib * MIB


@pytest.mark.parametrize(("name", "mib"), [("arch2_4_combined", 16.5), ("arch5", 21.5625)])
def test_bytes_of_all_layers_at_half_a_byte(name: str, mib: float) -> None:
    active = Geometry.named(name).active_weights()
    layers = active[Stream.ATTENTION] + active[Stream.DENSE] + active[Stream.EXPERT]
    assert layers * 0.5 == mib * MIB


def test_expert_bytes_of_the_gemma_shape() -> None:
    """Claim 1: 23.79 MB of 380.6 MB per layer at half a byte."""
    moe = replace(
        Geometry.named("arch4"),
        d_model=2816,
        experts=128,
        experts_per_token=8,
        expert_hidden=704,
        vocab=32000,
    )
    assert round(moe.experts_per_token * moe.expert_weights * 0.5 / 1e6, 2) == 23.79
    assert round(moe.experts * moe.expert_weights * 0.5 / 1e6, 1) == 380.6


@pytest.mark.parametrize("name", [name for name in GEOMETRIES if not name.startswith("tiny_")])
def test_counts_agree_with_the_file_that_would_be_written(name: str) -> None:
    """The matrices of the planned file have as many weights as the geometry counts."""
    geometry = Geometry.named(name)
    hparams = geometry.hyperparameters()
    layout = plan(hparams, model_specs(hparams, lambda _: Type.Q4_0))
    counted = sum(sum(spec.part_rows) * spec.columns for spec in layout.specs if not spec.is_vector)
    assert counted == geometry.parameters
    assert layout.file_bytes == pytest.approx(geometry.stored_bytes(Type.Q4_0), rel=0.003)


def test_the_six_architectures_differ_as_the_paper_says() -> None:
    assert [(g.dd, g.de) for g in map(Geometry.named, ("arch1", "arch2_4_combined", "arch2_4_sync"))] == [
        (0, 0),
        (1, 2),
        (1, 0),
    ]
    assert [(g.dd, g.de) for g in map(Geometry.named, ("arch3", "arch4", "arch5"))] == [
        (0, 0),
        (0, 2),
        (0, 0),
    ]
    assert Geometry.named("arch4").route is Route.PRE_DENSE
    assert (Geometry.named("arch5").blocks, Geometry.named("arch5").layers) == (2, 6)


def test_unknown_name_lists_the_names() -> None:
    with pytest.raises(ArgumentError, match=r"'arch9' is unknown; known are arch1, .*tiny_dense"):
        Geometry.named("arch9")


def test_parse() -> None:
    assert Geometry.parse("arch4") == Geometry.named("arch4")
    assert Geometry.parse("arch4, layers=2") == replace(Geometry.named("arch4"), layers=2, blocks=2)
    assert Geometry.parse("arch5,layers=4").blocks == 2
    small = Geometry.parse(
        "d=128,layers=3,ffn=96,vocab=50,experts=4,top_k=2,expert_hidden=32,route=pre_dense,de=1"
    )
    assert (small.heads, small.kv_heads, small.head_dim, small.blocks) == (2, 2, 64, 3)
    assert (small.ffn_hidden, small.experts_per_token, small.route) == (96, 2, Route.PRE_DENSE)
    assert Geometry.parse("d=32,layers=1").heads == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("d=512", "layers is missing"),
        ("layers=2", "d_model is missing"),
        ("d=512,layers=two", "layers is 'two', must be a number"),
        ("d=512,layers=2,width=3", "'width=3' must be name=value; names are d, ffn, top_k, layers"),
        ("d=512,layers=2,route=late", "route is 'late', must be one of current, pre_dense"),
        ("d=500,layers=2", "d_model is 500, must be a multiple of 32"),
        ("d=512,layers=0", "layers is 0, must be in 1..4096"),
        ("d=512,layers=2,heads=0", "heads is 0"),
        ("arch1,dd=1", "must be 0, 0 and current for two_stream"),
        ("arch4,top_k=9", "experts_per_token is 9, must be in 1..8"),
        ("", "geometry '' is unknown"),
    ],
)
def test_parse_errors_name_the_field(text: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Geometry.parse(text)


def test_weight_bytes() -> None:
    assert [weight_bytes(64, kind) for kind in Type] == [256, 128, 36, 40, 68]
