"""Shapes of models, with and without a name, and their counts of weights.

The paper's geometries are those of its section 2 and of design.md; what the sources leave open is this
project's reading: 8 heads of 64 at d = 512, the dense hidden size 3,200 of arch5, renormalised top-k
probabilities, and routing from the current residual in arch2_4_combined and arch2_4_sync.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import Any

from engine.enums import Activation, Architecture, Route, Stream, Type
from engine.errors import ArgumentError
from engine.hyperparameters import Hyperparameters
from engine.tiles import BLOCK_COLUMNS, block_bytes


@dataclass(frozen=True)
class Geometry:
    """Sizes and combination of a decoder; `blocks` unique blocks are applied in turn for `layers` layers.

    `qkv_bias`, `qk_norm`: biases of q, k and v (Qwen2); norms of the heads of q and k (Qwen3).

    Counts are of matrix weights without padding; the norm gains, some thousand values, are left out as the
    paper leaves them out. Raises ArgumentError naming the field.
    """

    layers: int
    d_model: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn_hidden: int
    vocab: int
    context: int
    blocks: int
    experts: int = 0
    experts_per_token: int = 0
    expert_hidden: int = 0
    dd: int = 0
    de: int = 0
    route: Route = Route.CURRENT
    activation: Activation = Activation.GEGLU
    architecture: Architecture = Architecture.DELAYED
    eps: float = 1e-6
    rope_base: float = 10000.0
    norm_topk: bool = True
    tied: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False

    def __post_init__(self) -> None:
        self.hyperparameters()

    def hyperparameters(self, tile_rows: int = 128, tile_cols: int = 256) -> Hyperparameters:
        """The header parameters of a file of this geometry, without special tokens."""
        return Hyperparameters(
            layers=self.layers,
            blocks=self.blocks,
            d_model=self.d_model,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            ffn_hidden=self.ffn_hidden,
            experts=self.experts,
            experts_per_token=self.experts_per_token,
            expert_hidden=self.expert_hidden,
            vocab=self.vocab,
            context=self.context,
            architecture=self.architecture,
            dense_delay=self.dd,
            expert_delay=self.de,
            route=self.route,
            activation=self.activation,
            norm_topk=self.norm_topk,
            tile_rows=tile_rows,
            tile_cols=tile_cols,
            rms_eps=self.eps,
            rope_base=self.rope_base,
            tied_head=self.tied,
        )

    @property
    def attention_weights(self) -> int:
        """Of one layer: q, k, v and output."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return self.d_model * (2 * queries + 2 * keys)

    @property
    def dense_weights(self) -> int:
        """Of one layer: gate, up and down of the dense FFN."""
        return 3 * self.d_model * self.ffn_hidden

    @property
    def expert_weights(self) -> int:
        """Of one expert: gate, up and down."""
        return 3 * self.d_model * self.expert_hidden

    @property
    def router_weights(self) -> int:
        """Of one layer. The router is stored in f32."""
        return self.experts * self.d_model

    @property
    def embedding_weights(self) -> int:
        """Of the embedding; the head has as many."""
        return self.vocab * self.d_model

    @property
    def parameters(self) -> int:
        """Stored weights: each unique block once, all its experts, embedding, and head unless tied."""
        block = self.attention_weights + self.dense_weights + self.router_weights
        block += self.experts * self.expert_weights
        return self.blocks * block + self.embedding_weights * (1 if self.tied else 2)

    def active_weights(self) -> dict[Stream, int]:
        """Weights a token reads, by stream: all layer applications, chosen experts, head."""
        return {
            Stream.ATTENTION: self.layers * self.attention_weights,
            Stream.DENSE: self.layers * self.dense_weights,
            Stream.EXPERT: self.layers * self.experts_per_token * self.expert_weights,
            Stream.ROUTER: self.layers * self.router_weights,
            Stream.HEAD: self.embedding_weights,
        }

    def stored_bytes(self, kind: Type) -> int:
        """Bytes of all matrices in type `kind`, the routers in f32, without padding and header."""
        routers = self.blocks * self.router_weights
        return weight_bytes(self.parameters - routers, kind) + weight_bytes(routers, Type.F32)

    def critical_path_bytes(self, bytes_per_weight: float = 0.5) -> float:
        """The paper's law: sum over layers of max(attention, dense / (dd + 1), chosen experts / (de + 1)).

        Section 4 of the paper's summary; its column takes 0.5 byte per weight and MB = 2^20 bytes.
        """
        slowest = max(
            self.attention_weights,
            self.dense_weights / (self.dd + 1),
            self.experts_per_token * self.expert_weights / (self.de + 1),
        )
        return self.layers * slowest * bytes_per_weight

    @classmethod
    def named(cls, name: str) -> Geometry:
        """The geometry called `name`. Raises ArgumentError that lists the names."""
        if name not in GEOMETRIES:
            raise ArgumentError(f"geometry {name!r} is unknown; known are {', '.join(GEOMETRIES)}")
        return GEOMETRIES[name]

    @classmethod
    def parse(cls, text: str) -> Geometry:
        """A geometry by name, by numbers, or by a name and what differs from it.

        "arch4", "d=512,layers=6,ffn=2048,vocab=1000", "arch4,layers=2". By numbers `d` (or d_model) and
        `layers` are needed; the rest follows: heads of 64 (or one), kv_heads = heads, ffn_hidden = 4 d,
        vocab 32,000, context 2,048, no experts. Raises ArgumentError naming the field.
        """
        first, *rest = text.split(",")
        base = None if "=" in first else cls.named(first.strip())
        values: dict[str, Any] = dict(
            _parse_field(item) for item in (rest if base else [first, *rest]) if item.strip()
        )
        if base is None:
            return cls(**_with_defaults(values))
        if "layers" in values and "blocks" not in values and base.blocks == base.layers:
            values["blocks"] = values["layers"]
        return replace(base, **values)


