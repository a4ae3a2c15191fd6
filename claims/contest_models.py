"""The models of the end-to-end comparison, by profile: the paper's, and smaller ones of the same proportions.

The paper sets its MoE, which reads 20.81 G weights a token, beside a dense model that reads 31.98 G. Every
pair here keeps that ratio within 1 %, so that what a smaller profile says of the lead has the same two parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from claims.models import as_gguf, synthetic
from engine.geometry import Geometry

PAPER_MOE: Final = "arch2_4_8k_16l"
PAPER_DENSE: Final = "qwen2.5-32b"


@dataclass(frozen=True)
class Shape:
    """A geometry and the name of its file."""

    name: str
    geometry: Geometry

    @property
    def active_weights(self) -> int:
        """Weights that a token reads, the head among them."""
        return sum(self.geometry.active_weights().values())

    def cflow(self, folder: Path) -> Path:
        """Its model, made unless it is there."""
        return synthetic(folder, self.name, self.geometry)

    def gguf(self, folder: Path) -> Path:
        """The same weights for other engines. Raises UnsupportedError for a shape that GGUF cannot say."""
        return as_gguf(self.cflow(folder))


@dataclass(frozen=True)
class Models:
    """What a profile compares.

    moe: the paper's architecture, which only our engine runs. dense: what the others run, and ours too.
    same_moe: a MoE that GGUF can describe: SwiGLU, no delays, no dense FFN beside the experts.
    """

    moe: Shape
    dense: Shape
    same_moe: Shape


def _moe(layers: int, d_model: int, vocab: int) -> Geometry:
    """The paper's MoE made narrower: heads of 64, hidden sizes 4 d and d / 2, 8 experts, 2 for a token."""
    return replace(
        Geometry.named(PAPER_MOE),
        layers=layers,
        blocks=layers,
        d_model=d_model,
        heads=d_model // 64,
        kv_heads=d_model // 64,
        ffn_hidden=4 * d_model,
        expert_hidden=d_model // 2,
        vocab=vocab,
    )


def _dense(layers: int, d_model: int, kv_heads: int, ffn_hidden: int, vocab: int) -> Geometry:
    """The dense model made smaller: heads of 128; hidden sizes that blocks of 128 columns divide."""
    return replace(
        Geometry.named(PAPER_DENSE),
        layers=layers,
        blocks=layers,
        d_model=d_model,
        heads=d_model // 128,
        kv_heads=kv_heads,
        ffn_hidden=ffn_hidden,
        vocab=vocab,
    )


_TINY_MOE: Final = replace(
    Geometry.named("moe_399m"), layers=2, blocks=2, d_model=256, heads=4, head_dim=64, expert_hidden=256
)
_MOE_3B: Final = Shape("moe_3b", Geometry.named("moe_3b"))

MODELS: Final[Mapping[str, Models]] = {
    "smoke": Models(
        Shape("e2e-moe-3m", _moe(2, 256, 2048)),
        Shape("e2e-dense-5m", _dense(3, 256, 1, 1408, 3296)),
        Shape("e2e-same-moe-tiny", replace(_TINY_MOE, vocab=2048)),
    ),
    "quick": Models(
        Shape("e2e-moe-256m", _moe(12, 1024, 16384)),
        Shape("e2e-dense-393m", _dense(18, 1024, 2, 5504, 40960)),
        Shape("moe_399m", Geometry.named("moe_399m")),
    ),
    "full": Models(
        Shape("arch2_4_8k_4l", Geometry.named("arch2_4_8k_4l")),
        Shape("e2e-dense-8g", _dense(16, 5120, 8, 27648, 131072)),
        _MOE_3B,
    ),
    "paper": Models(
        Shape(PAPER_MOE, Geometry.named(PAPER_MOE)),
        Shape(PAPER_DENSE, Geometry.named(PAPER_DENSE)),
        _MOE_3B,
    ),
}
