"""Shapes of models for the overlap of reading and computing: how much a token computes for what it reads."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from engine.geometry import Geometry

LAYERS: Final = 16
VOCABULARY: Final = 512
"""Small, so that nearly all computing belongs to a layer: the head is no step of the pipeline."""
CONTEXT: Final = 256
DECODED_SHARE: Final = 0.75
"""Of the read-only bandwidth: about what decoding reaches. It only aims; what is reported is measured."""


@dataclass(frozen=True)
class Shape:
    """dense, expert: hidden sizes over the width of the model; per_token: experts chosen of 8."""

    name: str
    dense: float
    expert: float
    per_token: int = 2

    def geometry(self, d_model: int) -> Geometry:
        """16 layers at delays (1, 2). d_model: a multiple of 256."""
        return Geometry(
            layers=LAYERS,
            d_model=d_model,
            heads=d_model // 64,
            kv_heads=d_model // 64,
            head_dim=64,
            ffn_hidden=round(self.dense * d_model),
            vocab=VOCABULARY,
            context=CONTEXT,
            blocks=LAYERS,
            experts=8,
            experts_per_token=self.per_token,
            expert_hidden=32 * max(1, round(self.expert * d_model / 32)),
            dd=1,
            de=2,
        )

    def computed_over_read(self, d_model: int) -> float:
        """Weights that a token computes with over those that it reads from the file."""
        g = self.geometry(d_model)
        read = g.experts_per_token * g.expert_weights
        return (g.attention_weights + g.dense_weights + read) / read


SHAPES: Final = (
    Shape("overlap-a", 1 / 4, 3 / 4),
    Shape("overlap-b", 1, 3 / 8),
    Shape("overlap-c", 2, 1 / 4),
    Shape("overlap-d", 2, 3 / 32),
    Shape("overlap-e", 2, 1 / 32),
    Shape("overlap-f", 4, 1 / 16, per_token=1),
    Shape("overlap-g", 4, 1 / 32, per_token=1),
)
"""From much reading to little: about 2, 4, 8, 20, 50, 90 and 170 weights computed with for each one read."""

SMALL: Final = Shape("overlap-small", 1, 1)
"""For checks of outputs and counts, and for reading that takes far longer than computing."""
SMALL_WIDTH: Final = 256

WIDTHS: Final = {"quick": 1536, "full": 2048, "paper": 4096}
"""Width of the shapes by profile: a layer's read has to take longer than the latency of the device."""
_QUICK: Final = ("overlap-b", "overlap-c", "overlap-d", "overlap-e", "overlap-f")
"""Those that `quick` has room for on the disk."""


def named(name: str) -> Shape:
    """The shape of that name."""
    return next(shape for shape in SHAPES if shape.name == name)


def nearest(profile: str, ratio: float, compute_bytes_per_s: float, read_bytes_per_s: float) -> Shape:
    """The shape with which C / IO comes nearest to `ratio` as a factor.

    C = bytes computed / speed, IO = bytes read / rate.
    """
    wanted = ratio * DECODED_SHARE * compute_bytes_per_s / read_bytes_per_s
    width = WIDTHS[profile]
    shapes = [shape for shape in SHAPES if profile != "quick" or shape.name in _QUICK]
    return min(shapes, key=lambda shape: abs(math.log(shape.computed_over_read(width) / wanted)))