def weight_bytes(weights: int, kind: Type) -> int:
    """Bytes of `weights` weights in blocks of 32, without padding."""
    return weights * block_bytes(kind) // BLOCK_COLUMNS


_SHORT_NAMES = {"d": "d_model", "ffn": "ffn_hidden", "top_k": "experts_per_token"}
_FLAGS = ("norm_topk", "tied", "qkv_bias", "qk_norm")
_CHOICES: dict[str, type[IntEnum]] = {"route": Route, "activation": Activation, "architecture": Architecture}


def _parse_field(item: str) -> tuple[str, Any]:
    short, separator, text = (piece.strip() for piece in item.partition("="))
    name = _SHORT_NAMES.get(short, short)
    known = [field.name for field in fields(Geometry)]
    if not separator or name not in known:
        names = ", ".join([*_SHORT_NAMES, *known])
        raise ArgumentError(f"geometry field {item.strip()!r} must be name=value; names are {names}")
    if name in _CHOICES:
        members = _CHOICES[name].__members__
        if text.upper() not in members:
            allowed = ", ".join(member.lower() for member in members)
            raise ArgumentError(f"{name} is {text!r}, must be one of {allowed}")
        return name, members[text.upper()]
    try:
        if name in ("eps", "rope_base"):
            return name, float(text)
        return name, bool(int(text)) if name in _FLAGS else int(text)
    except ValueError:
        raise ArgumentError(f"{name} is {text!r}, must be a number") from None


