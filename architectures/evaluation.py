"""Perplexity of a text by PyTorch, as `engine.perplexity` defines it with a stride of the window."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from architectures.model import Decoder
from engine.perplexity import windows

_BATCH = 16


@dataclass(frozen=True)
class Evaluation:
    """log_perplexity: mean of -ln p, in nats. top1: share of tokens that were the most likely one."""

    log_perplexity: float
    top1: float
    tokens: int


def evaluate(
    model: Decoder, tokens: NDArray[np.uint16], sequence: int, most: int | None = None
) -> Evaluation:
    """Windows of `sequence` predictions, whole ones side by side; at most `most` predictions."""
    ids = torch.from_numpy(tokens[: None if most is None else most + 1].astype(np.int64))
    count = len(ids) - 1
    batches: list[list[slice]] = []
    for window in windows(len(ids), sequence, sequence):
        alike = window.last - window.first == sequence
        if not batches or not alike or len(batches[-1]) == _BATCH:
            batches.append([])
        batches[-1].append(slice(window.first, window.last))
    loss, hits = 0.0, 0
    with torch.inference_mode():
        for batch in batches:
            given = torch.stack([ids[:-1][window] for window in batch])
            wanted = torch.stack([ids[1:][window] for window in batch]).flatten()
            logits = model(given).flatten(0, 1)
            loss += float(functional.cross_entropy(logits.float(), wanted, reduction="none").double().sum())
            hits += int((logits.argmax(-1) == wanted).sum())
    return Evaluation(loss / count, hits / count, count)
