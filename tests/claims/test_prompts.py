"""Prompts of the bench: from where, how long, and the same every time."""

from pathlib import Path

import numpy as np
import pytest

from claims.prompts import TEXT, bench_prompt
from engine.convert_gguf import convert
from engine.errors import ContextError
from engine.geometry import Geometry
from engine.model import Model
from engine.tokenizer import Tokenizer
from tests.engine.gguf_files import LlamaGguf
from tests.engine.models import write_random_model


def test_real_text_where_there_is_a_tokenizer(tmp_path: Path) -> None:
    source = LlamaGguf()
    source.metadata["llama.context_length"] = 8192
    convert(source.write(tmp_path / "m.gguf"), tmp_path / "m.cflow")
    with Model(tmp_path / "m.cflow") as model:
        prompt = bench_prompt(model, 20, 4)
        json = model.tokenizer_json
        assert json is not None
        text = Tokenizer.from_json(json).decode(prompt.ids)
        whole = Tokenizer.from_json(json).encode(TEXT.read_text(encoding="utf-8"))
        longer = bench_prompt(model, len(whole) + 3, 1)
    assert TEXT.read_text(encoding="utf-8").startswith(text)
    assert len(prompt.ids) == 20
    assert longer.ids == tuple([*whole, *whole[:3]])
    told = prompt.to_json()
    assert (told["tokens"], told["source"], told["file"]) == (20, "text", "prompt.txt")


def test_seeded_random_ids_otherwise(tmp_path: Path) -> None:
    path = write_random_model(tmp_path / "m.cflow", Geometry.named("tiny_arch4"), seed=1)
    with Model(path) as model:
        prompt, again = bench_prompt(model, 12, 2), bench_prompt(model, 12, 2)
        assert prompt == again
        assert len(set(prompt.ids)) > 6
        assert all(0 <= token < model.vocab for token in prompt.ids)
        assert prompt.source == "random"
        assert prompt.to_json()["ids_sha256"] == again.to_json()["ids_sha256"]
        other = bench_prompt(model, 11, 2)
        assert other.to_json()["ids_sha256"] != prompt.to_json()["ids_sha256"]
        assert np.array_equal(other.ids, prompt.ids[:11])
        with pytest.raises(ContextError, match=f"has {model.context} positions"):
            bench_prompt(model, model.context, 1)
