"""The metadata of a GGUF file as header parameters; what they would not express is refused by name.

Every key of the architecture must be known here: one that is ignored may change what the model computes.
"""

from __future__ import annotations

from typing import Any

from engine.enums import Activation, Role
from engine.errors import ArgumentError, FormatError, UnsupportedError
from engine.gguf_names import ARCHITECTURES, NAMES, GgufArchitecture
from engine.gguf_source import GgufSource
from engine.hyperparameters import Hyperparameters
from engine.tiles import TileShape

#: Keys behind "<architecture>." that are read below, or say nothing about what is computed.
_KNOWN = frozenset(
    {
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.layer_norm_rms_epsilon",
        "attention.value_length",
        "block_count",
        "context_length",
        "embedding_length",
        "expert_count",
        "expert_feed_forward_length",
        "expert_used_count",
        "feed_forward_length",
        "rope.dimension_count",
        "rope.freq_base",
        "rope.scaling.finetuned",
        "rope.scaling.original_context_length",
        "vocab_size",
    }
)
#: Keys that ask for something the engine does not do, and the values with which they ask for nothing.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "attention.causal": (True,),
    "attention.clamp_kqv": (0.0,),
    "attention.max_alibi_bias": (0.0,),
    "attention.scale": (0.0,),
    "attention.sliding_window": (0,),
    "attn_logit_softcapping": (0.0,),
    "embedding_scale": (0.0, 1.0),
    "expert_gating_func": (1,),  # softmax
    "expert_group_count": (0, 1),
    "expert_group_used_count": (0, 1),
    "expert_shared_count": (0,),
    "expert_weights_norm": (True,),
    "expert_weights_scale": (0.0, 1.0),
    "final_logit_softcapping": (0.0,),
    "leading_dense_block_count": (0,),
    "logit_scale": (0.0, 1.0),
    "nextn_predict_layers": (0,),
    "residual_scale": (0.0, 1.0),
    "rope.scale_linear": (0.0, 1.0),
    "rope.scaling.attn_factor": (0.0, 1.0),
    "rope.scaling.factor": (0.0, 1.0),
    "rope.scaling.type": ("none",),
    "use_parallel_residual": (False,),
}


def architecture_of(source: GgufSource) -> GgufArchitecture:
    """The architecture of a file. Raises UnsupportedError that lists those that work."""
    name = source.value("general.architecture", str)
    if name not in ARCHITECTURES:
        raise UnsupportedError(
            f"{source.path}: architecture {name!r} is not supported; these work: {', '.join(ARCHITECTURES)}"
        )
    return ARCHITECTURES[name]


def read_hyperparameters(
    source: GgufSource, architecture: GgufArchitecture, shape: TileShape
) -> Hyperparameters:
    """The header parameters of a file with tiles of `shape`.

    Raises UnsupportedError naming a key that asks for something the engine does not do, and what works;
    FormatError naming a key that is missing, of another type, or out of range.
    """
    _refuse_unsupported_keys(source, architecture)
    keys = _Keys(source, architecture.name)
    d_model = keys.integer("embedding_length")
    heads = keys.integer("attention.head_count")
    if heads < 1:
        raise FormatError(
            f"{source.path}: {keys.name('attention.head_count')} is {heads}, must be at least 1"
        )
    head_dim = keys.integer("attention.key_length", d_model // heads)
    for key in ("attention.value_length", "rope.dimension_count"):
        if keys.integer(key, head_dim) != head_dim:
            raise UnsupportedError(
                f"{source.path}: {keys.name(key)} is {keys.integer(key)}; only whole heads ({head_dim}) work"
            )
    if source.has("rope_freqs.weight"):
        raise UnsupportedError(
            f"{source.path}: tensor rope_freqs.weight: scaled rotary embeddings are not supported"
        )
    experts = _experts(source, architecture, keys)
    layers = keys.integer("block_count")
    has_ids = source.value("tokenizer.ggml.model", str, default="none") != "none"
    try:
        return Hyperparameters(
            layers=layers,
            blocks=layers,
            d_model=d_model,
            heads=heads,
            kv_heads=keys.integer("attention.head_count_kv", heads),
            head_dim=head_dim,
            ffn_hidden=0 if experts else keys.integer("feed_forward_length"),
            experts=experts,
            experts_per_token=keys.integer("expert_used_count") if experts else 0,
            expert_hidden=_expert_hidden(architecture, keys) if experts else 0,
            vocab=_vocabulary_size(source, keys),
            context=keys.integer("context_length"),
            activation=Activation.SWIGLU,
            norm_topk=True,
            tile_rows=shape.rows,
            tile_cols=shape.cols,
            rms_eps=keys.number("attention.layer_norm_rms_epsilon"),
            rope_base=keys.number("rope.freq_base", 10000.0),
            tied_head=not source.has(NAMES[Role.HEAD][0]),
            bos=source.optional_int("tokenizer.ggml.bos_token_id") if has_ids else None,
            eos=source.optional_int("tokenizer.ggml.eos_token_id") if has_ids else None,
        )
    except ArgumentError as error:
        raise FormatError(f"{source.path}: {error}") from error


class _Keys:
    """The metadata of one architecture. Without a default a key is required."""

    def __init__(self, source: GgufSource, architecture: str) -> None:
        self._source = source
        self._architecture = architecture

    def name(self, key: str) -> str:
        return f"{self._architecture}.{key}"

    def integer(self, key: str, default: int | None = None) -> int:
        value: int = self._source.value(self.name(key), int, default)
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value: float = self._source.value(self.name(key), float, default)
        return value


def _refuse_unsupported_keys(source: GgufSource, architecture: GgufArchitecture) -> None:
    prefix = f"{architecture.name}."
    for name in source.keys:
        key = name.removeprefix(prefix)
        if not name.startswith(prefix) or key in _KNOWN:
            continue
        value = source.value(name, object)
        allowed = _NEUTRAL.get(key)
        if allowed is None:
            raise UnsupportedError(f"{source.path}: metadata key {name} is not supported")
        if value not in allowed:
            works = " or ".join(repr(item) for item in allowed)
            raise UnsupportedError(f"{source.path}: {name} is {value!r}; only {works} works")


def _experts(source: GgufSource, architecture: GgufArchitecture, keys: _Keys) -> int:
    experts = keys.integer("expert_count", 0)
    if experts and not architecture.experts:
        raise UnsupportedError(f"{source.path}: {keys.name('expert_count')} is {experts}; only 0 works")
    if not experts and not architecture.dense:
        raise FormatError(f"{source.path}: {keys.name('expert_count')} is 0 or missing, must be at least 1")
    return experts


def _expert_hidden(architecture: GgufArchitecture, keys: _Keys) -> int:
    """Experts of an architecture that has dense models, too, may share the key of the dense network."""
    shared = keys.integer("feed_forward_length") if architecture.dense else None
    return keys.integer("expert_feed_forward_length", shared)


def _vocabulary_size(source: GgufSource, keys: _Keys) -> int:
    tokens = source.value("tokenizer.ggml.tokens", list, default=[])
    size = keys.integer("vocab_size", len(tokens))
    if tokens and len(tokens) != size:
        raise FormatError(
            f"{source.path}: {keys.name('vocab_size')} is {size}, but tokenizer.ggml.tokens has {len(tokens)}"
        )
    return size
