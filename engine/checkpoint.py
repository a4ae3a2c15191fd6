"""A trained model as training leaves it: a folder with config.json, model.safetensors and tokenizer.json.

config.json holds `format`, `version`, `name`, the fields of `engine.geometry.Geometry`, `bos` and `eos`.
Tensors are float32, matrices `[out, in]`, named as in `TENSOR_NAMES`. Nothing here needs PyTorch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from engine.enums import Activation, Architecture, Role, Route
from engine.errors import ArgumentError, FileError, FormatError, NonFiniteError
from engine.geometry import Geometry
from engine.tokenizer import Tokenizer

FORMAT: Final = "cflow-architectures"
VERSION: Final = 1
CONFIG, TENSORS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
END_OF_TEXT: Final = "<|endoftext|>"

#: Role -> names of the parts of a tensor; {b} is the block. The first axis of experts is the expert.
TENSOR_NAMES: Final[Mapping[Role, tuple[str, ...]]] = {
    Role.EMBEDDING: ("embedding.weight",),
    Role.ATTN_NORM: ("blocks.{b}.attn_norm.weight",),
    Role.ATTN_QKV: tuple(f"blocks.{{b}}.attention.{part}.weight" for part in ("query", "key", "value")),
    Role.ATTN_OUTPUT: ("blocks.{b}.attention.output.weight",),
    Role.FFN_NORM: ("blocks.{b}.ffn_norm.weight",),
    Role.FFN_GATE_UP: ("blocks.{b}.dense.gate.weight", "blocks.{b}.dense.up.weight"),
    Role.FFN_DOWN: ("blocks.{b}.dense.down.weight",),
    Role.MOE_NORM: ("blocks.{b}.moe_norm.weight",),
    Role.ROUTER: ("blocks.{b}.moe.router.weight",),
    Role.REGISTER: ("blocks.{b}.register",),
    Role.OUTPUT_NORM: ("output_norm.weight",),
    Role.HEAD: ("head.weight",),
    Role.EXPERT_GATE_UP: ("blocks.{b}.moe.gate", "blocks.{b}.moe.up"),
    Role.EXPERT_DOWN: ("blocks.{b}.moe.down",),
}

_ENUMS: Final[Mapping[str, type[IntEnum]]] = {
    "route": Route,
    "activation": Activation,
    "architecture": Architecture,
}
_FLOATS = ("eps", "rope_base")
_FLAGS = ("norm_topk", "tied", "qkv_bias", "qk_norm")
#: Parts that the format has no tensors for.
_ABSENT = ("qkv_bias", "qk_norm")


@dataclass(frozen=True)
class CheckpointConfig:
    """What config.json says. `name`: of the architecture. `bos`, `eos`: token ids, or None."""

    name: str
    geometry: Geometry
    bos: int | None = None
    eos: int | None = None

    def to_json(self) -> str:
        """The text of a config.json that `read_config` reads."""
        shape = {field.name: _plain(getattr(self.geometry, field.name)) for field in fields(Geometry)}
        head = {"format": FORMAT, "version": VERSION, "name": self.name}
        return json.dumps({**head, **shape, "bos": self.bos, "eos": self.eos}, indent=2) + "\n"


class Checkpoint:
    """An open folder. Use as a context manager::

        with Checkpoint(folder) as checkpoint:
            checkpoint.check_tensors(shapes)
            checkpoint.values("head.weight")       # float32 [vocab, d_model]

    Opening reads config, table of tensors and tokenizer. Raises FileError for a file that is missing or
    cannot be read, FormatError naming file and field for one that is damaged, a config of another format, and
    a tokenizer of another vocabulary.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        _check_whole(self.folder)
        self.config = read_config(self.folder / CONFIG)
        self.tokenizer_json = _tokenizer_json(self.folder / TOKENIZER, self.config)
        self._path = self.folder / TENSORS
        try:
            self._file: Any = safe_open(self._path, framework="numpy")
        except (SafetensorError, OSError) as error:
            raise FormatError(f"{self._path}: is damaged or no safetensors file: {error}") from error

    def __enter__(self) -> Self:
        self._file.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.__exit__(kind, error, trace)

    def check_tensors(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Compares the table of tensors with the shapes that the config gives.

        Raises FormatError naming the first that is missing, not expected, not float32 or of another shape.
        """
        found = set(self._file.keys())
        for name, wanted in shapes.items():
            if name not in found:
                raise FormatError(f"{self._path}: tensor {name} is missing; {CONFIG} asks for {list(wanted)}")
            entry = self._file.get_slice(name)
            if entry.get_dtype() != "F32":
                raise FormatError(f"{self._path}: tensor {name} is {entry.get_dtype()}, must be F32")
            if tuple(entry.get_shape()) != wanted:
                raise FormatError(
                    f"{self._path}: tensor {name} has shape {entry.get_shape()}, "
                    f"{CONFIG} asks for {list(wanted)}"
                )
        extra = sorted(found - shapes.keys())
        if extra:
            raise FormatError(
                f"{self._path}: tensor {extra[0]} belongs to no part of the model that {CONFIG} describes"
            )

    def values(self, name: str, expert: int | None = None) -> npt.NDArray[np.float32]:
        """A tensor, or one expert of a stacked one. Raises NonFiniteError naming tensor and place."""
        entry = self._file.get_slice(name)
        values: npt.NDArray[np.float32] = entry[:] if expert is None else entry[expert : expert + 1][0]
        bad = ~np.isfinite(values)
        if bad.any():
            place = [int(index) for index in np.argwhere(bad)[0]]
            place = place if expert is None else [expert, *place]
            raise NonFiniteError(f"{self._path}: tensor {name}, element {place}, is not finite")
        return values


def read_config(path: Path) -> CheckpointConfig:
    """Reads config.json. Raises FileError, or FormatError naming the field and what is allowed."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise FormatError(f"{path}: is a JSON {type(content).__name__}, must be an object")
    for field, wanted in (("format", FORMAT), ("version", VERSION)):
        if content.get(field) != wanted:
            raise FormatError(f"{path}: {field} is {content.get(field)!r}, must be {wanted!r}")
    known = [field.name for field in fields(Geometry)]
    unknown = sorted(content.keys() - {"format", "version", "name", "bos", "eos", *known})
    if unknown:
        raise FormatError(f"{path}: field {unknown[0]} is unknown; known are {', '.join(known)}")
    try:
        config = CheckpointConfig(
            name=_text("name", content.get("name")),
            geometry=Geometry(**{field: _value(field, content.get(field)) for field in known}),
            bos=_id("bos", content.get("bos")),
            eos=_id("eos", content.get("eos")),
        )
        for field in ("bos", "eos"):
            token = getattr(config, field)
            if token is not None and token >= config.geometry.vocab:
                raise ArgumentError(f"{field} is {token}, must be below vocab = {config.geometry.vocab}")
        for field in _ABSENT:
            if getattr(config.geometry, field):
                raise ArgumentError(f"{field} is true, must be false: the format has no such tensors")
    except ArgumentError as error:
        raise FormatError(f"{path}: {error}") from error
    return config


def _check_whole(folder: Path) -> None:
    if not folder.is_dir():
        raise FileError(f"{folder}: is no folder of a trained model")
    missing = [name for name in (CONFIG, TENSORS, TOKENIZER) if not (folder / name).is_file()]
    if missing:
        raise FileError(
            f"{folder}: {', '.join(missing)} missing; a trained model has {CONFIG}, {TENSORS} and {TOKENIZER}"
        )


def _tokenizer_json(path: Path, config: CheckpointConfig) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise FormatError(f"{path}: {error}") from error
    tokenizer = Tokenizer.from_json(text, path)
    if tokenizer.vocab != config.geometry.vocab:
        raise FormatError(
            f"{path}: has {tokenizer.vocab} tokens, {CONFIG} says vocab = {config.geometry.vocab}: "
            "it is the tokenizer of another model"
        )
    if config.eos is not None and tokenizer.id_of(END_OF_TEXT) != config.eos:
        raise FormatError(
            f"{path}: {END_OF_TEXT} has id {tokenizer.id_of(END_OF_TEXT)}, {CONFIG} says eos = {config.eos}: "
            "it is the tokenizer of another model"
        )
    return text


def _value(field: str, value: object) -> Any:
    if field in _ENUMS:
        return _word(field, value)
    if field in _FLAGS:
        return _typed(field, value, "true or false", lambda found: isinstance(found, bool))
    if field in _FLOATS:
        return float(_typed(field, value, "a number", _is_number))
    return _typed(field, value, "an integer", _is_integer)


def _word(field: str, value: object) -> IntEnum:
    words = {member.name.lower(): member for member in _ENUMS[field]}
    if not isinstance(value, str) or value not in words:
        raise ArgumentError(f"{field} is {value!r}, must be one of {', '.join(words)}")
    return words[value]


def _plain(value: Any) -> Any:
    return value.name.lower() if isinstance(value, IntEnum) else value


def _text(field: str, value: object) -> str:
    return str(_typed(field, value, "a text of valid Unicode", _is_text))


def _id(field: str, value: object) -> int | None:
    if value is None:
        return None
    found: int = _typed(field, value, "a token id or null", lambda one: _is_integer(one) and one >= 0)
    return found


def _typed(field: str, value: Any, allowed: str, fits: Callable[[Any], bool]) -> Any:
    if not fits(value):
        raise ArgumentError(f"{field} is {value!r}, must be {allowed}")
    return value


def _is_text(value: Any) -> bool:
    """Whether it is a text that UTF-8 can hold: JSON may write half of a surrogate pair."""
    return isinstance(value, str) and bool(value) and not any("\ud800" <= sign <= "\udfff" for sign in value)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    """Whether it is a number that a float can hold."""
    return isinstance(value, float) or (_is_integer(value) and abs(value) < 1 << 1023)
