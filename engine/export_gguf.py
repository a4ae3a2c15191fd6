""".cflow to GGUF, block for block: the inverse of `engine.convert_gguf`.

GGUF describes models without delays, with SwiGLU, and with either a dense feed-forward network or experts
whose probabilities are renormalised; others are refused by name. The architecture follows from the tensors:
qwen3 or qwen3moe with norms of q and k, qwen2 with biases and no experts, else llama, whose rows of q and k
return to the order for rotary pairs of adjacent elements. The file carries no tokenizer.

Each GGUF tensor is written whole before the next, some stripes of tiles at a time: memory is bounded by some
20 MiB and the pages of the source.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from engine.direct_io import SequentialWriter
from engine.enums import Activation, Architecture, Role, Route
from engine.errors import UnsupportedError
from engine.format import CflowFile, TensorEntry, read_file
from engine.gguf_names import ARCHITECTURES, NAMES, ROTATED_PARTS, GgufArchitecture, adjacent_order
from engine.gguf_target import ALIGN_BYTES, GgufTensor, MetadataValue, plan_gguf
from engine.hyperparameters import Hyperparameters
from engine.part_rows import part_rows
from engine.pending import PendingFile
from engine.tensors import EXPERT_ROLES, checked_specs, shape_of
from engine.tiles import Bytes


@dataclass(frozen=True)
class Export:
    """What was written. `had_tokenizer`: the source has one, which the GGUF file lacks. `note` says why the
    page cache was used, or is ""."""

    path: Path
    architecture: str
    tensors: int
    file_bytes: int
    had_tokenizer: bool
    elapsed_ns: int
    note: str


def export(
    source_path: Path,
    target_path: Path,
    *,
    align_bytes: int = ALIGN_BYTES,
    progress: Callable[[int, int], None] | None = None,
) -> Export:
    """Writes a .cflow model as GGUF. `progress(done, total)` counts bytes of the GGUF file.

    Tensors begin at multiples of `align_bytes`: with that of a page, no page holds bytes of two of them.

    Raises UnsupportedError naming what GGUF cannot say, ChecksumError naming a damaged tensor, FormatError
    and FileError; nothing half-written stays.
    """
    started_ns = time.monotonic_ns()
    file = read_file(source_path)
    bias, norm = (file.entry(role, 0) is not None for role in (Role.ATTN_QKV_BIAS, Role.ATTN_Q_NORM))
    architecture = architecture_of(file.hparams, bias, norm, str(source_path))
    exporter = _Exporter(file, architecture)
    tensors = exporter.tensors()
    layout = plan_gguf(exporter.metadata(), [tensor.info for tensor in tensors], align_bytes)
    with PendingFile(target_path, layout.file_bytes) as pending:
        writer = SequentialWriter(pending, layout.file_bytes)
        writer.write(np.frombuffer(layout.front, np.uint8))
        for tensor, offset in zip(tensors, layout.offsets, strict=True):
            writer.pad_to(offset)
            for rows in exporter.data(tensor):
                writer.write(rows)
                if progress is not None:
                    progress(writer.position, layout.file_bytes)
        writer.pad_to(layout.file_bytes)
        writer.finish()
        pending.commit()
    return Export(
        path=target_path,
        architecture=architecture.name,
        tensors=len(tensors),
        file_bytes=layout.file_bytes,
        had_tokenizer=file.tokenizer_json is not None,
        elapsed_ns=time.monotonic_ns() - started_ns,
        note=writer.note,
    )


def architecture_of(hparams: Hyperparameters, qkv_bias: bool, qk_norm: bool, what: str) -> GgufArchitecture:
    """The GGUF architecture of a model with or without biases of q, k and v, and norms of q and k.

    Raises UnsupportedError that begins with `what` and says why there is none.
    """
    h = hparams
    reasons = {
        f"architecture is {h.architecture.name.lower()}": h.architecture is not Architecture.DELAYED,
        f"dense_delay is {h.dense_delay}": h.dense_delay != 0,
        f"expert_delay is {h.expert_delay}": h.expert_delay != 0,
        f"route is {h.route.name.lower()}": h.route is not Route.CURRENT,
        f"{h.layers} layers share {h.blocks} blocks": h.blocks != h.layers,
        f"activation is {h.activation.name.lower()}": h.activation is not Activation.SWIGLU,
        "a layer has a dense network and experts": h.experts > 0 and h.ffn_hidden > 0,
        "norm_topk is 0": h.experts > 0 and not h.norm_topk,
        "q and k have biases and norms": qkv_bias and qk_norm,
    }
    found = [reason for reason, holds in reasons.items() if holds]
    if found:
        raise UnsupportedError(
            f"{what}: no GGUF architecture describes this model: {'; '.join(found)}. It needs delays of 0, "
            "swiglu, a block per layer, and either a dense network or experts with norm_topk"
        )
    if qk_norm:
        return ARCHITECTURES["qwen3moe" if h.experts else "qwen3"]
    return ARCHITECTURES["qwen2" if qkv_bias and not h.experts else "llama"]


@dataclass(frozen=True)
class _Tensor:
    """A tensor of the GGUF file: part `part` of each of `entries`, one after the other."""

    info: GgufTensor
    entries: tuple[TensorEntry, ...]
    part: int


class _Exporter:
    """Which tensors and parts make up each GGUF tensor, and their bytes."""

    def __init__(self, file: CflowFile, architecture: GgufArchitecture) -> None:
        self._file = file
        self._hparams = file.hparams
        self._architecture = architecture
        qkv = shape_of(file.hparams, Role.ATTN_QKV)
        assert qkv is not None  # every model has one
        self._qkv_rows, _ = qkv

    def metadata(self) -> dict[str, MetadataValue]:
        """All keys; the file names no tokenizer."""
        h = self._hparams
        values: dict[str, MetadataValue] = {
            "context_length": h.context,
            "embedding_length": h.d_model,
            "block_count": h.layers,
            "feed_forward_length": h.expert_hidden if h.experts else h.ffn_hidden,
            "vocab_size": h.vocab,
            "attention.head_count": h.heads,
            "attention.head_count_kv": h.kv_heads,
            "attention.key_length": h.head_dim,
            "attention.value_length": h.head_dim,
            "attention.layer_norm_rms_epsilon": h.rms_eps,
            "rope.dimension_count": h.head_dim,
            "rope.freq_base": h.rope_base,
        }
        if h.experts:
            values |= {
                "expert_count": h.experts,
                "expert_used_count": h.experts_per_token,
                "expert_feed_forward_length": h.expert_hidden,
            }
        return {
            "general.architecture": self._architecture.name,
            **({"general.name": self._file.name} if self._file.name else {}),
            **{f"{self._architecture.name}.{key}": value for key, value in values.items()},
            "tokenizer.ggml.model": "none",
        }

    def tensors(self) -> list[_Tensor]:
        """In layer-major order whatever that of the file, experts stacked."""
        entries = {entry.spec.key: entry for entry in self._file.tensors}
        stacks: dict[tuple[Role, int | None], list[TensorEntry]] = {}
        for spec in checked_specs(self._hparams, (entry.spec for entry in self._file.tensors)):
            stacks.setdefault((spec.role, spec.block), []).append(entries[spec.key])
        return [
            _Tensor(self._info(name.format(b=block), part, entries), tuple(entries), part)
            for (role, block), entries in stacks.items()
            for part, name in enumerate(NAMES[role])
        ]

    def _info(self, name: str, part: int, entries: list[TensorEntry]) -> GgufTensor:
        spec = entries[0].spec
        if spec.role is Role.ATTN_QKV_BIAS:
            shape: tuple[int, ...] = (self._qkv_rows[part],)
        elif spec.is_vector:
            shape = spec.part_rows
        else:
            shape = (spec.part_rows[part], spec.columns)
        stacked = spec.role in EXPERT_ROLES
        return GgufTensor(name, spec.kind, (len(entries), *shape) if stacked else shape)

    def data(self, tensor: _Tensor) -> Iterator[Bytes]:
        """The bytes of a GGUF tensor, some rows at a time."""
        for entry in tensor.entries:
            if entry.spec.is_vector:
                yield self._vector(entry, tensor.part).view(np.uint8)
            else:
                yield from self._rows(entry, tensor.part)

    def _reordered(self, role: Role, part: int) -> bool:
        fused = role in (Role.ATTN_QKV, Role.ATTN_QKV_BIAS)
        return self._architecture.adjacent_pairs and fused and part < ROTATED_PARTS

    def _vector(self, entry: TensorEntry, part: int) -> npt.NDArray[np.float32]:
        values = self._file.data(entry).view(np.float32)[: entry.spec.part_rows[0]]
        if entry.spec.role is not Role.ATTN_QKV_BIAS:
            return values
        values = np.split(values, np.cumsum(self._qkv_rows)[:-1])[part]
        if self._reordered(entry.spec.role, part):
            values = values[adjacent_order(values.size, self._hparams.head_dim)]
        return values

    def _rows(self, entry: TensorEntry, part: int) -> Iterator[Bytes]:
        """GGUF rows, uint8 [rows, row bytes], of bands of whole stripes and, where rows move, whole heads."""
        reordered = self._reordered(entry.spec.role, part)
        tile_rows, head_dim = self._hparams.tile_shape.rows, self._hparams.head_dim
        unit = math.lcm(tile_rows, head_dim) // tile_rows if reordered else 1
        for band in part_rows(self._file, entry, part, unit):
            yield band[adjacent_order(band.shape[0], head_dim)] if reordered else band
