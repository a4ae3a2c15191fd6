"""What the tests of residency `direct` share: states of a session to compare, and the blobs of a model."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.enums import Param
from engine.model import Model
from engine.session import OptionValue, Session

PAGE_BYTES = 4096


class State:
    """What a session tells after a prompt: logits, greedy continuation, norms, routing, bit for bit."""

    def __init__(self, model: Model, prompt: list[int], n: int = 3, **options: OptionValue) -> None:
        with Session(model, **options) as session:
            self.logits = session.decode(prompt).view(np.uint32)
            self.norms = session.residual_norms().view(np.uint32)
            none = np.zeros(0, np.int32), np.zeros(0, np.float32)
            self.experts, weights = session.routing() if model.param(Param.EXPERTS) else none
            self.weights = weights.view(np.uint32)
            self.tokens, _ = session.generate(prompt[0], n)
            self.next_logits = session.logits().view(np.uint32)
            self.position = session.position
            self.counters = session.counters()

    def assert_equal(self, other: State) -> None:
        for name in ("logits", "norms", "experts", "weights", "tokens", "next_logits"):
            np.testing.assert_array_equal(getattr(self, name), getattr(other, name), err_msg=name)
        assert self.position == other.position


def prompt_of(model: Model, count: int, seed: int = 0) -> list[int]:
    """Tokens of the model, spread over its vocabulary."""
    return [int(token) for token in np.random.default_rng(seed).integers(0, model.vocab, count)]


def blobs(model: Model) -> dict[tuple[int, int], tuple[int, int]]:
    """Offset and bytes of each expert, by (block, expert): both matrices and the gap between them."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for tensor in model.tensors:
        if tensor.block is not None and tensor.expert is not None:
            begin, size = found.get((tensor.block, tensor.expert), (tensor.offset, 0))
            low, high = min(begin, tensor.offset), max(begin + size, tensor.offset + tensor.bytes)
            found[tensor.block, tensor.expert] = (low, high - low)
    return found


def asked_bytes(model: Model, routed: NDArray[np.int32]) -> int:
    """Bytes of the experts [layers, k], each in whole pages as far as the file goes."""
    places, blocks = blobs(model), model.param(Param.BLOCKS)
    total = 0
    for layer, row in enumerate(routed):
        for expert in row:
            begin, size = places[layer % blocks, int(expert)]
            total += min(begin + -(-size // PAGE_BYTES) * PAGE_BYTES, model.file_bytes) - begin
    return total
