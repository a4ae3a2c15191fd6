"""Text made ready for training: a folder with the tokens of each part, and the tokenizer.

tokenizer.json
train.bin, validation.bin, test.bin    ids as little-endian uint16, <|endoftext|> behind every story
manifest.json                          counts and hashes; written last: a folder that has it is complete
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray
from tokenizers import Tokenizer

from architectures.atomic import write_atomically
from architectures.errors import DataError
from architectures.stories import Part, part_of, read_stories
from architectures.vocabulary import end_of_story, gpt2_bpe, train_bpe
from engine.pending import PendingFolder

MANIFEST_NAME = "manifest.json"
TOKENIZER_NAME = "tokenizer.json"
FORMAT = "cflow-tokens"
VERSION = 1

_BATCH_STORIES = 256
#: What a folder holds beside its manifest.
_NAMES = (TOKENIZER_NAME, *(f"{part}.bin" for part in Part))


@dataclass(frozen=True)
class Prepared:
    """The tokens of each part, `[count]`, mapped from the folder."""

    folder: Path
    tokenizer_json: str
    vocab: int
    eos: int
    tokens: dict[Part, NDArray[np.uint16]]
    #: XXH64 of each file by its name: what a training run compares when it is resumed.
    hashes: dict[str, str]


def prepare(
    sources: Sequence[Path],
    target: Path,
    vocab: int,
    gpt2: Path | None = None,
    progress: Callable[[int], None] | None = None,
) -> Prepared:
    """Tokenises the stories of `sources` into the folder `target`, which must not exist yet.

    The vocabulary has `vocab` ids, trained on the training part, or is GPT-2's when `gpt2` names the folder
    of its files. progress: called with the number of stories done. Raises DataError, FileError.
    """
    if target.exists():
        raise DataError(f"{target} exists already")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with PendingFolder(target, ()) as pending:
            _write(sources, pending.temporary, vocab, gpt2, progress)
            pending.commit()
    except OSError as error:
        raise DataError(f"{target} was not written: {error.strerror}") from error
    return open_prepared(target)


def _write(
    sources: Sequence[Path], work: Path, vocab: int, gpt2: Path | None, progress: Callable[[int], None] | None
) -> None:
    """Everything that a prepared folder holds, into `work`."""
    tokenizer = gpt2_bpe(gpt2) if gpt2 else train_bpe(_training(sources), vocab)
    write_atomically(work / TOKENIZER_NAME, tokenizer.to_str().encode())
    stories = _write_parts(sources, work, tokenizer, progress)
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "vocab": tokenizer.get_vocab_size(),
        "eos": end_of_story(tokenizer),
        "stories": stories,
        "xxh64": {name: _hash(work / name) for name in _NAMES},
    }
    write_atomically(work / MANIFEST_NAME, (json.dumps(manifest, indent=2) + "\n").encode())


def open_prepared(folder: Path) -> Prepared:
    """A folder written by `prepare`. Raises DataError naming the file that is missing or damaged."""
    path = folder / MANIFEST_NAME
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if (manifest["format"], manifest["version"]) != (FORMAT, VERSION):
            raise DataError(f"{path}: format is not {FORMAT} version {VERSION}")
        hashes = {str(name): str(value) for name, value in manifest["xxh64"].items()}
        if sorted(hashes) != sorted(_NAMES):  # a name from a file is never opened
            raise DataError(f"{path}: xxh64: found {sorted(hashes)}, allowed: {sorted(_NAMES)}")
        for name, wanted in hashes.items():
            if _hash(folder / name) != wanted:
                raise DataError(f"{folder / name} is damaged: its hash is not that of {MANIFEST_NAME}")
        tokens = {part: np.fromfile(folder / f"{part}.bin", dtype="<u2") for part in Part}
        return Prepared(
            folder=folder,
            tokenizer_json=(folder / TOKENIZER_NAME).read_text(encoding="utf-8"),
            vocab=int(manifest["vocab"]),
            eos=int(manifest["eos"]),
            tokens=tokens,
            hashes=hashes,
        )
    except OSError as error:
        raise DataError(f"{error.filename or folder}: {error.strerror}") from error
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise DataError(f"{path} is not valid: {error!r}") from error


def is_prepared(folder: Path) -> bool:
    """Whether `folder` was written by `prepare`."""
    return (folder / MANIFEST_NAME).is_file()


def _training(sources: Sequence[Path]) -> Iterable[str]:
    stories = chain.from_iterable(map(read_stories, sources))
    return (story for story in stories if part_of(story) is Part.TRAIN)


def _write_parts(
    sources: Sequence[Path], work: Path, tokenizer: Tokenizer, progress: Callable[[int], None] | None
) -> dict[str, int]:
    """Writes the three .bin files; the number of stories in each."""
    eos = end_of_story(tokenizer)
    counts = dict.fromkeys(map(str, Part), 0)
    files = {part: (work / f"{part}.bin").open("wb") for part in Part}
    try:
        for batch in _batches(chain.from_iterable(map(read_stories, sources))):
            for story, encoded in zip(batch, tokenizer.encode_batch(batch), strict=True):
                part = part_of(story)
                files[part].write(np.asarray([*encoded.ids, eos], dtype="<u2").tobytes())
                counts[part] += 1
            if progress is not None:
                progress(sum(counts.values()))
    finally:
        for file in files.values():
            file.close()
    for name, count in counts.items():
        if count == 0:
            raise DataError(
                f"the text is too short: none of its {sum(counts.values())} stories is for {name}; stories "
                "are separated by <|endoftext|>"
            )
    return counts


def _batches(stories: Iterable[str]) -> Iterable[list[str]]:
    held: list[str] = []
    for story in stories:
        held.append(story)
        if len(held) == _BATCH_STORIES:
            yield held
            held = []
    if held:
        yield held


def _hash(path: Path) -> str:
    digest = xxhash.xxh64()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
