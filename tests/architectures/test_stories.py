"""Text as stories: separators, passages, parquet, the split, and what is refused."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from architectures import stories as module
from architectures.errors import DataError
from architectures.stories import SEPARATOR, Part, part_of, read_stories


def test_stories_are_what_stands_between_separators(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text(f"one\ntwo\n{SEPARATOR}\n\n three {SEPARATOR}{SEPARATOR}four", encoding="utf-8-sig")
    assert list(read_stories(path)) == ["one\ntwo", "three", "four"]


@given(st.integers(1, 30))
def test_a_separator_may_lie_across_two_reads(size: int) -> None:
    text = SEPARATOR.join(["abc", "defgh", "ij", "klmnop"])
    before = module._READ_CHARACTERS
    module._READ_CHARACTERS = size
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.txt"
            path.write_text(text)
            assert list(read_stories(path)) == ["abc", "defgh", "ij", "klmnop"]
    finally:
        module._READ_CHARACTERS = before


def test_plain_text_is_cut_at_blank_lines_into_passages(tmp_path: Path) -> None:
    paragraphs = [f"{letter} " * 500 for letter in "abcdefg"]
    path = tmp_path / "a.txt"
    path.write_text("\n \n".join(paragraphs))
    passages = list(read_stories(path))
    assert [len(set(passage.split())) for passage in passages] == [2, 2, 2, 1]
    assert " ".join(passages).split() == " ".join(paragraphs).split()


def test_a_folder_is_its_texts_in_order(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("second")
    (tmp_path / "a.txt").write_text("first")
    (tmp_path / "NOTICE").write_text("not a text")
    assert list(read_stories(tmp_path)) == ["first", "second"]


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": ["one", None, " two "], "other": [1, 2, 3]}), path)
    assert list(read_stories(path)) == ["one", "two"]
    parquet.write_table(pyarrow.table({"story": ["one"]}), path)
    with pytest.raises(DataError, match=r"a\.parquet: no column text; found: story"):
        list(read_stories(path))
    path.write_bytes(b"PAR1 and nothing")
    with pytest.raises(DataError, match=r"a\.parquet cannot be read"):
        list(read_stories(path))


@pytest.mark.parametrize("kind", ["string", "large_string", "dictionary"])
def test_every_kind_of_string_in_parquet_is_text(tmp_path: Path, kind: str) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    column = pyarrow.array(["one", None, "one"])
    column = column.dictionary_encode() if kind == "dictionary" else column.cast(kind)
    parquet.write_table(pyarrow.table({"text": column}), tmp_path / "a.parquet")
    assert list(read_stories(tmp_path)) == ["one", "one"]


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ([b"one"], r"column text is binary, allowed: string"),
        ([1], r"column text is int64, allowed: string"),
        ([["one"]], r"column text is list<.*>, allowed: string"),
    ],
)
def test_parquet_that_holds_no_text(tmp_path: Path, texts: list[object], said: str) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=rf"a\.parquet: {said}"):
        list(read_stories(tmp_path / "a.parquet"))


def test_parquet_that_lies_about_its_text(tmp_path: Path) -> None:
    """A name twice, and bytes that are not UTF-8 in a column of strings."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    twice = pyarrow.table([["one"], ["two"]], names=["text", "text"])
    parquet.write_table(twice, path)
    with pytest.raises(DataError, match=r"a\.parquet: 2 column text; found: text, text"):
        list(read_stories(path))
    options = {"use_dictionary": False, "compression": "none", "write_statistics": False}
    parquet.write_table(pyarrow.table({"text": ["Once upon a time"]}), path, **options)
    path.write_bytes(path.read_bytes().replace(b"upon", b"up\xffn"))
    with pytest.raises(DataError, match=r"a\.parquet: column text is not UTF-8: invalid start byte"):
        list(read_stories(path))


def test_a_twentieth_each_is_held_out_whatever_stands_around_it() -> None:
    parts = Counter(part_of(f"story number {i}") for i in range(4000))
    assert 150 < parts[Part.TEST] < 250
    assert 150 < parts[Part.VALIDATION] < 250
    assert part_of("Once upon a time") is part_of("Once upon a time")


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.txt cannot be read: No such file"):
        list(read_stories(tmp_path / "none.txt"))
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9 au lait")
    with pytest.raises(DataError, match=r"latin\.txt is not UTF-8 text: byte 3"):
        list(read_stories(tmp_path / "latin.txt"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"no \.txt or \.parquet file"):
        list(read_stories(tmp_path / "empty"))
