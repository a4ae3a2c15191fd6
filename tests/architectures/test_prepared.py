"""Tokens on disk: what they hold, that they are deterministic, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from architectures.errors import DataError
from architectures.prepared import is_prepared, open_prepared, prepare
from architectures.stories import part_of
from architectures.vocabulary import end_of_story, train_bpe
from tests.architectures.texts import small_data, stories, write_text


def test_each_story_is_in_its_part_and_ends(tmp_path: Path) -> None:
    data = small_data(tmp_path)
    tokenizer = Tokenizer.from_str(data.tokenizer_json)
    assert data.vocab == tokenizer.get_vocab_size() == 300
    for part, tokens in data.tokens.items():
        ends = np.flatnonzero(tokens == data.eos)
        assert ends[-1] == len(tokens) - 1
        found = [tokenizer.decode(piece[piece != data.eos]) for piece in np.split(tokens, ends + 1)[:-1]]
        assert found == [story for story in stories(60) if part_of(story) is part]


def test_equal_text_gives_equal_files(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert small_data(tmp_path / "a").hashes == small_data(tmp_path / "b").hashes


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    data = small_data(tmp_path)
    path = data.folder / "train.bin"
    content = bytearray(path.read_bytes())
    content[10] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"train\.bin is damaged"):
        open_prepared(data.folder)
    path.unlink()
    with pytest.raises(DataError, match=r"train\.bin: No such file"):
        open_prepared(data.folder)
    (data.folder / "manifest.json").write_text("{}")
    with pytest.raises(DataError, match=r"manifest\.json is not valid: KeyError\('format'\)"):
        open_prepared(data.folder)


def test_too_short_a_text_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    short = write_text(tmp_path / "short.txt", count=2)
    with pytest.raises(DataError, match="too short for a vocabulary of 4096 ids"):
        prepare([short], tmp_path / "tokens", 4096)
    with pytest.raises(DataError, match="too short: none of its 2 stories is for"):
        prepare([short], tmp_path / "tokens", 257)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["short.txt"]
    assert not is_prepared(tmp_path / "tokens")


def test_an_existing_folder_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="exists already"):
        prepare([write_text(tmp_path / "a.txt")], tmp_path, 300)


def test_a_tokenizer_without_the_end_of_a_story_is_refused() -> None:
    tokenizer = train_bpe(stories(20), 280)
    assert end_of_story(tokenizer) == 0
    plain = Tokenizer.from_str(tokenizer.to_str().replace("<|endoftext|>", "<|other|>"))
    with pytest.raises(DataError, match="endoftext"):
        end_of_story(plain)
