"""Byte-level BPE: trained on the text at hand, or GPT-2's from its two files. No network is used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from architectures.errors import DataError
from architectures.stories import SEPARATOR

#: A vocabulary does not get better with more text than this.
_TRAINING_CHARACTERS = 64_000_000


def train_bpe(stories: Iterable[str], vocab: int) -> Tokenizer:
    """A vocabulary of `vocab` ids trained on the first 64 M characters; id 0 is the end of a story.

    Raises DataError when the text has too few different pairs for so many ids.
    """
    tokenizer = _byte_level(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=[SEPARATOR],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_first(stories), trainer)
    if tokenizer.get_vocab_size() < vocab:
        raise DataError(
            f"the text is too short for a vocabulary of {vocab} ids: it gives {tokenizer.get_vocab_size()}"
        )
    return tokenizer


def gpt2_bpe(folder: Path) -> Tokenizer:
    """GPT-2's vocabulary, 50,257 ids, from `encoder.json` and `vocab.bpe` in `folder`."""
    tokenizer = _byte_level(models.BPE.from_file(str(folder / "encoder.json"), str(folder / "vocab.bpe")))
    tokenizer.add_special_tokens([SEPARATOR])
    return tokenizer


def end_of_story(tokenizer: Tokenizer) -> int:
    """The id of `<|endoftext|>`. Raises DataError for a tokenizer without it."""
    token = tokenizer.token_to_id(SEPARATOR)
    if token is None:
        raise DataError(f"the tokenizer has no token {SEPARATOR}")
    return int(token)


def _byte_level(model: models.BPE) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _first(stories: Iterable[str]) -> Iterator[str]:
    taken = 0
    for story in stories:
        if taken >= _TRAINING_CHARACTERS:
            return
        taken += len(story)
        yield story
