"""Speeds that follow from bytes and assumptions, and which share of the roof is taken for granted."""

from __future__ import annotations

from typing import Any

import pytest

from claims.projection import MODELS, ROOFS_GB_PER_S, measured_share, projected
from harness.kinds import INCONCLUSIVE, NOT_MEASURABLE, REFUTED, SUPPORTED

GEOMETRY = MODELS["arch2_4_8k_16l"]


def roof_record(value: float | None, verdict: str) -> dict[str, Any]:
    other = {"label": "1 thread", "value": 0.99, "verdict": SUPPORTED}
    return {"cells": [other, {"label": "all threads", "value": value, "verdict": verdict}]}


def test_speed_is_bandwidth_over_bytes() -> None:
    found = projected(10_000_000_000, 0.8, "measured", GEOMETRY)
    seen = found.observations
    assert found.value == pytest.approx(70 * 0.8 / 10)
    assert seen["roof_gb_per_s"] == list(ROOFS_GB_PER_S)
    assert seen["tok_per_s"] == pytest.approx([roof * 0.8 / 10 for roof in ROOFS_GB_PER_S])
    assert seen["tok_per_s_at_the_roof"] == pytest.approx([roof / 10 for roof in ROOFS_GB_PER_S])
    assert found.inputs["share of the roof"] == 0.8 and found.inputs["the share is"] == "measured"


@pytest.mark.parametrize(
    ("record", "share"),
    [
        (None, None),
        ({"cells": []}, None),
        (roof_record(0.93, SUPPORTED), 0.93),
        (roof_record(0.41, REFUTED), 0.41),
        (roof_record(0.93, INCONCLUSIVE), None),
        (roof_record(None, NOT_MEASURABLE), None),
        (roof_record(1.02, SUPPORTED), None),
    ],
)
def test_a_share_in_doubt_is_not_used(record: dict[str, Any] | None, share: float | None) -> None:
    assert measured_share(record) == share


def test_sizes_of_the_models_are_those_of_their_names() -> None:
    assert GEOMETRY.parameters / 1e9 == pytest.approx(30.9, abs=0.05)
    assert MODELS["Qwen2.5-32B shape"].parameters / 1e9 == pytest.approx(32.8, abs=0.05)
