"""What the trained models of the claim on quality write, with the size of the models beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from harness.results import Results

Json = Mapping[str, Any]

CLAIM: Final = "quality"
CHECK: Final = "quality.perplexity"
_SEEN: Final = {"sample", "sample_words", "sample_words_known"}
_GIVEN: Final = ("prompt", "weights", "tokens", "temperature", "top_k", "seed", "isa")


@dataclass(frozen=True)
class Text:
    """The continuation that one architecture wrote. words: how many of its words its training text has."""

    label: str
    text: str
    words: str


@dataclass(frozen=True)
class Samples:
    """Texts that continue one prompt. scale: size of models and training. how: they were drawn, in words."""

    prompt: str
    scale: str
    how: str
    texts: tuple[Text, ...]


def samples(results: Results) -> Samples | None:
    """The texts of a run, None when its series of trained models has none."""
    record = results.record(CHECK)
    found = [(cell["label"], cell["evidence"]) for cell in record["cells"]] if record else []
    texts = [(label, evidence) for label, evidence in found if evidence is not None and _has_text(evidence)]
    if not texts:
        return None
    inputs = texts[0][1]["inputs"]
    given = {key: inputs[f"sample {key}"] for key in _GIVEN}
    how = (
        "Each was drawn by the engine from the model of seed 0 in {weights}: at most {tokens} tokens, "
        "temperature {temperature}, out of the {top_k} most probable, seed {seed}, {isa} kernels."
    ).format(**given)
    return Samples(str(given["prompt"]), str(inputs["scale"]), how, tuple(_text(*one) for one in texts))


def _has_text(evidence: Json) -> bool:
    wanted = {"scale", *(f"sample {key}" for key in _GIVEN)}
    return _SEEN.issubset(evidence.get("observations", ())) and wanted.issubset(evidence.get("inputs", ()))


def _text(label: str, evidence: Json) -> Text:
    seen = evidence["observations"]
    words = f"{seen['sample_words_known']} of its {seen['sample_words']} words are in its training text"
    return Text(label, str(seen["sample"]), words)
