"""The tokenizer that a model file carries, and its construction from GGUF metadata.

A file carries a `tokenizer.json` of the Hugging Face `tokenizers` library, which encodes and decodes. From
GGUF metadata byte-level BPE vocabularies (`tokenizer.ggml.model` = "gpt2") are built; the split patterns are
those that `tokenizer.ggml.pre` names.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, processors

from engine.errors import FormatError, UnsupportedError

FEED_IDS_HINT = "token ids can be fed with --token-ids"

# Values of tokenizer.ggml.token_type that stand for whole, never split tokens.
_CONTROL, _USER_DEFINED = 3, 4

_GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_QWEN2_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class GgufVocabulary:
    """Tokenizer metadata of a GGUF file; `pre` is "default" when the file does not say."""

    model: str
    pre: str
    tokens: Sequence[str]
    types: Sequence[int]
    merges: Sequence[str]
    bos: int | None
    add_bos: bool


_OF_A_FILE = "the tokenizer of the file"


@contextmanager
def _panics_are_faults(where: Path | str) -> Iterator[None]:
    """A panic of the library's Rust code, which is no Exception, becomes a FormatError."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise FormatError(f"{where}: the library cannot work with it: {error}") from error


class Tokenizer:
    """Text to ids and back. Every use raises FormatError for a tokenizer that contradicts itself."""

    def __init__(self, inner: tokenizers.Tokenizer, where: Path | str = _OF_A_FILE) -> None:
        self._inner = inner
        self._where = where

    @classmethod
    def from_json(cls, json: str, where: Path | str = _OF_A_FILE) -> Self:
        """From the text of a tokenizer.json. Raises FormatError that names `where` when it is none."""
        try:
            with _panics_are_faults(where):
                return cls(tokenizers.Tokenizer.from_str(json), where)
        except FormatError:
            raise
        except Exception as error:  # the library raises plain Exception for any malformed file
            raise FormatError(f"{where}: cannot be read: {error}") from error

    def to_json(self) -> str:
        """The text of a tokenizer.json."""
        return self._inner.to_str()

    @property
    def vocab(self) -> int:
        """Number of ids, special tokens included."""
        return int(self._inner.get_vocab_size(with_added_tokens=True))

    def id_of(self, token: str) -> int | None:
        """Id of a token, or None."""
        found: int | None = self._inner.token_to_id(token)
        return found

    def encode(self, text: str) -> list[int]:
        """Ids of a text, with the begin-of-text id in front where the model wants it."""
        with _panics_are_faults(self._where):
            return list(self._inner.encode(text).ids)

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ids; special tokens are left out."""
        with _panics_are_faults(self._where):
            return self._inner.decode(list(ids), skip_special_tokens=True)

    def stream(self) -> Callable[[int], str]:
        """A function from the next id to the text that has become complete with it.

        A character that spans several tokens comes out with its last one.
        """
        state = decoders.DecodeStream(skip_special_tokens=True)

        def step(token: int) -> str:
            with _panics_are_faults(self._where):
                return state.step(self._inner, token) or ""

        return step


def from_gguf(vocabulary: GgufVocabulary) -> Tokenizer | None:
    """The tokenizer that the metadata describes; None when it says "none".

    Raises UnsupportedError for a model or split pattern that is not built here, naming what is, and
    FormatError for metadata that contradict themselves.
    """
    if vocabulary.model == "none":
        return None
    if vocabulary.model != "gpt2":
        raise UnsupportedError(
            f"tokenizer.ggml.model {vocabulary.model!r} is not supported (supported: gpt2, none); "
            f"{FEED_IDS_HINT}"
        )
    inner = tokenizers.Tokenizer(_bpe(vocabulary))
    inner.pre_tokenizer = _pre_tokenizer(vocabulary)
    inner.decoder = decoders.ByteLevel()
    inner.add_tokens(
        [
            AddedToken(token, special=kind == _CONTROL, normalized=False)
            for token, kind in zip(vocabulary.tokens, vocabulary.types, strict=True)
            if kind in (_CONTROL, _USER_DEFINED)
        ]
    )
    if vocabulary.add_bos:
        inner.post_processor = _with_bos(vocabulary)
    return Tokenizer(inner)


def _bpe(vocabulary: GgufVocabulary) -> models.BPE:
    if len(vocabulary.types) != len(vocabulary.tokens):
        raise FormatError(
            f"tokenizer.ggml.token_type: {len(vocabulary.types)} entries found, tokenizer.ggml.tokens has "
            f"{len(vocabulary.tokens)}"
        )
    ids: dict[str, int] = {}
    for index, token in enumerate(vocabulary.tokens):
        if token in ids:
            raise FormatError(f"tokenizer.ggml.tokens: {token!r} is both id {ids[token]} and id {index}")
        ids[token] = index
    merges = []
    for index, merge in enumerate(vocabulary.merges):
        left, space, right = merge.partition(" ")
        if not space or left not in ids or right not in ids or left + right not in ids:
            raise FormatError(
                f"tokenizer.ggml.merges[{index}]: {merge!r} does not join two tokens to a third"
            )
        merges.append((left, right))
    return models.BPE(vocab=ids, merges=merges, fuse_unk=False)


def _pre_tokenizer(vocabulary: GgufVocabulary) -> pre_tokenizers.PreTokenizer:
    build = _PRE_TOKENIZERS.get(vocabulary.pre)
    if build is None:
        raise UnsupportedError(
            f"tokenizer.ggml.pre {vocabulary.pre!r} is not supported (supported: "
            f"{', '.join(sorted(_PRE_TOKENIZERS))}); {FEED_IDS_HINT}"
        )
    return build()


def _gpt2() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _single_digits() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()])


def _default() -> pre_tokenizers.PreTokenizer:
    # Punctuation apart, then the words of GPT-2, then numbers, cut into threes.
    patterns = [r"[\p{P}\$\+<=>\^~\|]+", _GPT2_PATTERN, r"\p{N}+", r"[0-9][0-9][0-9]"]
    splits: list[pre_tokenizers.PreTokenizer] = [
        pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in patterns
    ]
    return pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )


def _qwen2() -> pre_tokenizers.PreTokenizer:
    # Words with the one sign before them, digits one by one, signs with the line ends behind them.
    split = pre_tokenizers.Split(Regex(_QWEN2_PATTERN), behavior="isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


#: tokenizer.ggml.pre -> builder.
_PRE_TOKENIZERS: dict[str, Callable[[], pre_tokenizers.PreTokenizer]] = {
    "default": _default,
    "gpt-2": _gpt2,
    "qwen2": _qwen2,
    "smollm": _single_digits,
    "starcoder": _single_digits,
}


def _with_bos(vocabulary: GgufVocabulary) -> processors.PostProcessor:
    if vocabulary.bos is None or vocabulary.bos >= len(vocabulary.tokens):
        raise FormatError(
            "tokenizer.ggml.add_bos_token is true, but tokenizer.ggml.bos_token_id names no token"
        )
    token = vocabulary.tokens[vocabulary.bos]
    return processors.TemplateProcessing(
        single=[token, "$A"], pair=None, special_tokens=[(token, vocabulary.bos)]
    )
