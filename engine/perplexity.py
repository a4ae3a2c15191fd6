"""Perplexity of a text: exp of the mean of -ln p over its tokens, each given the tokens before it.

Definition, which training uses as well. The text has T tokens, t[0] .. t[T-1]. A window begins at s = 0,
stride, 2 stride, ... with an empty cache, takes up to `window` tokens t[s], t[s+1], ... in, and predicts the
token behind each of them. A token counts in the first window that predicts it. So t[0] is never predicted,
every other token counts once, and with stride = window (the default) the windows do not overlap: the first
token that a window predicts is given one token, the last one `window` of them. A smaller stride gives every
token, after the first window, at least window - stride + 1 tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.errors import ArgumentError
from engine.session import Session

DEFAULT_WINDOW = 512
#: Tokens of one call: a few chunks of a prompt, whose logits stay small beside any model.
_CALL_TOKENS = 64


@dataclass(frozen=True)
class Perplexity:
    """`nats`: -ln p of every token that counts, float64 [tokens], in the order of the text."""

    nats: npt.NDArray[np.float64]
    fed: int
    """Tokens that were computed; more than count when windows overlap."""
    wall_ns: int
    """Spent in the engine."""

    @property
    def tokens(self) -> int:
        """How many tokens count."""
        return len(self.nats)

    @property
    def nats_per_token(self) -> float:
        """The mean of -ln p."""
        return math.fsum(self.nats) / self.tokens

    @property
    def value(self) -> float:
        """The perplexity."""
        return math.exp(self.nats_per_token)


@dataclass(frozen=True)
class Window:
    """Tokens first .. last - 1 go in; of the predictions those from token `counted` on count."""

    first: int
    last: int
    counted: int


def windows(tokens: int, window: int, stride: int) -> Iterator[Window]:
    """The windows over a text of `tokens` tokens. Raises ArgumentError naming what is not allowed."""
    if window < 1:
        raise ArgumentError(f"window is {window}, must be at least 1")
    if not 1 <= stride <= window:
        raise ArgumentError(f"stride is {stride}, must be 1 to the window, {window}")
    if tokens < 2:
        raise ArgumentError(
            f"the text has {tokens} tokens, at least 2 are needed: the first is not predicted"
        )
    counted = 1
    for first in range(0, tokens - 1, stride):
        last = min(first + window, tokens - 1)
        yield Window(first, last, counted)
        counted = last + 1
        if counted == tokens:
            return


def perplexity(
    session: Session,
    tokens: Sequence[int],
    window: int,
    stride: int,
    progress: Callable[[int, int], None] | None = None,
) -> Perplexity:
    """Perplexity of `tokens` under the model of `session`, which is reset for each window.

    `progress(done, total)` counts tokens that count. Raises ArgumentError, ContextError when a window is
    longer than the context of the session, NonFiniteError and CancelledError.
    """
    nats: list[npt.NDArray[np.float64]] = []
    fed = 0
    session.reset_counters()
    for one in windows(len(tokens), window, stride):
        session.reset()
        for first in range(one.first, one.last, _CALL_TOKENS):
            last = min(first + _CALL_TOKENS, one.last)
            logits = session.decode_all(tokens[first:last])
            fed += last - first
            skipped = max(one.counted - (first + 1), 0)
            if skipped < last - first:
                targets = np.asarray(tokens[first + 1 + skipped : last + 1])
                nats.append(negative_log_probabilities(logits[skipped:], targets))
            if progress is not None:
                progress(max(last, one.counted - 1), len(tokens) - 1)
    return Perplexity(np.concatenate(nats), fed, session.counters()["wall_ns"])


def negative_log_probabilities(
    logits: npt.NDArray[np.float32], targets: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """-ln softmax(logits)[target] of each row, in float64. logits: [rows, vocab]; targets: [rows]."""
    wide = logits.astype(np.float64)
    largest = wide.max(axis=1)
    sums = np.log(np.sum(np.exp(wide - largest[:, np.newaxis]), axis=1)) + largest
    out: npt.NDArray[np.float64] = sums - wide[np.arange(len(targets)), targets]
    return out
