"""`cflow generate`."""

from pathlib import Path

import numpy as np
import pytest

from engine.errors import ArgumentError
from engine.kernels import threads_default
from engine.model import Model
from engine.session import Session
from engine.tokenizer import Tokenizer
from tests.cli.conftest import Cflow
from tests.engine.gguf_files import VOCAB


def greedy(path: Path, ids: list[int], count: int) -> list[int]:
    with Model(path) as model, Session(model) as session:
        logits, tokens = session.decode(ids), []
        for _ in range(count):
            tokens.append(int(np.argmax(logits)))
            logits = session.decode([tokens[-1]])
    return tokens


def test_token_ids_are_continued_greedily(cflow: Cflow, moe: Path) -> None:
    outcome = cflow("generate", "-m", moe, "--token-ids", "3,1,4", "-n", 6)
    assert outcome.code == 0
    assert [int(token) for token in outcome.out.split()] == greedy(moe, [3, 1, 4], 6)
    assert "tok/s" in outcome.err
    assert "GB/s" in outcome.err


def test_text_is_continued_as_text(cflow: Cflow, llama: Path) -> None:
    outcome = cflow("generate", "-m", llama, "-p", "the the", "-n", 5, "--ignore-eos")
    assert outcome.code == 0
    ids = [VOCAB.index("the"), VOCAB.index("Ġthe")]
    with Model(llama) as model:
        assert model.tokenizer_json is not None
        expected = Tokenizer.from_json(model.tokenizer_json).decode(greedy(llama, ids, 5))
    assert outcome.out == expected + "\n"


@pytest.mark.parametrize(("terminal", "text"), [(True, "a\\x1b[2J\\x07\n\tb"), (False, "a\x1b[2J\x07\n\tb")])
def test_a_vocabulary_cannot_command_the_terminal(
    cflow: Cflow, llama: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool, text: str
) -> None:
    """What goes into a file or a program is what the model says."""
    monkeypatch.setattr(Tokenizer, "stream", lambda self: lambda token: "a\x1b[2J\x07\n\tb")
    monkeypatch.setattr("cli.generate.on_terminal", lambda: terminal)
    assert cflow("generate", "-m", llama, "-p", "the", "-n", 1, "--ignore-eos").out == text + "\n"


def test_equal_seeds_give_equal_texts(cflow: Cflow, moe: Path) -> None:
    def drawn(seed: int) -> str:
        settings = ("--temperature", "1.5", "--top-k", "50", "--top-p", "0.95")
        return cflow("generate", "-m", moe, "--token-ids", "1", "-n", 20, *settings, "--seed", seed).out

    assert drawn(1) == drawn(1)
    assert len({drawn(seed) for seed in range(4)}) > 1


def test_the_context_limits_the_answer(cflow: Cflow, moe: Path) -> None:
    with Model(moe) as model:
        context = model.context
    outcome = cflow("generate", "-m", moe, "--token-ids", ",".join(["1"] * (context - 2)), "-n", 100)
    assert outcome.code == 0
    assert len(outcome.out.split()) == 3


def test_a_single_token_needs_no_second_pass(cflow: Cflow, moe: Path) -> None:
    outcome = cflow("generate", "-m", moe, "--token-ids", "1", "-n", 1)
    assert outcome.code == 0
    assert len(outcome.out.split()) == 1


def test_prompt_longer_than_the_context(cflow: Cflow, moe: Path) -> None:
    with Model(moe) as model:
        context = model.context
    outcome = cflow("generate", "-m", moe, "--token-ids", ",".join(["1"] * context))
    assert outcome.code == 2
    assert f"the prompt has {context} tokens, the context of the model {context}" in outcome.err
    assert outcome.out == ""


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ([], "give either --prompt or --token-ids"),
        (["-p", "a", "--token-ids", "1"], "give either --prompt or --token-ids"),
        (["-p", "text"], "carries no tokenizer; token ids can be fed with --token-ids"),
        (["--token-ids", "1,x"], "--token-ids is '1,x', must be numbers"),
        (["--token-ids", "1,99999"], "--token-ids has 99999, must be 0 to"),
        (["--token-ids", "1", "--threads", "0"], "--threads is 0"),
        (["--token-ids", "1", "--isa", "mmx"], "'mmx' found, allowed: scalar"),
        (["--token-ids", "1", "-n", "0"], "'-n'"),
        (["--token-ids", "1", "--top-p", "2"], "'--top-p'"),
    ],
)
def test_wrong_arguments(cflow: Cflow, moe: Path, arguments: list[str], fault: str) -> None:
    outcome = cflow("generate", "-m", moe, *arguments)
    assert outcome.code == 2
    assert fault in outcome.err
    assert outcome.err.count("\n") == 1
    assert outcome.out == ""


def test_empty_prompt_without_a_begin_token(cflow: Cflow, llama: Path) -> None:
    outcome = cflow("generate", "-m", llama, "-p", "")
    assert (outcome.code, outcome.err) == (2, "cflow: the prompt is empty\n")


def test_more_threads_than_cores_warns_and_goes_on(cflow: Cflow, moe: Path) -> None:
    allowed = threads_default()
    outcome = cflow("generate", "-m", moe, "--token-ids", "1", "-n", 2, "--threads", allowed + 1)
    assert outcome.code == 0
    assert f"--threads {allowed + 1} is more than the {allowed} cores allowed here" in outcome.err


def test_missing_and_damaged_models(cflow: Cflow, moe: Path, tmp_path: Path) -> None:
    outcome = cflow("generate", "-m", tmp_path / "absent.cflow", "--token-ids", "1")
    assert outcome.code == 2
    assert "absent.cflow" in outcome.err
    cut = tmp_path / "cut.cflow"
    cut.write_bytes(moe.read_bytes()[:3000])
    outcome = cflow("generate", "-m", cut, "--token-ids", "1")
    assert outcome.code == 2
    assert "cut.cflow" in outcome.err


def test_errors_of_the_engine_are_value_errors_for_programs(moe: Path) -> None:
    with Model(moe) as model, pytest.raises(ValueError, match="speed"):
        Session(model, speed=1)
    assert issubclass(ArgumentError, ValueError)
