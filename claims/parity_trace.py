"""What PyTorch computed for a text, as the claims compare it with the engine, and what the engine computes.

A pinned trace is a pair of files: NAME.cflow, a small trained model in q4_0, and NAME.npz, PyTorch's results
on its dequantised weights in f32. `python -m tools.pin_parity` makes them.

Notation: T tokens are fed, position i predicts token i + 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from engine.model import Model
from engine.perplexity import negative_log_probabilities
from engine.session import OptionValue, Session

PINNED: Final = Path(__file__).with_name("parity")
SIX: Final = ("arch1", "arch2_4_combined", "arch2_4_sync", "arch3", "arch4", "arch5")
TEXT_TOKENS: Final = 512
NEAR_TIE: Final = 1e-4
"""Relative gap below which rounding may decide between two logits, or two experts."""
EXACT: Final[Mapping[str, OptionValue]] = {"q8_activations": 0, "kv_f32": 1}
"""Options of a session that rounds no activation, key or value."""

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Trace:
    """PyTorch's results for T tokens.

    tokens: int32 [T + 1], the last one only predicted. choices: int32 [T], argmax. top_gaps: [T], largest
    less second logit over the largest |logit|. router_gaps: [T], least over the layers of
    (p_k - p_k+1) / p_k, p descending. nats: float64 [T], -ln p of the next token. positions: int32 [P], where
    norms [P, residuals], of the residual stream, and logits [P, vocab] are kept.
    """

    tokens: npt.NDArray[np.int32]
    choices: npt.NDArray[np.int32]
    top_gaps: Floats
    router_gaps: Floats
    nats: npt.NDArray[np.float64]
    positions: npt.NDArray[np.int32]
    norms: Floats
    logits: Floats

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads what `save()` wrote."""
        with np.load(path, allow_pickle=False) as stored:
            return cls(**{item.name: stored[item.name] for item in fields(cls)})

    def save(self, path: Path) -> None:
        """Writes an .npz; equal traces give equal bytes."""
        np.savez_compressed(path, **{item.name: getattr(self, item.name) for item in fields(self)})

    def first(self, count: int) -> Trace:
        """The same for the first `count` tokens."""
        kept = self.positions < count
        return Trace(
            self.tokens[: count + 1],
            self.choices[:count],
            self.top_gaps[:count],
            self.router_gaps[:count],
            self.nats[:count],
            self.positions[kept],
            self.norms[kept],
            self.logits[kept],
        )

    @property
    def exempt(self) -> npt.NDArray[np.bool_]:
        """Positions, [T], where the choice is a near tie, or rests on experts whose choice is one."""
        out: npt.NDArray[np.bool_] = (self.top_gaps < NEAR_TIE) | (self.router_gaps < NEAR_TIE)
        return out


@dataclass(frozen=True)
class Observed:
    """The engine's results for the tokens of a trace; the arrays are those of `Trace`.

    errors: [P], |ours - theirs| / |theirs| over the logits of a position.
    """

    choices: npt.NDArray[np.int32]
    nats: npt.NDArray[np.float64]
    norms: Floats
    errors: npt.NDArray[np.float64]


def observe(path: Path, trace: Trace, **options: OptionValue) -> Observed:
    """Feeds the tokens of `trace` to the model at `path`, up to each position that is kept in one call."""
    count = len(trace.choices)
    targets = trace.tokens[1:].astype(np.int64)
    choices, nats = np.zeros(count, np.int32), np.zeros(count)
    norms, errors = np.zeros_like(trace.norms), np.zeros(len(trace.positions))
    ends = [int(position) + 1 for position in trace.positions]
    with Model(path) as model, Session(model, context=count, **options) as session:
        for index, end in enumerate([*ends, count]):
            part = slice(session.position, end)
            if part.start == end:
                continue
            logits = session.decode_all(trace.tokens[part].tolist())
            choices[part] = logits.argmax(axis=1)
            nats[part] = negative_log_probabilities(logits, targets[part])
            if index < len(ends):
                norms[index] = session.residual_norms()
                theirs = trace.logits[index].astype(np.float64)
                errors[index] = np.linalg.norm(logits[-1] - theirs) / np.linalg.norm(theirs)
    return Observed(choices, nats, norms, errors)
