"""Claim 1: geometries with experts, token ids, and which experts' addresses a token loads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from claims.models import smollm2
from claims.run import SEED
from engine.enums import Activation
from engine.geometry import Geometry
from engine.model import Model
from engine.session import Session
from engine.tokenizer import Tokenizer

TEXT: Final = Path(__file__).with_name("text.txt")
TRACE_RECORDS: Final = 1 << 18
"""Kept per worker and token: several times what these models make when they read all experts."""


def _experts_only(
    layers: int, d_model: int, heads: int, head_dim: int, experts: int, per_token: int, hidden: int
) -> Geometry:
    """Attention with two heads of keys and a small vocabulary: nearly all weights are experts."""
    return Geometry(
        layers=layers,
        blocks=layers,
        d_model=d_model,
        heads=heads,
        kv_heads=2,
        head_dim=head_dim,
        ffn_hidden=0,
        experts=experts,
        experts_per_token=per_token,
        expert_hidden=hidden,
        vocab=2048,
        context=256,
        activation=Activation.GEGLU,
    )


GEMMA_LAYER: Final = _experts_only(1, 2816, 8, 128, 128, 8, 704)
"""One layer with the experts of Gemma 4 26B-A4B after the paper; attention and vocabulary are ours."""
PAPER_LAYER: Final = Geometry.named("arch2_4_combined")
_LARGE: Final = {
    "8 top-2": _experts_only(4, 1024, 16, 64, 8, 2, 1024),
    "64 top-4": _experts_only(2, 1024, 16, 64, 64, 4, 1024),
    "128 top-8": GEMMA_LAYER,
}
_SMALL: Final = {
    "8 top-2": _experts_only(2, 256, 4, 64, 8, 2, 512),
    "64 top-4": _experts_only(2, 256, 4, 64, 64, 4, 256),
    "128 top-8": _experts_only(1, 352, 4, 64, 128, 8, 128),
}


def geometries(profile: str) -> Mapping[str, Geometry]:
    """The three shapes of routing by the label of their cell; small layers in `smoke`."""
    return _SMALL if profile == "smoke" else _LARGE


def model_name(label: str) -> str:
    """Name of the cached model of a cell: "moe-8-top-2"."""
    return f"moe-{label.replace(' ', '-')}"


def text_ids(folder: Path, vocab: int, count: int) -> list[int]:
    """Ids of claims/text.txt by SmolLM2's tokenizer, modulo `vocab`. Raises FileError without its package."""
    with Model(smollm2(folder)) as model:
        json = model.tokenizer_json
    assert json is not None
    ids = Tokenizer.from_json(json).encode(TEXT.read_text())
    return [token % vocab for token in ids[:count]]


def random_ids(vocab: int, count: int) -> list[int]:
    """Seeded uniform ids."""
    return [int(token) for token in np.random.default_rng(SEED).integers(0, vocab, count)]


def distinct_bytes(offsets: NDArray[np.uint64], sizes: NDArray[np.uint64]) -> int:
    """Bytes of the union of the ranges [offset, offset + size)."""
    order = np.argsort(offsets, kind="stable")
    starts = offsets[order].astype(np.int64)
    ends = starts + sizes[order].astype(np.int64)
    reached = np.maximum.accumulate(np.concatenate([starts[:1], ends]))[:-1]
    return int(np.maximum(ends - np.maximum(starts, reached), 0).sum())


class ExpertBank:
    """Where the experts of a model lie in its file."""

    def __init__(self, model: Model) -> None:
        tensors = sorted((t for t in model.tensors if t.expert is not None), key=lambda t: t.offset)
        self._owners = [(t.block, t.expert) for t in tensors]
        self._starts = np.array([t.offset for t in tensors], np.uint64)
        self._ends = np.array([t.offset + t.bytes for t in tensors], np.uint64)
        self.blocks = 1 + max(block for block, _ in self._owners if block is not None)
        self.experts = 1 + max(expert for _, expert in self._owners if expert is not None)
        self.offset = tensors[0].offset
        """First byte of the bank; it is the last part of the file."""
        self.expert_bytes = sum(t.bytes for t in tensors if (t.block, t.expert) == (0, 0))
        """Of one expert: gate, up and down, as stored."""

    def loaded(self, records: NDArray[np.uint64], block: int) -> tuple[tuple[int, ...], int]:
        """Experts of a block among the loads of a trace, uint64 [n, 4], and their distinct bytes."""
        at = np.searchsorted(self._starts, records[:, 0], side="right") - 1
        inside = (at >= 0) & (records[:, 0] < self._ends[np.maximum(at, 0)])
        own = inside & np.array([self._owners[index][0] == block for index in at], bool)
        experts = sorted({self._owners[index][1] for index in at[own]} - {None}, key=lambda e: e or 0)
        return tuple(e for e in experts if e is not None), distinct_bytes(records[own, 0], records[own, 1])


@dataclass(frozen=True)
class Reads:
    """Of one layer of one token: what was loaded, and what the router chose."""

    token: int
    layer: int
    experts: tuple[int, ...]
    bytes: int
    routed: tuple[int, ...]


def traced_reads(session: Session, bank: ExpertBank, ids: Sequence[int]) -> list[Reads]:
    """Feeds ids one by one; the trace of each token, by layer. One block per layer."""
    found = []
    for index, token in enumerate(ids):
        session.trace(TRACE_RECORDS)
        session.decode([token])
        records = np.concatenate([session.trace_records(thread) for thread in range(session.threads)])
        routing, _ = session.routing()
        for layer in range(bank.blocks):
            experts, size = bank.loaded(records, layer)
            found.append(Reads(index, layer, experts, size, tuple(int(e) for e in routing[layer])))
    session.trace(0)
    return found


def words(experts: Sequence[int], size_bytes: int) -> str:
    """`1 5: 1769472 bytes`"""
    return f"{' '.join(map(str, experts))}: {size_bytes} bytes"


def routing_entropy(routed: Sequence[Sequence[int]], experts: int) -> float:
    """Entropy of the choices over all tokens, over log E: 1 when every expert is chosen equally often."""
    counts = np.bincount([expert for chosen in routed for expert in chosen], minlength=experts)
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log(share)).sum() / math.log(experts))
