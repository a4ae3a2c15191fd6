"""Small GGUF files of architecture llama and its relatives, whole or spoilt on purpose."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType

from engine.enums import Type
from engine.tiles import quantise

VOCAB = [*(chr(code) for code in range(0x21, 0x7F)), "Ġ", "Ċ", "th", "the", "Ġthe", "<|end|>"]
MERGES = ["t h", "th e", "Ġ the"]
END = VOCAB.index("<|end|>")


#: Arguments of `LlamaGguf` for each relative of llama.
RELATIVES: dict[str, dict[str, Any]] = {
    "llama with biases": {"bias": True},
    "llama with experts": {"experts": 3},
    "qwen2": {"architecture": "qwen2", "bias": True},
    "qwen3": {"architecture": "qwen3", "qk_norm": True, "head_dim": 32, "tied": False},
    "qwen3moe": {"architecture": "qwen3moe", "qk_norm": True, "head_dim": 32, "experts": 3},
}


@dataclass
class LlamaGguf:
    """Metadata and tensors of a random model of architecture llama or a relative; both may be edited before
    `write`.

    A tensor is (type, rows): for quantised types uint8 [..., row bytes], else values.
    """

    architecture: str = "llama"

    layers: int = 2
    d_model: int = 64
    heads: int = 4
    kv_heads: int = 2
    head_dim: int | None = None
    """d_model / heads, and no key in the file, when None."""
    hidden: int = 96
    experts: int = 0
    kind: Type = Type.Q4_0
    tied: bool = True
    bias: bool = False
    qk_norm: bool = False
    rope_base: float = 10000.0
    eps: float = 1e-5
    seed: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, tuple[GGMLQuantizationType, npt.NDArray[Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)
        self.metadata = {
            "general.architecture": self.architecture,
            "general.name": "test model",
            f"{self.architecture}.block_count": self.layers,
            f"{self.architecture}.context_length": 64,
            f"{self.architecture}.embedding_length": self.d_model,
            f"{self.architecture}.feed_forward_length": self.hidden,
            f"{self.architecture}.attention.head_count": self.heads,
            f"{self.architecture}.attention.head_count_kv": self.kv_heads,
            f"{self.architecture}.attention.layer_norm_rms_epsilon": self.eps,
            f"{self.architecture}.rope.freq_base": self.rope_base,
            f"{self.architecture}.vocab_size": len(VOCAB),
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "smollm",
            "tokenizer.ggml.tokens": list(VOCAB),
            "tokenizer.ggml.token_type": [3 if token == "<|end|>" else 1 for token in VOCAB],
            "tokenizer.ggml.merges": list(MERGES),
            "tokenizer.ggml.eos_token_id": END,
        }
        head_dim = self.head_dim or self.d_model // self.heads
        if self.head_dim is not None:
            self.metadata[f"{self.architecture}.attention.key_length"] = head_dim
            self.metadata[f"{self.architecture}.attention.value_length"] = head_dim
        self.matrix("token_embd.weight", len(VOCAB), self.d_model)
        if not self.tied:
            self.matrix("output.weight", len(VOCAB), self.d_model)
        self.vector("output_norm.weight", self.d_model)
        for block in range(self.layers):
            name = f"blk.{block}."
            for part, heads in (("q", self.heads), ("k", self.kv_heads), ("v", self.kv_heads)):
                self.matrix(f"{name}attn_{part}.weight", heads * head_dim, self.d_model)
                if self.bias:
                    self.vector(f"{name}attn_{part}.bias", heads * head_dim)
                if self.qk_norm and part != "v":
                    self.vector(f"{name}attn_{part}_norm.weight", head_dim)
            self.matrix(f"{name}attn_output.weight", self.d_model, self.heads * head_dim)
            self.vector(f"{name}attn_norm.weight", self.d_model)
            self.vector(f"{name}ffn_norm.weight", self.d_model)
            if self.experts:
                self._experts(name)
            else:
                self.matrix(f"{name}ffn_gate.weight", self.hidden, self.d_model)
                self.matrix(f"{name}ffn_up.weight", self.hidden, self.d_model)
                self.matrix(f"{name}ffn_down.weight", self.d_model, self.hidden)
        if self.experts:
            self.metadata[f"{self.architecture}.expert_count"] = self.experts
            self.metadata[f"{self.architecture}.expert_used_count"] = 2
            if self.architecture == "qwen3moe":
                self.metadata["qwen3moe.expert_feed_forward_length"] = self.hidden

    def _experts(self, name: str) -> None:
        self.matrix(f"{name}ffn_gate_inp.weight", self.experts, self.d_model, Type.F32)
        for part, rows, columns in (
            ("gate", self.hidden, self.d_model),
            ("up", self.hidden, self.d_model),
            ("down", self.d_model, self.hidden),
        ):
            key = f"{name}ffn_{part}_exps.weight"
            self.matrix(key, self.experts * rows, columns)
            kind, data = self.tensors[key]
            self.tensors[key] = kind, data.reshape(self.experts, rows, -1)

    def matrix(self, name: str, rows: int, columns: int, kind: Type | None = None) -> None:
        """Adds a random matrix of deviation 1 / sqrt(columns)."""
        values = self._rng.standard_normal((rows, columns), np.float32) / np.float32(math.sqrt(columns))
        kind = self.kind if kind is None else kind
        if kind in (Type.F32, Type.F16):
            data = values.astype(np.float32 if kind is Type.F32 else np.float16)
        else:
            data = quantise(values, kind)
        self.tensors[name] = GGMLQuantizationType[kind.name], data

    def vector(self, name: str, size: int) -> None:
        """Adds a vector of values near 1."""
        values = 1 + 0.1 * self._rng.standard_normal(size, np.float32)
        self.tensors[name] = GGMLQuantizationType.F32, values.astype(np.float32)

    def write(self, path: Path) -> Path:
        """Writes the file; returns `path`."""
        writer = gguf.GGUFWriter(path, self.metadata["general.architecture"])
        for key, value in self.metadata.items():
            if key != "general.architecture":
                _add(writer, key)(key, value)
        for name, (kind, data) in self.tensors.items():
            writer.add_tensor(name, data, raw_dtype=None if data.dtype.kind == "f" else kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path


def _add(writer: gguf.GGUFWriter, key: str) -> Callable[[str, Any], None]:
    value_kinds: dict[type, Callable[[str, Any], None]] = {
        bool: writer.add_bool,
        int: writer.add_uint32,
        float: writer.add_float32,
        str: writer.add_string,
        list: writer.add_array,
    }

    def add(name: str, value: Any) -> None:
        value_kinds[type(value)](name, value)

    return add
