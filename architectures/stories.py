"""Text as stories, and which of them are for training, validation and test.

A file holds stories separated by `<|endoftext|>`, as TinyStories does; a parquet file has one per row in its
column `text`; a folder is all its .txt and .parquet files. Plain text without a separator is cut at blank
lines into passages of at least 2,000 characters. A story belongs to one part, by a hash of its text, so that
a text trains in the same part wherever it stands and no part sees a piece of another's story.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

from architectures.errors import DataError

SEPARATOR = "<|endoftext|>"

_PASSAGE_CHARACTERS = 2000
_READ_CHARACTERS = 1 << 20
_HELD_OUT = 0.05  # share of the stories in validation, and in test; the paper's test share is 5.3 %


class Part(StrEnum):
    """What a story is for."""

    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"


def part_of(story: str) -> Part:
    """By SHA-256 of the text: 5 % of all stories are for the test, 5 % for validation."""
    place = int.from_bytes(hashlib.sha256(story.encode()).digest()[:8]) / 2**64
    if place < _HELD_OUT:
        return Part.TEST
    return Part.VALIDATION if place < 2 * _HELD_OUT else Part.TRAIN


def read_stories(path: Path) -> Iterator[str]:
    """The stories of a file or folder, without white space around them; empty ones are left out.

    Raises DataError naming the file: missing, not UTF-8, no column `text` or one of no text, or parquet
    without pyarrow.
    """
    for file in _files(path):
        pieces = _parquet(file) if file.suffix == ".parquet" else _text(file)
        yield from (story for piece in pieces if (story := piece.strip()))


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix in (".txt", ".parquet"))
    if not files:
        raise DataError(f"{path}: no .txt or .parquet file in this folder")
    return files


def _text(path: Path) -> Iterator[str]:
    """Reads piece by piece: TinyStories does not have to fit in memory."""
    rest, separated = "", False
    try:
        with path.open(encoding="utf-8-sig") as file:
            while chunk := file.read(_READ_CHARACTERS):
                *whole, rest = (rest + chunk).split(SEPARATOR)
                separated = separated or bool(whole)
                yield from whole
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: byte {error.start}: {error.reason}") from error
    yield from [rest] if separated else _passages(rest)


def _passages(text: str) -> Iterator[str]:
    held: list[str] = []
    for paragraph in re.split(r"\n[^\S\n]*\n", text):
        held.append(paragraph)
        if sum(map(len, held)) >= _PASSAGE_CHARACTERS:
            yield "\n\n".join(held)
            held = []
    yield "\n\n".join(held)


def _parquet(path: Path) -> Iterator[str]:
    try:
        from pyarrow import ArrowException, parquet, types
    except ImportError:
        raise DataError(f"{path}: reading parquet needs pyarrow: pip install '.[train]'") from None
    try:
        with parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if names.count("text") != 1:
                raise DataError(
                    f"{path}: {names.count('text') or 'no'} column text; found: {', '.join(names)}"
                )
            kind = file.schema_arrow.field("text").type
            if types.is_dictionary(kind):
                kind = kind.value_type
            if not (types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)):
                raise DataError(f"{path}: column text is {kind}, allowed: string")
            for batch in file.iter_batches(columns=["text"]):
                yield from (str(value) for value in batch.column(0).to_pylist() if value is not None)
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: column text is not UTF-8: {error.reason}") from error
    except (OSError, ArrowException) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
