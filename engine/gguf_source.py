"""Reading a GGUF file without trusting it: metadata by type, tensors by name and shape.

The file is parsed here, because every count, length and offset must be checked against the size of the file
before it is used; types and their block sizes come from the `gguf` package.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from engine.enums import Type
from engine.errors import FileError, FormatError, UnsupportedError

Bytes = npt.NDArray[np.uint8]

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
# Scalar value types: number -> struct code. 8 is a string, 9 an array.
_SCALARS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MAX_DIMENSIONS = 4
# What is read becomes Python objects of many times its size: more than a real file has is refused.
_MAX_ENTRIES, _MAX_TENSORS = 1 << 16, 1 << 17
_MAX_ITEMS = 1 << 22  # of an array: no vocabulary has more tokens or merges
_MAX_TEXT_BYTES = 1 << 26  # a whole tokenizer.json may be one
_MAX_NAME_BYTES = (1 << 16) - 1  # as the format says of keys
_DEFAULT_ALIGNMENT = 32

_TYPES = {
    gguf.GGMLQuantizationType.F32: Type.F32,
    gguf.GGMLQuantizationType.F16: Type.F16,
    gguf.GGMLQuantizationType.Q4_0: Type.Q4_0,
    gguf.GGMLQuantizationType.Q4_1: Type.Q4_1,
    gguf.GGMLQuantizationType.Q8_0: Type.Q8_0,
}


@dataclass(frozen=True)
class _Info:
    """A tensor: shape with rows first, offset in the data section."""

    kind: gguf.GGMLQuantizationType
    shape: tuple[int, ...]
    offset: int
    bytes: int


class GgufSource:
    """An open GGUF file.

    Opening raises FileError or FormatError; every accessor raises FormatError naming the key or tensor that
    is missing or wrong.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._data: Bytes = np.memmap(path, np.uint8, "r")
        except OSError as error:
            raise FileError(f"{path}: cannot be read: {error.strerror}") from error
        except ValueError as error:  # an empty file cannot be mapped
            raise FormatError(f"{path}: not a GGUF file: it is empty") from error
        parser = _Parser(path, self._data.data)
        self._metadata, self._tensors, self._data_offset = parser.parse()

    @property
    def tensor_names(self) -> list[str]:
        """All tensors, in file order."""
        return list(self._tensors)

    @property
    def keys(self) -> list[str]:
        """All metadata keys, in file order."""
        return list(self._metadata)

    def has(self, name: str) -> bool:
        """Whether there is a tensor called `name`."""
        return name in self._tensors

    def value(self, key: str, kind: type[Any], default: Any = None) -> Any:
        """A metadata value of type int, float, str, bool or list. Without a default the key is required."""
        found = self._metadata.get(key, default)
        if found is None:
            raise FormatError(f"{self.path}: metadata key {key} is missing")
        if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
            raise FormatError(f"{self.path}: {key} is a {type(found).__name__}, {kind.__name__} is needed")
        return found

    def optional_int(self, key: str) -> int | None:
        """An integer, or None when the key is absent."""
        return self.value(key, int) if key in self._metadata else None

    def kind(self, name: str) -> Type:
        """Type of a tensor. Raises UnsupportedError naming one that cannot be converted, and what can."""
        kind = self._info(name).kind
        if kind not in _TYPES:
            works = ", ".join(sorted(known.name for known in _TYPES))
            raise UnsupportedError(f"{self.path}: tensor {name} has type {kind.name}; these work: {works}")
        return _TYPES[kind]

    def offset(self, name: str) -> int:
        """Where the data of a tensor begin, bytes from the start of the file."""
        return self._data_offset + self._info(name).offset

    def rows(self, name: str, shape: Sequence[int]) -> Bytes:
        """Row-major bytes of a tensor, uint8 [*shape[:-1], row bytes].

        `shape`, rows first, is what the tensor must have.
        """
        info = self._info(name)
        if info.shape != tuple(shape):
            needed = f"{_by(shape)} is needed (rows first)"
            raise FormatError(f"{self.path}: tensor {name} is {_by(info.shape)}, {needed}")
        self.kind(name)
        start = self._data_offset + info.offset
        return self._data[start : start + info.bytes].reshape(*shape[:-1], -1)

    def vector(self, name: str, size: int) -> npt.NDArray[np.float32]:
        """A vector of f32 or f16 values as float32 [size]."""
        kind = self.kind(name)
        if kind not in (Type.F32, Type.F16):
            found = kind.name.lower()
            raise UnsupportedError(f"{self.path}: vector {name} has type {found}; f32 or f16 is needed")
        raw = np.array(self.rows(name, (size,))).reshape(-1)
        return raw.view(np.float32 if kind is Type.F32 else np.float16).astype(np.float32)

    def _info(self, name: str) -> _Info:
        info = self._tensors.get(name)
        if info is None:
            raise FormatError(f"{self.path}: tensor {name} is missing")
        return info


