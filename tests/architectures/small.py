"""Small models for the tests of this folder; importing this needs PyTorch."""

from __future__ import annotations

from dataclasses import replace

import torch

from architectures.config import Config
from architectures.model import Decoder
from architectures.table import ARCHITECTURES, PRESETS, geometry
from engine.geometry import Geometry

SIZES = replace(PRESETS["tiny"], d_model=32, heads=2, vocab=61, context=24)


def small_geometry(name: str) -> Geometry:
    """The architecture at d = 32 with 2 heads and 61 ids."""
    return geometry(name, SIZES)


def random_model(shape: Geometry, seed: int = 0, name: str = "arch4") -> Decoder:
    """A model whose activations keep their scale: matrices of deviation 1 / sqrt(columns), gains near 1."""
    torch.manual_seed(seed)
    model = Decoder(Config(name, shape)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=parameter.shape[-1] ** -0.5)
            else:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


def all_names() -> list[str]:
    """The six architectures and the ablation."""
    return list(ARCHITECTURES)
