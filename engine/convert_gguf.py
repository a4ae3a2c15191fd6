"""GGUF to .cflow or .vflow, block for block, for the architectures of `engine.gguf_names`.

Nothing is requantised unless asked for: blocks are rearranged into tiles, so that the conversion is lossless.
A GGUF of architecture llama stores the rows of q and k for rotary pairs of adjacent elements (2i, 2i + 1);
the engine rotates the pairs (i, i + head_dim / 2), so the rows of each head are put into that order, which
changes no value.

A layer with experts has no dense feed-forward network; its `ffn_norm` is the norm of the experts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from engine.enums import Order, Role, Type
from engine.errors import ArgumentError, NonFiniteError, UnsupportedError
from engine.format import CflowWriter
from engine.gguf_hyperparameters import architecture_of, read_hyperparameters
from engine.gguf_names import NAMES, ROTATED_PARTS, GgufArchitecture, half_split_order
from engine.gguf_source import GgufSource
from engine.hyperparameters import Hyperparameters
from engine.kernels import pack_tiles
from engine.layout import fitting_name
from engine.stages import arrangement_of
from engine.tensors import TensorSpec, model_specs, tensor_spec
from engine.tiles import Bytes, TileShape, dequantise, quantise
from engine.tokenizer import FEED_IDS_HINT, GgufVocabulary, Tokenizer, from_gguf

#: Tensors that carry no weights of the model: precomputed tables that the engine derives itself.
IGNORED_SUFFIXES = ("attn_rot_embd",)


@dataclass(frozen=True)
class Conversion:
    """What was written. `tokenizer_note` says why there is no tokenizer; it is empty when there is one."""

    path: Path
    name: str
    architecture: str
    tensors: int
    file_bytes: int
    tokenizer_note: str


def convert(
    source_path: Path,
    target_path: Path,
    *,
    quantize: Type | None = None,
    tile_shape: TileShape | None = None,
    order: Order = Order.LAYER,
    progress: Callable[[int, int], None] | None = None,
) -> Conversion:
    """Converts a GGUF file. `progress(done, total)` counts stored bytes.

    `quantize` applies to f16 and f32 matrices; already quantised ones stay as they are. Raises
    UnsupportedError naming an architecture, type or feature that does not work and what does, FormatError for
    a damaged or contradictory file, NonFiniteError naming tensor and block, FileError; nothing half-written
    stays.
    """
    source = GgufSource(source_path)
    architecture = architecture_of(source)
    hparams = read_hyperparameters(source, architecture, tile_shape or TileShape())
    tokenizer, note = _tokenizer(source, hparams)
    name = fitting_name(source.value("general.name", str, default=source_path.stem))
    plan = _Plan(source, architecture, hparams, quantize)
    specs = plan.specs()
    with CflowWriter(
        target_path,
        hparams,
        specs,
        tokenizer.to_json() if tokenizer else None,
        name,
        arrangement_of(order, hparams, specs, target_path.parent),
    ) as writer:
        total = sum(writer.layout.lengths)
        done = 0
        for spec, length in zip(writer.specs, writer.layout.lengths, strict=True):
            try:
                for piece in plan.data(spec):
                    writer.write(spec, piece)
            except NonFiniteError as error:
                raise NonFiniteError(f"{source_path}: {error}") from error
            done += length
            if progress is not None:
                progress(done, total)
        file_bytes = writer.layout.file_bytes
    return Conversion(target_path, name, architecture.name, len(specs), file_bytes, note)


def examine(source_path: Path) -> Hyperparameters:
    """The parameters of what `convert` would write. No weights are read.

    Raises what `convert` does for an architecture, type, key or name that does not work, or a damaged file.
    """
    source = GgufSource(source_path)
    architecture = architecture_of(source)
    hparams = read_hyperparameters(source, architecture, TileShape())
    _Plan(source, architecture, hparams, None).specs()
    return hparams


class _Plan:
    """Which GGUF tensors make up each tensor of the file, in which type, and their bytes."""

    def __init__(
        self,
        source: GgufSource,
        architecture: GgufArchitecture,
        hparams: Hyperparameters,
        quantize: Type | None,
    ) -> None:
        self._source = source
        self._architecture = architecture
        self._hparams = hparams
        self._quantize = quantize
        if quantize not in (None, Type.Q4_0, Type.Q4_1, Type.Q8_0):
            raise ArgumentError(f"quantize is {quantize.name.lower()}, must be q4_0, q4_1 or q8_0")

    def specs(self) -> list[TensorSpec]:
        """All tensors of the file; each takes the type of its source, or `quantize` for f16 and f32 ones.

        Raises UnsupportedError for a tensor of the source that this conversion would leave out.
        """
        bias = self._architecture.qkv_bias
        if bias is None:
            bias = self._source.has(NAMES[Role.ATTN_QKV_BIAS][0].format(b=0))
        shapes = model_specs(self._hparams, lambda role: Type.F32, bias, self._architecture.qk_norm)
        self._check_names(shapes)
        specs = []
        for spec in shapes:
            plain = spec.is_vector or spec.role is Role.ROUTER
            kind = Type.F32 if plain else self._kind(spec)
            specs.append(tensor_spec(self._hparams, spec.role, kind, spec.block, spec.expert))
        return specs

    def _check_names(self, specs: list[TensorSpec]) -> None:
        known = {name for spec in specs for name in self._names(spec)}
        for name in self._source.tensor_names:
            if name not in known and not name.removesuffix(".weight").endswith(IGNORED_SUFFIXES):
                raise UnsupportedError(
                    f"{self._source.path}: tensor {name} belongs to no supported part of a "
                    f"{self._architecture.name} model"
                )

    def _kind(self, spec: TensorSpec) -> Type:
        kinds = {name: self._source.kind(name) for name in self._names(spec)}
        if len(set(kinds.values())) > 1:
            listed = ", ".join(f"{name} {kind.name.lower()}" for name, kind in kinds.items())
            raise UnsupportedError(
                f"{self._source.path}: {spec.name}: fused matrices need one type, found {listed}"
            )
        kind = next(iter(kinds.values()))
        return self._quantize if self._quantize and kind in (Type.F16, Type.F32) else kind

    def _names(self, spec: TensorSpec) -> list[str]:
        return [name.format(b=spec.block) for name in NAMES[spec.role]]

    def data(self, spec: TensorSpec) -> Iterator[Bytes]:
        """Stored bytes of a tensor, in pieces."""
        if spec.is_vector:
            yield self._vector(spec).view(np.uint8)
            return
        parts = [
            self._matrix(spec, index, name, rows)
            for index, (name, rows) in enumerate(zip(self._names(spec), spec.part_rows, strict=True))
        ]
        shape = self._hparams.tile_shape
        yield pack_tiles(spec.kind, parts, spec.columns, shape.rows, shape.cols)

    def _vector(self, spec: TensorSpec) -> npt.NDArray[np.float32]:
        if spec.role is not Role.ATTN_QKV_BIAS:
            return self._source.vector(self._names(spec)[0], spec.part_rows[0])
        h = self._hparams
        sizes = (h.heads * h.head_dim, h.kv_heads * h.head_dim, h.kv_heads * h.head_dim)
        parts = [self._source.vector(name, size) for name, size in zip(self._names(spec), sizes, strict=True)]
        for index, part in enumerate(parts):
            if self._is_reordered(index):
                parts[index] = part[half_split_order(part.size, h.head_dim)]
        return np.concatenate(parts)

    def _is_reordered(self, part: int) -> bool:
        """Whether the rows of this part of q, k and v change their order."""
        return self._architecture.adjacent_pairs and part < ROTATED_PARTS

    def _matrix(self, spec: TensorSpec, index: int, name: str, rows: int) -> Bytes:
        """GGUF rows, uint8 [rows, row bytes], of one part in the type of `spec`."""
        if spec.expert is None:
            part = self._source.rows(name, (rows, spec.columns))
        else:
            part = self._source.rows(name, (self._hparams.experts, rows, spec.columns))[spec.expert]
        kind = self._source.kind(name)
        if kind is not spec.kind:
            values = dequantise(part, kind)
            part = values.view(np.uint8) if spec.kind is Type.F32 else quantise(values, spec.kind)
        if spec.role is Role.ATTN_QKV and self._is_reordered(index):
            part = part[half_split_order(rows, self._hparams.head_dim)]
        return np.ascontiguousarray(part)


def _tokenizer(source: GgufSource, hparams: Hyperparameters) -> tuple[Tokenizer | None, str]:
    """The tokenizer, or None and the reason. One that cannot be built does not prevent the conversion."""
    model = source.value("tokenizer.ggml.model", str, default="none")
    if model == "none":
        return None, f"the GGUF carries no tokenizer; {FEED_IDS_HINT}"
    tokens = source.value("tokenizer.ggml.tokens", list)
    vocabulary = GgufVocabulary(
        model=model,
        pre=source.value("tokenizer.ggml.pre", str, default="default"),
        tokens=tokens,
        types=source.value("tokenizer.ggml.token_type", list, default=[1] * len(tokens)),
        merges=source.value("tokenizer.ggml.merges", list, default=[]),
        bos=hparams.bos,
        add_bos=source.value("tokenizer.ggml.add_bos_token", bool, default=False),
    )
    try:
        return from_gguf(vocabulary), ""
    except UnsupportedError as error:
        return None, str(error)
