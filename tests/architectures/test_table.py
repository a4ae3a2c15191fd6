"""The table of architectures against the engine's geometries and the paper's counts."""

from __future__ import annotations

import pytest

from architectures.errors import ArchitectureError
from architectures.table import ARCHITECTURES, PRESETS, SIX, geometry, preset
from engine.enums import Route
from engine.geometry import GEOMETRIES


@pytest.mark.parametrize("name", SIX)
def test_paper_preset_is_the_geometry_of_the_engine(name: str) -> None:
    assert geometry(name, PRESETS["paper"]) == GEOMETRIES[name]


@pytest.mark.parametrize(
    ("preset_name", "architecture", "millions"),
    [
        ("paper", "arch2_4_combined", 114),  # the paper's
        ("paper", "arch1", 114),
        ("paper", "arch5", 76),  # this project's reading of its bytes
        ("small", "arch3", 18),
        ("tiny", "arch4", 5),
    ],
)
def test_parameter_counts(preset_name: str, architecture: str, millions: int) -> None:
    assert round(geometry(architecture, preset(preset_name)).parameters / 1e6) == millions


def test_ablation_differs_from_arch4_in_its_routing_only() -> None:
    ablation, arch4 = ARCHITECTURES["arch4_current"], ARCHITECTURES["arch4"]
    assert (ablation.route, arch4.route) == (Route.CURRENT, Route.PRE_DENSE)
    assert (ablation.combine, ablation.dd, ablation.de, ablation.blocks) == (
        arch4.combine,
        arch4.dd,
        arch4.de,
        arch4.blocks,
    )


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(ArchitectureError, match=r"arch9.*allowed: arch1, "):
        geometry("arch9", PRESETS["tiny"])
    with pytest.raises(ArchitectureError, match=r"huge.*allowed: tiny, small, paper"):
        preset("huge")
