"""A .cflow model in PyTorch: its dequantised weights, put into the definitions of `architectures`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from architectures.config import Config
from architectures.model import Decoder
from architectures.model import Trace as ForwardTrace
from claims.parity_trace import Trace
from engine.checkpoint import TENSOR_NAMES
from engine.format import CflowFile, read_file
from engine.geometry import Geometry
from engine.perplexity import negative_log_probabilities
from engine.reference.quant import load_parts, load_vector


def decoder(path: Path) -> Decoder:
    """The model at `path` in f32, in evaluation mode."""
    file = read_file(path)
    model = Decoder(Config(file.name, _geometry(file)))
    model.load_state_dict({name: torch.from_numpy(values) for name, values in _tensors(file).items()})
    model.eval()
    return model


def trace(path: Path, tokens: Sequence[int], every: int) -> Trace:
    """What PyTorch computes for all tokens but the last; norms and logits at every `every`th position."""
    model = decoder(path)
    forward = ForwardTrace()
    with torch.inference_mode():
        logits = model(torch.tensor([list(tokens[:-1])]), forward)[0].numpy()
    ids = np.asarray(tokens, np.int32)
    positions = np.arange(0, len(ids) - 1, every, dtype=np.int32)
    two = np.sort(logits, axis=1)[:, -2:].astype(np.float64)
    norms = [np.linalg.norm(residual[0].numpy(), axis=1)[positions] for residual in forward.residuals]
    chosen = model.config.geometry.experts_per_token
    gaps = [router_gap(one[0].numpy(), chosen) for one in forward.router_logits]
    return Trace(
        tokens=ids,
        choices=logits.argmax(axis=1).astype(np.int32),
        top_gaps=((two[:, 1] - two[:, 0]) / np.abs(logits).max(axis=1)).astype(np.float32),
        router_gaps=np.min(gaps, axis=0).astype(np.float32),
        nats=negative_log_probabilities(logits, ids[1:].astype(np.int64)),
        positions=positions,
        norms=np.stack(norms, axis=1).astype(np.float32),
        logits=logits[positions],
    )


def router_gap(logits: npt.NDArray[np.float32], chosen: int) -> npt.NDArray[np.float64]:
    """(p_k - p_k+1) / p_k of each row, p descending: the softmax cancels. Infinite when all are chosen."""
    if chosen == logits.shape[1]:
        return np.full(len(logits), np.inf)
    descending = -np.sort(-logits.astype(np.float64), axis=1)
    gap: npt.NDArray[np.float64] = -np.expm1(descending[:, chosen] - descending[:, chosen - 1])
    return gap


def _geometry(file: CflowFile) -> Geometry:
    h = file.hparams
    return Geometry(
        layers=h.layers,
        d_model=h.d_model,
        heads=h.heads,
        kv_heads=h.kv_heads,
        head_dim=h.head_dim,
        ffn_hidden=h.ffn_hidden,
        vocab=h.vocab,
        context=h.context,
        blocks=h.blocks,
        experts=h.experts,
        experts_per_token=h.experts_per_token,
        expert_hidden=h.expert_hidden,
        dd=h.dense_delay,
        de=h.expert_delay,
        route=h.route,
        activation=h.activation,
        architecture=h.architecture,
        eps=h.rms_eps,
        rope_base=h.rope_base,
        norm_topk=h.norm_topk,
        tied=h.tied_head,
    )


def _tensors(file: CflowFile) -> dict[str, npt.NDArray[np.float32]]:
    """Dequantised weights by their names in PyTorch, experts stacked."""
    single: dict[str, npt.NDArray[np.float32]] = {}
    stacked: dict[str, list[npt.NDArray[np.float32]]] = {}
    for entry in sorted(file.tensors, key=lambda entry: entry.spec.expert or 0):
        spec = entry.spec
        if spec.is_vector:
            parts = [load_vector(file, entry, np.float32)]
        else:
            parts = [part.values for part in load_parts(file, entry, np.float32)]
        for name, values in zip(TENSOR_NAMES[spec.role], parts, strict=True):
            full = name.format(b=spec.block)
            if spec.expert is None:
                single[full] = values
            else:
                stacked.setdefault(full, []).append(values)
    return {**single, **{name: np.stack(values) for name, values in stacked.items()}}
