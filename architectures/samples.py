"""What trained models write: one continuation of one prompt per architecture, by the engine.

The scalar kernels add in the same order everywhere, so a model writes the same text on every machine.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.convert_checkpoint import convert_checkpoint, parse_types
from engine.errors import FormatError
from engine.model import Model
from engine.session import Sampler, Session
from engine.tokenizer import Tokenizer

_WORD: Final = re.compile(r"[a-z]+(?:'[a-z]+)?(?![a-z'])")


@dataclass(frozen=True)
class Sampling:
    """What makes the text the same again. weights: type of all matrices. isa: kernels of the engine."""

    prompt: str = "Once upon a time"
    tokens: int = 60
    temperature: float = 0.7
    top_k: int = 40
    seed: int = 0
    weights: str = "q4_0"
    isa: str = "scalar"


@dataclass(frozen=True)
class Sample:
    """text: what follows the prompt. words: whole words in it; known: those that the training text has."""

    text: str
    words: int
    known: int


def write_sample(folder: Path, known: Set[str], sampling: Sampling) -> Sample:
    """What the trained model in `folder` writes, up to the end of its story.

    known: words of its training text. Raises FormatError for a model without tokenizer, and what reading and
    converting the folder raise.
    """
    with tempfile.TemporaryDirectory() as made:
        path = Path(made, "model.cflow")
        convert_checkpoint(folder, path, types=parse_types(sampling.weights))
        with Model(path) as model:
            text = _continued(model, sampling)
    found = words_of([text])
    if found and text.lower().endswith(found[-1]):
        found.pop()  # the last token may have cut it
    return Sample(text, len(found), sum(word in known for word in found))


def words_of(texts: Iterable[str]) -> list[str]:
    """The words of texts, in lower case, in order."""
    return [word for text in texts for word in _WORD.findall(text.lower())]


def _continued(model: Model, sampling: Sampling) -> str:
    json = model.tokenizer_json
    if json is None:
        raise FormatError(f"{model.path}: the model carries no tokenizer")
    tokenizer = Tokenizer.from_json(json)
    ids = tokenizer.encode(sampling.prompt)
    sampler = Sampler(temperature=sampling.temperature, top_k=sampling.top_k, seed=sampling.seed)
    drawn, text, emit = 0, "", tokenizer.stream()
    with Session(model, context=len(ids) + sampling.tokens, threads=1, isa=sampling.isa) as session:
        logits = session.decode(ids)
        while drawn < sampling.tokens and (token := sampler.sample(logits)) != model.eos:
            drawn, text = drawn + 1, text + emit(token)
            logits = session.decode([token])
    return text
