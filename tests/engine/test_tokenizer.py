"""Tokenizers from GGUF metadata: splits, special tokens, round trips, streaming, faults."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from engine.errors import FormatError, UnsupportedError
from engine.tokenizer import GgufVocabulary, Tokenizer, from_gguf
from tests.engine.checkpoints import byte_tokenizer

_ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
_TOKENS = [*_ALPHABET, "th", "the", "Ġthe", "12", "<s>", "<|end|>", "<x y>"]
_BASE = GgufVocabulary(
    model="gpt2",
    pre="gpt-2",
    tokens=_TOKENS,
    types=[1] * (len(_TOKENS) - 3) + [3, 3, 4],
    merges=["t h", "th e", "Ġ the", "1 2"],
    bos=_TOKENS.index("<s>"),
    add_bos=False,
)


def built(**changes: object) -> Tokenizer:
    tokenizer = from_gguf(replace(_BASE, **changes))  # type: ignore[arg-type]
    assert tokenizer is not None
    return tokenizer


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    return [_TOKENS[token] for token in tokenizer.encode(text)]


def test_merges_in_order() -> None:
    assert pieces(built(), "the the") == ["the", "Ġthe"]
    assert pieces(built(), "th") == ["th"]


def test_digits_stay_together_or_apart_as_the_pre_tokenizer_says() -> None:
    assert pieces(built(pre="gpt-2"), "12") == ["12"]
    assert pieces(built(pre="smollm"), "12") == ["1", "2"]
    assert pieces(built(pre="starcoder"), "12") == ["1", "2"]
    assert pieces(built(pre="default"), "12") == ["12"]
    assert pieces(built(pre="qwen2"), "12") == ["1", "2"]


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        ("(a", True),  # a sign belongs to the word behind it
        (" a", True),
        ("  a", False),  # the last of several spaces does, the others do not
        ("\na", False),
        ("1a", False),
        ("'S", True),  # contractions in either case
        ("!\n", True),
        (" !", True),
        (" \n", True),
        ("12", False),
    ],
)
def test_what_qwen2_joins(text: str, joined: bool) -> None:
    """A merge of the first two bytes is used only inside one piece."""
    first, second = (
        "".join(
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(part)[0][0]
        )
        for part in text[:2]
    )
    vocabulary = replace(
        _BASE,
        pre="qwen2",
        tokens=[*_ALPHABET, first + second],
        types=[1] * (len(_ALPHABET) + 1),
        merges=[f"{first} {second}"],
        bos=None,
    )
    tokenizer = from_gguf(vocabulary)
    assert tokenizer is not None
    assert (len(_ALPHABET) in tokenizer.encode(text)) == joined
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_default_cuts_numbers_into_threes_and_punctuation_apart() -> None:
    tokenizer = built(pre="default", tokens=[*_TOKENS, "345", "45", "34"], types=[*_BASE.types, 1, 1, 1])
    merged = replace(
        _BASE,
        pre="default",
        tokens=[*_TOKENS, "34", "341"],
        types=[*_BASE.types, 1, 1],
        merges=[*_BASE.merges, "3 4", "34 1"],
    )
    across = from_gguf(merged)
    assert across is not None
    # 12|34|1 would need "341" across the boundary after three digits.
    assert [merged.tokens[token] for token in across.encode("12341")] == ["12", "3", "4", "1"]
    assert tokenizer.decode(tokenizer.encode("a,b. 345")) == "a,b. 345"


def test_special_tokens_are_whole_and_left_out_of_text() -> None:
    tokenizer = built()
    ids = tokenizer.encode("the<|end|>the")
    assert [_TOKENS[token] for token in ids] == ["the", "<|end|>", "the"]
    assert tokenizer.decode(ids) == "thethe"


def test_user_defined_tokens_are_whole_and_kept_in_text() -> None:
    tokenizer = built()
    assert pieces(tokenizer, "the<x y>") == ["the", "<x y>"]
    assert tokenizer.decode(tokenizer.encode("the<x y>")) == "the<x y>"


def test_begin_of_text_is_added_only_when_asked_for() -> None:
    assert pieces(built(add_bos=True), "the") == ["<s>", "the"]
    assert pieces(built(), "the") == ["the"]
    assert pieces(built(add_bos=True), "") == ["<s>"]


def test_json_round_trip_keeps_the_ids() -> None:
    for pre in ("gpt-2", "smollm", "default", "qwen2"):
        tokenizer = built(pre=pre, add_bos=True)
        again = Tokenizer.from_json(tokenizer.to_json())
        text = "the 12 cats, naïve<|end|>\n\n日本"
        assert again.encode(text) == tokenizer.encode(text)
        assert again.vocab == len(_TOKENS)


@given(text=st.text(max_size=40))
def test_every_text_survives(text: str) -> None:
    for tokenizer in (_GPT2, _SMOLLM, _DEFAULT, _QWEN2):
        assert tokenizer.decode(tokenizer.encode(text)) == text


@given(text=st.text(max_size=20))
def test_streaming_gives_the_same_text(text: str) -> None:
    step = _GPT2.stream()
    assert "".join(step(token) for token in _GPT2.encode(text)) == text


def test_streaming_holds_a_character_until_it_is_whole() -> None:
    step = _GPT2.stream()
    assert [step(token) for token in _GPT2.encode("é")] == ["", "é"]


_GPT2, _SMOLLM, _DEFAULT, _QWEN2 = (built(pre=pre) for pre in ("gpt-2", "smollm", "default", "qwen2"))


def test_no_tokenizer() -> None:
    assert from_gguf(replace(_BASE, model="none")) is None


@pytest.mark.parametrize(
    ("changes", "error", "fault"),
    [
        ({"model": "llama"}, UnsupportedError, "'llama' is not supported .*gpt2.*--token-ids"),
        ({"pre": "tekken"}, UnsupportedError, "'tekken' is not supported .*smollm.*--token-ids"),
        ({"types": [1]}, FormatError, "token_type: 1 entries found"),
        ({"tokens": [*_TOKENS[:-1], "the"]}, FormatError, "'the' is both id"),
        ({"merges": ["t h", "the re"]}, FormatError, r"merges\[1\]: 'the re'"),
        ({"merges": ["th"]}, FormatError, r"merges\[0\]: 'th'"),
        ({"add_bos": True, "bos": None}, FormatError, "bos_token_id"),
        ({"add_bos": True, "bos": 10**6}, FormatError, "bos_token_id"),
    ],
)
def test_faults_are_named(changes: dict[str, object], error: type[Exception], fault: str) -> None:
    with pytest.raises(error, match=fault):
        built(**changes)


def test_broken_json_is_a_format_error() -> None:
    with pytest.raises(FormatError, match="cannot be read"):
        Tokenizer.from_json('{"version": "1.0"}')


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"(a|aa)+$"])
def test_an_expression_that_explodes_ends_in_an_error(pattern: str) -> None:
    """The library bounds the steps of one match; a panic of its is no way out of a command."""
    inner = json.loads(byte_tokenizer(300))
    inner["pre_tokenizer"] = {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }
    tokenizer = Tokenizer.from_json(json.dumps(inner), "m.cflow")
    with pytest.raises(FormatError, match="m.cflow: the library cannot work with it: .*retry-limit"):
        tokenizer.encode(2000 * "a" + "c")
