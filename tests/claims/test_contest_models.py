"""The pairs of models: the paper's proportions in every profile, files that other engines can load."""

from __future__ import annotations

from pathlib import Path

import pytest

from claims.contest_models import MODELS
from engine.enums import Type
from engine.geometry import Geometry, weight_bytes
from engine.gguf_source import GgufSource
from harness.kinds import PROFILE_NAMES
from harness.profiles import profile

PAPER_RATIO = 20.81 / 31.98


def test_every_profile_has_its_models() -> None:
    assert tuple(MODELS) == PROFILE_NAMES
    paper = MODELS["paper"]
    assert paper.moe.geometry == Geometry.named("arch2_4_8k_16l")
    assert paper.dense.geometry.parameters == pytest.approx(32.8e9, rel=0.002)
    assert paper.moe.active_weights == pytest.approx(20.81e9, rel=0.001)
    assert paper.dense.active_weights == pytest.approx(31.98e9, rel=0.001)


@pytest.mark.parametrize("name", PROFILE_NAMES)
def test_the_ratio_of_active_weights_is_the_papers(name: str) -> None:
    models = MODELS[name]
    ratio = models.moe.active_weights / models.dense.active_weights
    assert ratio == pytest.approx(PAPER_RATIO, rel=0.01)


@pytest.mark.parametrize("name", PROFILE_NAMES)
def test_the_moe_has_the_papers_parts(name: str) -> None:
    one, paper = MODELS[name].moe.geometry, Geometry.named("arch2_4_8k_16l")
    assert (one.dd, one.de, one.experts, one.experts_per_token) == (1, 2, 8, 2)
    assert one.dense_weights / one.attention_weights == paper.dense_weights / paper.attention_weights
    assert one.expert_weights / one.attention_weights == paper.expert_weights / paper.attention_weights
    assert one.head_dim == paper.head_dim


@pytest.mark.parametrize("name", PROFILE_NAMES)
def test_columns_of_the_dense_model_hold_whole_groups_of_128(name: str) -> None:
    """Other engines' 4-bit weights come in groups of 128."""
    dense = MODELS[name].dense.geometry
    assert dense.d_model % 128 == dense.ffn_hidden % 128 == dense.heads * dense.head_dim % 128 == 0
    assert dense.kv_heads < dense.heads


@pytest.mark.parametrize("name", PROFILE_NAMES)
def test_two_models_at_once_fit_the_memory_of_the_profile(name: str) -> None:
    models = MODELS[name]
    sizes = [weight_bytes(shape.geometry.parameters, Type.Q4_0) for shape in (models.moe, models.dense)]
    assert sum(sizes) < 0.9 * profile(name).ram_bytes


def test_the_small_ones_are_written_for_all_engines(tmp_path: Path) -> None:
    models = MODELS["smoke"]
    for shape in (models.dense, models.same_moe):
        assert GgufSource(shape.gguf(tmp_path)).tensor_names
    assert models.moe.cflow(tmp_path).stat().st_size > 0
