"""The reference of results.json, from its JSON schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tools.docs.markdown import code, escaped, table

_HEAD = ("Field", "Type", "Meaning")


def schema_reference(path: Path) -> str:
    """The whole file first, then each kind of object in it, in the order of the schema."""
    schema = json.loads(path.read_text(encoding="utf-8"))
    parts = ["## The file\n", table(_HEAD, fields(schema))]
    for name, definition in schema["$defs"].items():
        parts.append(f"## {name}\n")
        if "description" in definition:
            parts.append(escaped(definition["description"]) + ".\n")
        if "properties" in definition:
            parts.append(table(_HEAD, fields(definition)))
        else:
            parts.append(f"{_type(definition)}.\n")
    return "\n".join(parts)


def fields(definition: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """The fields of an object; those of objects within it by their path. A field that may be missing is said
    to be optional.
    """
    required = definition.get("required", ())
    for name, one in definition["properties"].items():
        meaning = escaped(one.get("description", ""))
        if name not in required:
            meaning = f"optional{'; ' if meaning else ''}{meaning}"
        yield code(prefix + name), _type(one), meaning
        inner = one.get("items", one)
        if "properties" in inner:
            yield from fields(inner, f"{prefix}{name}{'[]' if inner is not one else ''}.")


def _type(one: Mapping[str, Any]) -> str:
    """The type in words; names of other objects are links to them."""
    if "$ref" in one:
        name = one["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name})"
    if "const" in one:
        return code(json.dumps(one["const"]))
    if "enum" in one:
        return ", ".join(code("null" if value is None else str(value)) for value in one["enum"])
    if "anyOf" in one:
        return " or ".join(_type(other) for other in one["anyOf"])
    if "then" in one:
        return " or ".join([*dict.fromkeys(_branches(one)), "null"])
    kinds = one["type"] if isinstance(one["type"], list) else [one["type"]]
    return " or ".join(_kind(kind, one) for kind in kinds)


def _branches(one: Mapping[str, Any]) -> Iterator[str]:
    """What the branches of a condition come to."""
    for key in ("then", "else"):
        if key in one:
            yield from _branches(one[key]) if "then" in one[key] else [_type(one[key])]


def _kind(kind: str, one: Mapping[str, Any]) -> str:
    if kind == "array" and "items" in one:
        length = f"{one['minItems']} x " if one.get("minItems") == one.get("maxItems", -1) else ""
        return f"list of {length}{_type(one['items'])}"
    values = one.get("additionalProperties")
    if kind == "object" and isinstance(values, Mapping):
        return f"object of {_type(values)} by name"
    return kind
