"""A GGUF file with experts and seeded random weights, for llama.cpp, and where its experts lie.

Architecture llama, q4_0, routers f32, no tokenizer: ids go in. Codes are symmetric about 8, the embedding
is wide: the routing spreads. Tensors begin on pages, so that a page holds weights of one tensor only.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import gguf
import numpy as np
from gguf import GGMLQuantizationType
from numpy.typing import NDArray

from claims.run import SEED
from engine.enums import Type
from engine.errors import FileError, FormatError
from engine.geometry import Geometry, weight_bytes
from engine.gguf_source import GgufSource
from engine.synth import EMBEDDING_SIGMA

_ARCHITECTURE: Final = "llama"
_FORMAT: Final = 1
"""Counts changes of what is written for the same geometry."""
_ALIGNMENT: Final = 4096
_BLOCK, _BLOCK_BYTES = gguf.GGML_QUANT_SIZES[GGMLQuantizationType.Q4_0]
_CODE_SIGMA: Final = float(np.sqrt(np.mean(np.array([0, *range(-7, 8)]) ** 2)))
_NIBBLES: Final = np.array([8, *range(1, 16)], np.uint8)
_PAIRS: Final = (_NIBBLES[None, :] | _NIBBLES[:, None] << 4).reshape(-1)
"""A random byte to two codes 1 .. 15, symmetric about 8."""
Tensor = tuple[str, GGMLQuantizationType, NDArray[np.generic]]
"""Name, type, data."""
_EXPERT_PARTS: Final = ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")


@dataclass(frozen=True)
class ExpertTensor:
    """All experts of one matrix of a layer, one after the other; offset and bytes in the file."""

    layer: int
    offset: int
    bytes: int


@dataclass(frozen=True)
class ExpertFile:
    """A GGUF file and the places of its experts."""

    path: Path
    experts: int
    tensors: tuple[ExpertTensor, ...]

    @property
    def bank_bytes(self) -> int:
        """Of all experts of all layers."""
        return sum(tensor.bytes for tensor in self.tensors)

    @property
    def expert_bytes(self) -> int:
        """Of one expert of a layer: gate, up and down."""
        return sum(tensor.bytes for tensor in self.tensors if tensor.layer == 0) // self.experts


def expert_gguf(folder: Path, name: str, geometry: Geometry) -> ExpertFile:
    """The cached file of that geometry in `folder`; made when it is missing or cannot be read.

    Geometries of a plain decoder without a dense FFN. Raises FileError when it cannot be written.
    """
    digest = hashlib.sha256(f"gguf {_FORMAT} {geometry} {SEED}".encode()).hexdigest()[:12]
    path = folder / f"{name}-{digest}.gguf"
    try:
        return _located(path, geometry)
    except (FileError, FormatError):
        folder.mkdir(parents=True, exist_ok=True)
        write_gguf(path, geometry, _tensors(geometry))
    return _located(path, geometry)


def _located(path: Path, geometry: Geometry) -> ExpertFile:
    source = GgufSource(path)
    size = weight_bytes(geometry.experts * geometry.expert_hidden * geometry.d_model, Type.Q4_0)
    tensors = tuple(
        ExpertTensor(layer, source.offset(f"blk.{layer}.{part}.weight"), size)
        for layer in range(geometry.layers)
        for part in _EXPERT_PARTS
    )
    return ExpertFile(path, geometry.experts, tensors)


def write_gguf(path: Path, geometry: Geometry, tensors: Iterable[Tensor]) -> None:
    """Metadata of the geometry and these tensors, under its name only when complete. Raises FileError."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with closing(gguf.GGUFWriter(temporary, _ARCHITECTURE)) as writer:
            _metadata(writer, geometry)
            for name, kind, data in tensors:
                writer.add_tensor(name, data, raw_dtype=kind)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _metadata(writer: gguf.GGUFWriter, geometry: Geometry) -> None:
    writer.add_custom_alignment(_ALIGNMENT)
    writer.add_tokenizer_model("none")
    writer.add_vocab_size(geometry.vocab)
    writer.add_context_length(geometry.context)
    writer.add_embedding_length(geometry.d_model)
    writer.add_block_count(geometry.layers)
    writer.add_head_count(geometry.heads)
    writer.add_head_count_kv(geometry.kv_heads)
    writer.add_key_length(geometry.head_dim)
    writer.add_value_length(geometry.head_dim)
    writer.add_rope_dimension_count(geometry.head_dim)
    writer.add_rope_freq_base(geometry.rope_base)
    writer.add_layer_norm_rms_eps(geometry.eps)
    writer.add_feed_forward_length(geometry.ffn_hidden or geometry.expert_hidden)
    if geometry.experts:
        writer.add_expert_feed_forward_length(geometry.expert_hidden)
        writer.add_expert_count(geometry.experts)
        writer.add_expert_used_count(geometry.experts_per_token)


def _tensors(geometry: Geometry) -> Iterator[Tensor]:
    """(name, type, data) of every tensor, in file order; experts last in each layer."""
    rng = np.random.default_rng(SEED)
    d, hidden, experts = geometry.d_model, geometry.expert_hidden, geometry.experts
    queries, keys = geometry.heads * geometry.head_dim, geometry.kv_heads * geometry.head_dim

    def matrix(name: str, *shape: int, sigma: float | None = None) -> Tensor:
        data = random_q4_0(rng, shape, shape[-1] ** -0.5 if sigma is None else sigma)
        return f"{name}.weight", GGMLQuantizationType.Q4_0, data

    def gain(name: str) -> Tensor:
        return f"{name}.weight", GGMLQuantizationType.F32, np.ones(d, np.float32)

    yield matrix("token_embd", geometry.vocab, d, sigma=EMBEDDING_SIGMA)
    yield matrix("output", geometry.vocab, d)
    yield gain("output_norm")
    for layer in range(geometry.layers):
        block = f"blk.{layer}."
        yield gain(f"{block}attn_norm")
        yield matrix(f"{block}attn_q", queries, d)
        yield matrix(f"{block}attn_k", keys, d)
        yield matrix(f"{block}attn_v", keys, d)
        yield matrix(f"{block}attn_output", d, queries)
        yield gain(f"{block}ffn_norm")
        router = rng.standard_normal((experts, d), np.float32) * np.float32(d**-0.5)
        yield f"{block}ffn_gate_inp.weight", GGMLQuantizationType.F32, router
        for part, shape in zip(_EXPERT_PARTS, ((hidden, d), (hidden, d), (d, hidden)), strict=True):
            yield matrix(block + part, experts, *shape)


def random_q4_0(rng: np.random.Generator, shape: tuple[int, ...], sigma: float) -> NDArray[np.uint8]:
    """Blocks of one scale and random codes, uint8 [*shape[:-1], row bytes], with that deviation."""
    blocks = int(np.prod(shape)) // _BLOCK
    raw = np.empty((blocks, _BLOCK_BYTES), np.uint8)
    raw[:, :2] = np.array([sigma / _CODE_SIGMA], np.float16).view(np.uint8)
    raw[:, 2:] = _PAIRS[rng.integers(0, 256, (blocks, _BLOCK_BYTES - 2), np.uint8)]
    return raw.reshape(*shape[:-1], -1)