def _with_defaults(
    values: dict[str, Any],
) -> dict[str, Any]:
    for needed in ("d_model", "layers"):
        if needed not in values:
            raise ArgumentError(f"{needed} is missing; a geometry by numbers needs at least d and layers")
    d_model = int(values["d_model"])
    heads = int(values.get("heads", max(d_model // 64, 1)))
    if heads < 1:
        raise ArgumentError(f"heads is {heads}, must be at least 1")
    defaults = {
        "blocks": values["layers"],
        "heads": heads,
        "kv_heads": heads,
        "head_dim": d_model // heads,
        "ffn_hidden": 4 * d_model,
        "vocab": 32000,
        "context": 2048,
    }
    return {**defaults, **values}


def _quality() -> Geometry:
    """Section 2: 114 M parameters; also `arch2_4_sync` and others with their delays replaced."""
    return Geometry(
        layers=6,
        blocks=6,
        d_model=512,
        heads=8,
        kv_heads=8,
        head_dim=64,
        ffn_hidden=2048,
        experts=8,
        experts_per_token=2,
        expert_hidden=512,
        vocab=50257,
        context=512,
    )


def _wide(layers: int) -> Geometry:
    """Section 2: the 8,192-wide models, with the delays of arch2_4_combined."""
    return Geometry(
        layers=layers,
        blocks=layers,
        d_model=8192,
        heads=128,
        kv_heads=128,
        head_dim=64,
        ffn_hidden=32768,
        experts=8,
        experts_per_token=2,
        expert_hidden=4096,
        vocab=50257,
        context=2048,
        dd=1,
        de=2,
    )


def _llama(layers: int, d_model: int, heads: int, kv_heads: int, ffn_hidden: int) -> Geometry:
    """A llama-like shape: SwiGLU, vocabulary 32,000, eps 1e-5."""
    return Geometry(
        layers=layers,
        blocks=layers,
        d_model=d_model,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=d_model // heads,
        ffn_hidden=ffn_hidden,
        vocab=32000,
        context=2048,
        activation=Activation.SWIGLU,
        eps=1e-5,
    )


def _qwen2_5_32b() -> Geometry:
    """The sizes of Qwen2.5-32B, whose biases of q, k and v (0.5 M of 32.8 G weights) are left out."""
    return Geometry(
        layers=64,
        blocks=64,
        d_model=5120,
        heads=40,
        kv_heads=8,
        head_dim=128,
        ffn_hidden=27648,
        vocab=152064,
        context=2048,
        activation=Activation.SWIGLU,
    )


def _moe_llama(layers: int, kv_heads: int, experts: int, experts_per_token: int) -> Geometry:
    """A llama-like shape of width 1,024 with experts of hidden size 1,024 in place of the dense FFN."""
    dense = _llama(layers, 1024, 16, kv_heads, 1024)
    return replace(
        dense, ffn_hidden=0, experts=experts, experts_per_token=experts_per_token, expert_hidden=1024
    )


def _tiny() -> Geometry:
    """For tests: every kind of tensor, all sizes small and different."""
    return Geometry(
        layers=4,
        blocks=4,
        d_model=64,
        heads=4,
        kv_heads=2,
        head_dim=16,
        ffn_hidden=160,
        experts=4,
        experts_per_token=2,
        expert_hidden=96,
        vocab=131,
        context=48,
    )


def _architectures(base: Geometry) -> dict[str, Geometry]:
    """The six architectures of the paper on one shape; arch5 halves nothing here but shares two blocks."""
    return {
        "arch1": replace(base, architecture=Architecture.TWO_STREAM),
        "arch2_4_combined": replace(base, dd=1, de=2),
        "arch2_4_sync": replace(base, dd=1),
        "arch3": replace(base, architecture=Architecture.REGISTER),
        "arch4": replace(base, de=2, route=Route.PRE_DENSE),
        "arch5": replace(base, blocks=2),
    }


_QUALITY = _architectures(_quality())
_TINY = {f"tiny_{name}": geometry for name, geometry in _architectures(_tiny()).items()}

#: All named geometries.
GEOMETRIES: dict[str, Geometry] = {
    **_QUALITY,
    "arch5": replace(_QUALITY["arch5"], ffn_hidden=3200),
    "arch2_4_8k_4l": _wide(4),
    "arch2_4_8k_16l": _wide(16),
    "dense_246m": _llama(16, 1024, 16, 4, 2816),
    "dense_4096": _llama(8, 4096, 32, 32, 11008),
    "moe_399m": _moe_llama(12, 4, 8, 2),
    "moe_3b": _moe_llama(16, 16, 64, 4),
    "qwen2.5-32b": _qwen2_5_32b(),
    **_TINY,
    "tiny_standard": _tiny(),
    "tiny_dense": replace(
        _tiny(), experts=0, experts_per_token=0, expert_hidden=0, activation=Activation.SWIGLU, tied=True
    ),
    "tiny_moe": replace(_tiny(), ffn_hidden=0, activation=Activation.SWIGLU, norm_topk=False),
}
