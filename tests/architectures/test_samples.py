"""Texts of trained models: drawn alike everywhere, and their words counted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from architectures.samples import Sampling, words_of, write_sample
from cli.main import run
from engine.errors import FileError
from tests.engine.checkpoints import TINY, CheckpointFolder

SAMPLING = Sampling(tokens=24)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return CheckpointFolder(TINY["arch2_4_combined"]).write(tmp_path_factory.mktemp("models") / "trained")


def test_equal_sampling_writes_equal_text(folder: Path) -> None:
    one, same = (write_sample(folder, set(), SAMPLING) for _ in range(2))
    other = write_sample(folder, set(), replace(SAMPLING, seed=1))
    assert one == same != other
    assert one.text and not one.text.startswith(SAMPLING.prompt)
    assert len(write_sample(folder, set(), replace(SAMPLING, tokens=4)).text) < len(one.text)


def test_a_greedy_text_is_that_of_the_engine(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    greedy = replace(SAMPLING, temperature=0.0, top_k=0)
    model = str(tmp_path / "m.cflow")
    assert run(["convert", str(folder), model]) == 0
    capsys.readouterr()
    options = [
        "-m",
        model,
        "-p",
        greedy.prompt,
        "-n",
        str(greedy.tokens),
        "--threads",
        "1",
        "--isa",
        "scalar",
    ]
    assert run(["generate", *options]) == 0
    assert capsys.readouterr().out == write_sample(folder, set(), greedy).text + "\n"


def test_words_are_whole_and_known_ones_counted(folder: Path) -> None:
    text = write_sample(folder, set(), SAMPLING).text
    found = words_of([text])
    sample = write_sample(folder, set(found[:1]), SAMPLING)
    assert sample.words == len(found) - text.lower().endswith(found[-1]) > 0
    assert sample.known == found[: sample.words].count(found[0])
    assert words_of(['"The King\'s dog," said\nhe', "It isn't."]) == [
        *("the", "king's", "dog", "said", "he", "it", "isn't")
    ]
    assert words_of([]) == words_of(["12 -- ..."]) == []


def test_a_folder_that_is_no_model_is_named(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(FileError, match=r"config\.json"):
        write_sample(tmp_path, set(), SAMPLING)
    silent = CheckpointFolder(TINY["arch4"]).write(tmp_path / "silent")
    (silent / "tokenizer.json").unlink()
    with pytest.raises(FileError, match=r"tokenizer\.json"):
        write_sample(silent, set(), SAMPLING)