class _Parser:
    """Header, metadata and tensor infos; FormatError names the first part that is not as it must be."""

    def __init__(self, path: Path, data: memoryview) -> None:
        self._path = path
        self._data = data
        self._at = 0
        self._what = "header"

    def parse(self) -> tuple[dict[str, Any], dict[str, _Info], int]:
        """(metadata, tensors, offset of the data section)."""
        magic = bytes(self._data[: len(_MAGIC)])
        if magic != _MAGIC:
            raise self._error(f"not a GGUF file (magic {magic!r})")
        self._at = len(_MAGIC)
        version = self._number("I")
        if version not in _VERSIONS:
            raise self._error(f"GGUF version {version}; versions 2 and 3, little-endian, work")
        tensor_count = self._bounded(self._number("Q"), "tensor count", _MAX_TENSORS)
        key_count = self._bounded(self._number("Q"), "metadata count", _MAX_ENTRIES)
        metadata = {}
        for index in range(key_count):
            self._what = f"metadata entry {index}"
            key = self._string(_MAX_NAME_BYTES)
            self._what = f"metadata key {key}"
            if key in metadata:
                raise self._error(f"metadata key {key} is there twice")
            metadata[key] = self._value(self._number("I"))
        tensors = {}
        for index in range(tensor_count):
            self._what = f"tensor info {index}"
            name = self._string(_MAX_NAME_BYTES)
            self._what = f"tensor {name}"
            if name in tensors:
                raise self._error(f"tensor {name} is there twice")
            tensors[name] = self._tensor()
        start = self._data_start(metadata)
        for name, info in tensors.items():
            missing = start + info.offset + info.bytes - len(self._data)
            if missing > 0:
                raise self._error(f"tensor {name} ends {missing} bytes past the end of the file")
        return metadata, tensors, start

    def _error(self, what: str) -> FormatError:
        return FormatError(f"{self._path}: {what}")

    def _advance(self, size: int) -> int:
        """Moves past `size` bytes; their offset."""
        start, left = self._at, len(self._data) - self._at
        if size > left:
            raise self._error(
                f"truncated or damaged in {self._what}: {size} bytes needed at byte {start}, {left} are left"
            )
        self._at = start + size
        return start

    def _number(self, code: str) -> Any:
        layout = "<" + code
        return struct.unpack_from(layout, self._data, self._advance(struct.calcsize(layout)))[0]

    def _bounded(self, found: int, what: str, largest: int) -> int:
        if found > largest:
            raise self._error(f"{self._what}: {what} is {found}, at most {largest} is allowed")
        return found

    def _string(self, largest: int = _MAX_TEXT_BYTES) -> str:
        size = self._bounded(self._number("Q"), "length of a string", largest)
        start = self._advance(size)
        try:
            return str(self._data[start : start + size], "utf-8")
        except UnicodeDecodeError as error:
            raise self._error(f"{self._what}: a string is not UTF-8: {error.reason}") from error

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._array(self._number("I"), self._number("Q"))
        return self._number(self._scalar_code(kind))

    def _array(self, element: int, count: int) -> list[Any]:
        self._bounded(count, "array length", _MAX_ITEMS)
        if element == _STRING:
            return [self._string() for _ in range(count)]
        code = "<" + self._scalar_code(element)
        size = count * struct.calcsize(code)
        start = self._advance(size)
        return [value for (value,) in struct.iter_unpack(code, self._data[start : start + size])]

    def _scalar_code(self, kind: int) -> str:
        code = _SCALARS.get(kind)
        if code is None:
            raise self._error(f"{self._what} has value type {kind}, which is not supported")
        return code

    def _tensor(self) -> _Info:
        dimensions = self._number("I")
        if not 1 <= dimensions <= _MAX_DIMENSIONS:
            raise self._error(f"{self._what} has {dimensions} dimensions, 1 to {_MAX_DIMENSIONS} are allowed")
        sizes = [self._number("Q") for _ in range(dimensions)]
        number, offset = self._number("I"), self._number("Q")
        try:
            kind = gguf.GGMLQuantizationType(number)
        except ValueError:
            raise self._error(f"{self._what} has unknown type number {number}") from None
        if 0 in sizes:
            raise self._error(f"{self._what} has a zero dimension: {_by(sizes)}")
        block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        if sizes[0] % block:
            raise self._error(
                f"{self._what} has {sizes[0]} columns, type {kind.name} needs a multiple of {block}"
            )
        elements = 1
        for size in sizes:  # Python integers do not overflow
            elements *= size
        return _Info(kind, tuple(reversed(sizes)), offset, elements // block * block_bytes)

    def _data_start(self, metadata: dict[str, Any]) -> int:
        alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise self._error(f"general.alignment is {alignment}, must be a power of two")
        return -(-self._at // alignment) * alignment


def _by(shape: Sequence[int]) -> str:
    return " x ".join(str(size) for size in shape)
