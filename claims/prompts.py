"""What a bench feeds before it measures: real text where the model has a tokenizer, seeded random ids
otherwise.

A repeated token would send every position to the same experts.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from claims.run import SEED
from engine.errors import ContextError
from engine.model import Model
from engine.tokenizer import Tokenizer

TEXT: Final = Path(__file__).with_name("prompt.txt")
"""A story of about 600 words, this project's own."""


@dataclass(frozen=True)
class Prompt:
    """Token ids and where they come from: "text" is `TEXT`, from its beginning and again when it ends."""

    ids: tuple[int, ...]
    source: Literal["text", "random"]

    def to_json(self) -> dict[str, Any]:
        """As stored in a row: what repeats it, and a digest of the ids that proves it."""
        origin = {"file": TEXT.name} if self.source == "text" else {"seed": SEED}
        data = np.array(self.ids, np.int32).tobytes()
        sha256 = hashlib.sha256(data).hexdigest()
        return {"tokens": len(self.ids), "source": self.source, **origin, "ids_sha256": sha256}


def bench_prompt(model: Model, length: int, follow: int) -> Prompt:
    """`length` ids, at least 1, that leave room for `follow` more. Raises ContextError when they do not."""
    if length + follow > model.context:
        raise ContextError(
            f"{length} tokens of prompt and {follow} after it do not fit: "
            f"the context of the model has {model.context} positions"
        )
    json = model.tokenizer_json
    if json is None:
        drawn = np.random.default_rng(SEED).integers(0, model.vocab, length)
        return Prompt(tuple(int(token) for token in drawn), "random")
    ids = Tokenizer.from_json(json).encode(TEXT.read_text(encoding="utf-8"))
    whole = ids * -(-length // len(ids))
    return Prompt(tuple(whole[:length]), "text")
