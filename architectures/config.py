"""config.json of a trained model: the shape of the network and the ids of its special tokens."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from enum import IntEnum
from pathlib import Path
from typing import Any

from architectures.errors import CheckpointError
from engine.enums import Activation, Architecture, Route
from engine.errors import ArgumentError
from engine.geometry import Geometry

CONFIG_NAME = "config.json"
FORMAT = "cflow-architectures"
VERSION = 1

_ENUMS: dict[str, type[IntEnum]] = {"route": Route, "activation": Activation, "architecture": Architecture}
_ABSENT = {"qkv_bias": False, "qk_norm": False, "tied": False}


@dataclass(frozen=True)
class Config:
    """name: a row of the table in `table.py`. bos, eos: token ids, None where there is none."""

    name: str
    geometry: Geometry
    bos: int | None = None
    eos: int | None = None

    def to_json(self) -> str:
        """The text of a config.json."""
        shape = {field.name: _plain(getattr(self.geometry, field.name)) for field in fields(Geometry)}
        head = {"format": FORMAT, "version": VERSION, "name": self.name}
        return json.dumps({**head, **shape, "bos": self.bos, "eos": self.eos}, indent=2) + "\n"


def read_config(folder: Path) -> Config:
    """The config.json of `folder`. Raises CheckpointError naming the file and the field."""
    path = folder / CONFIG_NAME
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing: {folder} is no folder of a trained model") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise CheckpointError(f"{path} is no JSON object")
    for key, wanted in (("format", FORMAT), ("version", VERSION)):
        if found.get(key) != wanted:
            raise CheckpointError(f"{path}: {key} is {found.get(key)!r}, must be {wanted!r}")
    return _parse(path, found)


def _parse(path: Path, found: dict[str, Any]) -> Config:
    values = {field.name: _value(path, found, field.name, field.type) for field in fields(Geometry)}
    for field, only in _ABSENT.items():
        if values[field] is not only:
            raise CheckpointError(f"{path}: {field} is {values[field]!r}, must be {only!r}")
    name = _of_type(path, found, "name", str)
    try:
        shape = Geometry(**values)
    except ArgumentError as error:
        raise CheckpointError(f"{path}: {error}") from error
    return Config(
        name, shape, _token(path, found, "bos", shape.vocab), _token(path, found, "eos", shape.vocab)
    )


def _value(path: Path, found: dict[str, Any], name: str, kind: object) -> Any:
    if name in _ENUMS:
        text = _of_type(path, found, name, str)
        members = {member.name.lower(): member for member in _ENUMS[name]}
        if text not in members:
            raise CheckpointError(f"{path}: {name} is {text!r}, must be one of {', '.join(members)}")
        return members[text]
    # Annotations are strings here: "int", "float" or "bool".
    return _of_type(path, found, name, {"int": int, "float": float, "bool": bool}[str(kind)])


def _of_type(path: Path, found: dict[str, Any], name: str, kind: type) -> Any:
    if name not in found:
        raise CheckpointError(f"{path}: {name} is missing")
    value = found[name]
    whole = kind is float and type(value) is int
    if type(value) is not kind and not whole:
        raise CheckpointError(f"{path}: {name} is {value!r}, must be of type {kind.__name__}")
    return kind(value)


def _token(path: Path, found: dict[str, Any], name: str, vocab: int) -> int | None:
    value = found.get(name)
    if value is not None and (type(value) is not int or not 0 <= value < vocab):
        raise CheckpointError(f"{path}: {name} is {value!r}, must be null or an id in 0..{vocab - 1}")
    return value


def _plain(value: Any) -> Any:
    return value.name.lower() if isinstance(value, IntEnum) else value
