"""Perplexity of a text: every token but the first is predicted once, from at most `sequence` before it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from architectures.model import Decoder

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
    """Windows of `sequence` predictions side by side, the last one shorter; at most `most` predictions."""
    ids = torch.from_numpy(tokens[: None if most is None else most + 1].astype(np.int64))
    count = len(ids) - 1
    whole = count // sequence
    inputs, targets = ids[:-1], ids[1:]
    cut = whole * sequence
    rows = (part[:cut].view(whole, sequence).split(_BATCH) for part in (inputs, targets))
    batches = list(zip(*rows, strict=True)) if whole else []
    if cut < count:
        batches.append((inputs[cut:][None], targets[cut:][None]))
    loss, hits = 0.0, 0
    with torch.inference_mode():
        for given, wanted in batches:
            logits = model(given).flatten(0, 1)
            wanted = wanted.flatten()
            loss += float(functional.cross_entropy(logits.float(), wanted, reduction="none").double().sum())
            hits += int((logits.argmax(-1) == wanted).sum())
    return Evaluation(loss / count, hits / count, count)
