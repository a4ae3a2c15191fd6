""".cflow to a folder that Hugging Face's loaders and vLLM read: config.json and model.safetensors.

Every matrix is dequantised by this project's own code and stored as bf16, or quantised anew from those very
values to int8 or int4 (`engine.hf_forms`). The embedding and the norms are bf16 in every form, and so is a
head that is the embedding. Dense models of the llama family without delays can be written; what the loaders
have no architecture for is refused by name. The folder carries no tokenizer.

Each tensor is written whole before the next, some stripes of tiles at a time: memory is bounded by some
100 MiB and the pages of the source.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.direct_io import SequentialWriter
from engine.enums import Role
from engine.errors import UnsupportedError
from engine.export_gguf import architecture_of
from engine.format import CflowFile, TensorEntry, read_file
from engine.hf_forms import (
    GROUP_COLUMNS,
    HEAD,
    HfForm,
    as_bytes,
    bf16_bits,
    encode,
    quantization_config,
    shape_bytes,
    tensors_of,
)
from engine.part_rows import part_rows
from engine.pending import PendingFile, PendingFolder
from engine.safetensors_target import SafeTensor, header
from engine.tensors import checked_specs, shape_of
from engine.tiles import Bytes, dequantise

CONFIG = "config.json"
WEIGHTS = "model.safetensors"

#: GGUF architecture -> the loaders' class and model_type.
ARCHITECTURES = {
    "llama": ("LlamaForCausalLM", "llama"),
    "qwen2": ("Qwen2ForCausalLM", "qwen2"),
    "qwen3": ("Qwen3ForCausalLM", "qwen3"),
}

#: Role -> names of its parts; {b} is the block. Matrices and biases get ".weight" or ".bias".
_NAMES: dict[Role, tuple[str, ...]] = {
    Role.EMBEDDING: ("model.embed_tokens",),
    Role.ATTN_NORM: ("model.layers.{b}.input_layernorm",),
    Role.ATTN_QKV: tuple(f"model.layers.{{b}}.self_attn.{part}_proj" for part in "qkv"),
    Role.ATTN_QKV_BIAS: tuple(f"model.layers.{{b}}.self_attn.{part}_proj" for part in "qkv"),
    Role.ATTN_Q_NORM: ("model.layers.{b}.self_attn.q_norm",),
    Role.ATTN_K_NORM: ("model.layers.{b}.self_attn.k_norm",),
    Role.ATTN_OUTPUT: ("model.layers.{b}.self_attn.o_proj",),
    Role.FFN_NORM: ("model.layers.{b}.post_attention_layernorm",),
    Role.FFN_GATE_UP: ("model.layers.{b}.mlp.gate_proj", "model.layers.{b}.mlp.up_proj"),
    Role.FFN_DOWN: ("model.layers.{b}.mlp.down_proj",),
    Role.OUTPUT_NORM: ("model.norm",),
    Role.HEAD: (HEAD,),
}


@dataclass(frozen=True)
class HfExport:
    """What was written. `weight_bytes`: of all tensors. `bytes_per_token`: of those that a decoded token
    reads: all, but of the embedding one row, and a second time whole where it is the head."""

    path: Path
    form: HfForm
    architecture: str
    tensors: int
    weight_bytes: int
    bytes_per_token: int
    elapsed_ns: int


def export_hf(
    source_path: Path,
    folder: Path,
    form: HfForm,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> HfExport:
    """Writes a dense .cflow model as a folder. `progress(done, total)` counts bytes of the weights.

    A folder that an earlier export wrote is replaced, anything else in the way is not. Raises
    UnsupportedError naming what the loaders cannot run, ChecksumError naming a damaged tensor, FormatError
    and FileError; nothing half-written stays.
    """
    started_ns = time.monotonic_ns()
    exporter = _Exporter(read_file(source_path), form)
    parts = exporter.parts()
    front = header([tensor for part in parts for tensor in part.tensors])
    sizes = [sum(tensor.bytes for tensor in part.tensors) for part in parts]
    total = len(front) + sum(sizes)
    config = exporter.config()
    with PendingFolder(folder, (CONFIG, WEIGHTS)) as pending:
        with PendingFile(pending.temporary / WEIGHTS, total) as file:
            writer = SequentialWriter(file, total)
            writer.write(np.frombuffer(front, np.uint8))
            for part in parts:
                for piece in exporter.data(part):
                    writer.write(piece)
                    if progress is not None:
                        progress(writer.position, total)
            writer.finish()
            file.commit()
        text = json.dumps(config, indent=2).encode() + b"\n"
        with PendingFile(pending.temporary / CONFIG, len(text)) as file:
            file.write_at(0, text)
            file.commit()
        pending.commit()
    return HfExport(
        path=folder,
        form=form,
        architecture=exporter.architecture,
        tensors=sum(len(part.tensors) for part in parts),
        weight_bytes=sum(sizes),
        bytes_per_token=exporter.bytes_per_token(parts),
        elapsed_ns=time.monotonic_ns() - started_ns,
    )


@dataclass(frozen=True)
class _Part:
    """Part `part` of a stored tensor, and the tensors that hold it."""

    entry: TensorEntry
    part: int
    form: HfForm
    tensors: tuple[SafeTensor, ...]


class _Exporter:
    """Which tensors there are, and their bytes."""

    def __init__(self, file: CflowFile, form: HfForm) -> None:
        self._file = file
        self._hparams = file.hparams
        self._form = form
        what = str(file.path)
        if file.hparams.experts:
            raise UnsupportedError(
                f"{what}: has {file.hparams.experts} experts, only dense models are exported"
            )
        bias, norm = (file.entry(role, 0) is not None for role in (Role.ATTN_QKV_BIAS, Role.ATTN_Q_NORM))
        self._gguf = architecture_of(file.hparams, bias, norm, what).name
        h = file.hparams
        if self._gguf == "qwen2" and h.heads * h.head_dim != h.d_model:
            raise UnsupportedError(
                f"{what}: heads * head_dim is {h.heads * h.head_dim}, a Qwen2 has d_model = {h.d_model}"
            )
        if form is HfForm.INT4:
            self._check_groups()

    @property
    def architecture(self) -> str:
        """The loaders' class."""
        return ARCHITECTURES[self._gguf][0]

    def config(self) -> dict[str, Any]:
        """config.json."""
        h = self._hparams
        name, kind = ARCHITECTURES[self._gguf]
        quantization = quantization_config(self._form, head=not h.tied_head)
        return {
            "architectures": [name],
            "model_type": kind,
            "hidden_size": h.d_model,
            "intermediate_size": h.ffn_hidden,
            "num_hidden_layers": h.layers,
            "num_attention_heads": h.heads,
            "num_key_value_heads": h.kv_heads,
            "head_dim": h.head_dim,
            "vocab_size": h.vocab,
            "max_position_embeddings": h.context,
            "rms_norm_eps": h.rms_eps,
            "rope_theta": h.rope_base,
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": h.tied_head,
            "bos_token_id": h.bos,
            "eos_token_id": h.eos,
            "torch_dtype": "bfloat16",
            **({} if quantization is None else {"quantization_config": quantization}),
        }

    def parts(self) -> list[_Part]:
        """In layer-major order, whatever that of the file."""
        entries = {entry.spec.key: entry for entry in self._file.tensors}
        specs = checked_specs(self._hparams, (entry.spec for entry in self._file.tensors))
        return [
            self._part(entries[spec.key], part, name.format(b=spec.block))
            for spec in specs
            for part, name in enumerate(_NAMES[spec.role])
        ]

    def bytes_per_token(self, parts: list[_Part]) -> int:
        """What a decoded token reads."""
        row = 2 * self._hparams.d_model
        tables = [part for part in parts if part.entry.spec.role is Role.EMBEDDING]
        table = sum(tensor.bytes for part in tables for tensor in part.tensors)
        every = sum(tensor.bytes for part in parts for tensor in part.tensors)
        return every + row - (0 if self._hparams.tied_head else table)

    def data(self, part: _Part) -> Iterator[Bytes]:
        """The bytes of a part's tensors, in their order, some rows at a time."""
        spec = part.entry.spec
        if spec.is_vector:
            yield self._vector(part)
            return
        scales = []
        for rows in part_rows(self._file, part.entry, part.part):
            weights, scale = encode(dequantise(rows, spec.kind), part.form)
            scales.append(scale)
            yield weights
        yield from scales
        if part.form is HfForm.INT4:
            yield shape_bytes(spec.part_rows[part.part], spec.columns)

    def _part(self, entry: TensorEntry, part: int, name: str) -> _Part:
        spec = entry.spec
        if spec.is_vector:
            kind, rows = "weight", spec.part_rows[0]
            if spec.role is Role.ATTN_QKV_BIAS:
                kind, rows = "bias", self._qkv_rows()[part]
            return _Part(entry, part, HfForm.BF16, (SafeTensor(f"{name}.{kind}", "BF16", (rows,)),))
        form = HfForm.BF16 if spec.role is Role.EMBEDDING else self._form
        return _Part(entry, part, form, tensors_of(name, spec.part_rows[part], spec.columns, form))

    def _vector(self, part: _Part) -> Bytes:
        spec = part.entry.spec
        values = self._file.data(part.entry).view(np.float32)[: spec.part_rows[0]]
        if spec.role is Role.ATTN_QKV_BIAS:
            values = np.split(values, np.cumsum(self._qkv_rows())[:-1])[part.part]
        return as_bytes(bf16_bits(values))

    def _qkv_rows(self) -> tuple[int, ...]:
        shape = shape_of(self._hparams, Role.ATTN_QKV)
        assert shape is not None  # every model has one
        return shape[0]

    def _check_groups(self) -> None:
        for entry in self._file.tensors:
            spec = entry.spec
            if not spec.is_vector and spec.role is not Role.EMBEDDING and spec.columns % GROUP_COLUMNS:
                raise UnsupportedError(
                    f"{self._file.path}: {spec.name} has {spec.columns} columns, int4 needs a multiple of "
                    f"{GROUP_COLUMNS}"
                )
