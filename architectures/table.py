"""The architectures side by side, and the sizes they come in.

The paper's: names, delays, combine styles, pre-dense routing of arch4, the shared blocks of arch5, the sizes
of `paper`. This project's reading: current routing of combined and sync, what two streams and registers
compute (`combine.py`), 8 heads of 64 at d = 512, and arch5's wider dense network (it follows from its bytes).
`arch4_current` is this project's ablation: arch4 with the routing of the others.

`tiny` and `small` are this project's: the same proportions at a width that trains on a laptop.
"""

from __future__ import annotations

from dataclasses import dataclass

from architectures.errors import ArchitectureError
from engine.enums import Architecture, Route
from engine.geometry import Geometry

LAYERS = 6
_SHARED_BLOCKS = 2


@dataclass(frozen=True)
class Row:
    """What makes an architecture: everything else is the same for all."""

    combine: Architecture
    dd: int
    de: int
    route: Route
    blocks: int = LAYERS


_DELAYED, _STREAMS, _REGISTER = Architecture.DELAYED, Architecture.TWO_STREAM, Architecture.REGISTER
_CURRENT, _PRE_DENSE = Route.CURRENT, Route.PRE_DENSE

#: Layer l applies block l mod `blocks`. Delays count layers of the same token.
ARCHITECTURES: dict[str, Row] = {
    #                       combine    dd de  router and experts read
    "arch1": Row(_STREAMS, 0, 0, _CURRENT),
    "arch2_4_combined": Row(_DELAYED, 1, 2, _CURRENT),
    "arch2_4_sync": Row(_DELAYED, 1, 0, _CURRENT),
    "arch3": Row(_REGISTER, 0, 0, _CURRENT),
    "arch4": Row(_DELAYED, 0, 2, _PRE_DENSE),
    "arch4_current": Row(_DELAYED, 0, 2, _CURRENT),
    "arch5": Row(_DELAYED, 0, 0, _CURRENT, _SHARED_BLOCKS),
}

#: The paper's six, without the ablation.
SIX = tuple(name for name in ARCHITECTURES if name != "arch4_current")


@dataclass(frozen=True)
class Preset:
    """Sizes, and the training that goes with them; `sequence` and `batch` are what a step sees."""

    d_model: int
    heads: int
    vocab: int
    batch: int
    sequence: int
    lr: float
    context: int = 512
    experts: int = 8
    experts_per_token: int = 2


#: The vocabulary of `tiny` and `small` is trained on the text at hand, that of `paper` is GPT-2's.
PRESETS: dict[str, Preset] = {
    "tiny": Preset(d_model=128, heads=4, vocab=4096, batch=8, sequence=128, lr=1e-3),
    "small": Preset(d_model=256, heads=4, vocab=4096, batch=8, sequence=128, lr=1e-3),
    "paper": Preset(d_model=512, heads=8, vocab=50257, batch=8, sequence=512, lr=3e-4),
}


def preset(name: str) -> Preset:
    """A preset by name. Raises ArchitectureError that lists the names."""
    if name not in PRESETS:
        raise ArchitectureError(f"preset {name!r} is unknown; allowed: {', '.join(PRESETS)}")
    return PRESETS[name]


def geometry(architecture: str, sizes: Preset, vocab: int | None = None) -> Geometry:
    """An architecture in the sizes of a preset; `vocab` replaces the preset's when a tokenizer has fewer ids.

    The dense hidden size is 4 d, in arch5 4 d * 25 / 16 cut to a multiple of 32; that of the experts is d.
    Raises ArchitectureError that lists the names.
    """
    if architecture not in ARCHITECTURES:
        raise ArchitectureError(
            f"architecture {architecture!r} is unknown; allowed: {', '.join(ARCHITECTURES)}"
        )
    row = ARCHITECTURES[architecture]
    dense = 4 * sizes.d_model
    return Geometry(
        layers=LAYERS,
        blocks=row.blocks,
        d_model=sizes.d_model,
        heads=sizes.heads,
        kv_heads=sizes.heads,
        head_dim=sizes.d_model // sizes.heads,
        ffn_hidden=dense * 25 // 16 // 32 * 32 if row.blocks == _SHARED_BLOCKS else dense,
        vocab=sizes.vocab if vocab is None else vocab,
        context=sizes.context,
        experts=sizes.experts,
        experts_per_token=sizes.experts_per_token,
        expert_hidden=sizes.d_model,
        dd=row.dd,
        de=row.de,
        route=row.route,
        architecture=row.combine,
    )
