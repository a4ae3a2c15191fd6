"""The ctypes table and the enums against the header that they mirror, and the loader's errors."""

import ctypes
import ctypes.util
import re
from ctypes import POINTER
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import native
from engine.enums import ENUMS, Counter, Isa, Option, Order, Param, PieceKind, Status, Stream, Type, WalkWay
from engine.errors import (
    ArgumentError,
    CflowError,
    ContextError,
    LibraryError,
    MemoryExhaustedError,
    error_from_status,
)

HEADER = Path(native.__file__).parent / "include" / "cflow.h"

_SCALARS: dict[str, Any] = {
    "char": ctypes.c_char,
    "int": ctypes.c_int,
    "float": ctypes.c_float,
    "size_t": ctypes.c_size_t,
    "int8_t": ctypes.c_int8,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
    "cflow_model": native.ModelHandle,
    "cflow_options": native.OptionsHandle,
    "cflow_session": native.SessionHandle,
    "cflow_pool": native.PoolHandle,
    "cflow_arena": native.ArenaHandle,
    "cflow_hash": native.HashHandle,
    "cflow_cache": native.CacheHandle,
}


def header_source() -> str:
    """The header without comments and preprocessor lines."""
    source = re.sub(r"/\*.*?\*/", " ", HEADER.read_text(), flags=re.S)
    return re.sub(r"^\s*#.*$", "", source, flags=re.M)


def ctypes_of(declaration: str, *, named: bool) -> Any:
    """The ctypes type of a C declaration such as `const uint64_t *rows`."""
    tokens = re.findall(r"\w+|\*|\[", declaration)
    words = [token for token in tokens if token not in ("*", "[", "const", "volatile")]
    depth = sum(token in ("*", "[") for token in tokens)
    assert len(words) == (2 if named else 1), declaration
    base = words[0]
    result: Any
    if base == "void":
        assert depth > 0 or not named, declaration
        result = None if depth == 0 else ctypes.c_void_p
        depth -= 1
    elif base == "char":
        result, depth = ctypes.c_char_p, depth - 1
    else:
        result = _SCALARS[base]
        depth -= base.startswith("cflow_")
    for _ in range(depth):
        result = POINTER(result)
    return result


def header_functions() -> dict[str, tuple[Any, list[Any]]]:
    """Every exported function of the header: name -> (result, arguments)."""
    functions = {}
    for result, name, arguments in re.findall(
        r"CFLOW_API\s+([\w\s*]+?)(\w+)\s*\(([^;]*)\)\s*;", header_source()
    ):
        # An array parameter `x[]` is a pointer; its size lies in a comment.
        parts = [part.strip().replace("]", "") for part in arguments.split(",")]
        types = [] if parts == ["void"] else [ctypes_of(part, named=True) for part in parts]
        functions[name] = (ctypes_of(result, named=False), types)
    return functions


def header_enums() -> dict[str, dict[str, int]]:
    """Every enum of the header: name -> enumerators, the _COUNT ones included."""
    enums = {}
    for name, body in re.findall(r"typedef enum (\w+) \{(.*?)\} \1;", header_source(), flags=re.S):
        entries = re.findall(r"(\w+)\s*=\s*(\d+)", body)
        assert len(entries) == len([part for part in body.split(",") if part.strip()]), name
        enums[name] = {key: int(value) for key, value in entries}
    return enums


def test_the_parser_sees_the_whole_header() -> None:
    assert len(header_functions()) == header_source().count("CFLOW_API ")
    assert len(header_enums()) == header_source().count("typedef enum")


def test_every_function_of_the_header_is_in_the_table_in_order() -> None:
    assert list(native.FUNCTIONS) == list(header_functions())


@pytest.mark.parametrize("name", sorted(native.FUNCTIONS))
def test_types_of_function_equal_the_header(name: str) -> None:
    assert native.FUNCTIONS[name] == header_functions()[name]


def test_every_enum_of_the_header_has_a_class() -> None:
    assert list(ENUMS) == list(header_enums())


@pytest.mark.parametrize("name", sorted(ENUMS))
def test_values_of_enum_equal_the_header(name: str) -> None:
    prefix, cls = ENUMS[name]
    expected = {
        key.removeprefix(prefix): value
        for key, value in header_enums()[name].items()
        if not key.endswith("COUNT")
    }
    assert {member.name: member.value for member in cls} == expected
    counts = [value for key, value in header_enums()[name].items() if key.endswith("COUNT")]
    assert counts in ([], [len(cls)])


def test_abi_version_equals_the_header() -> None:
    found = re.search(r"#define CFLOW_ABI_VERSION (\d+)", HEADER.read_text())
    assert found is not None
    assert int(found.group(1)) == native.ABI_VERSION


@pytest.mark.parametrize(
    ("function", "cls"),
    [
        ("cflow_isa_name", Isa),
        ("cflow_type_name", Type),
        ("cflow_model_param_name", Param),
        ("cflow_order_name", Order),
        ("cflow_option_name", Option),
        ("cflow_counter_name", Counter),
        ("cflow_piece_kind_name", PieceKind),
        ("cflow_stream_name", Stream),
        ("cflow_walk_way_name", WalkWay),
    ],
)
def test_names_of_the_library_are_the_enumerators_in_lower_case(function: str, cls: Any) -> None:
    name = getattr(native.lib(), function)
    assert [native.text(name(member)) for member in cls] == [member.name.lower() for member in cls]
    assert name(-1) is None
    assert name(len(cls)) is None


def test_status_names() -> None:
    names = [native.text(native.lib().cflow_status_name(status)) for status in Status]
    assert names == [f"CFLOW_{status.name}" for status in Status]
    assert native.lib().cflow_status_name(len(Status)) is not None


def test_missing_library_names_every_path_and_the_build_command(tmp_path: Path) -> None:
    paths = [tmp_path / "a" / "libcflow.so", tmp_path / "b" / "libcflow.so"]
    with pytest.raises(LibraryError) as error:
        native.load(paths)
    for path in paths:
        assert str(path) in str(error.value)
    assert native.BUILD_COMMAND in str(error.value)
    assert "\n" not in str(error.value)


def test_library_that_is_no_library(tmp_path: Path) -> None:
    path = tmp_path / "libcflow.so"
    path.write_bytes(b"not a shared object")
    with pytest.raises(LibraryError, match="cannot be loaded"):
        native.load([path])


def test_library_without_our_functions() -> None:
    path = Path(ctypes.util.find_library("c") or "libc.so.6")
    libc = next((root / path for root in map(Path, _library_roots()) if (root / path).is_file()), None)
    if libc is None:
        pytest.skip("no libc found in the usual folders")
    with pytest.raises(LibraryError, match="has no function cflow_abi_version"):
        native.load([libc])


def _library_roots() -> list[str]:
    return ["/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"]


def test_environment_variable_is_the_only_candidate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(native.ENVIRONMENT_VARIABLE, str(tmp_path / "mine.so"))
    assert native.library_candidates() == [tmp_path / "mine.so"]
    monkeypatch.delenv(native.ENVIRONMENT_VARIABLE)
    assert len(native.library_candidates()) > 1


@pytest.mark.parametrize("status", [status for status in Status if status not in (0, 10)])
def test_every_failure_has_its_own_exception(status: Status) -> None:
    error = error_from_status(status, "a sentence")
    assert type(error) is not CflowError
    assert str(error) == "a sentence"


def test_unknown_status_is_named() -> None:
    assert "99" in str(error_from_status(99, "why"))


def test_exceptions_are_also_the_builtin_ones() -> None:
    assert issubclass(ContextError, ArgumentError)
    assert issubclass(ArgumentError, ValueError)
    assert issubclass(MemoryExhaustedError, MemoryError)


def test_a_wrong_handle_is_refused_by_ctypes() -> None:
    with pytest.raises(ctypes.ArgumentError):
        native.lib().cflow_session_reset(native.PoolHandle(1))


def test_null_handle_is_an_argument_error_with_a_message() -> None:
    with pytest.raises(ArgumentError) as error:
        native.check(native.lib().cflow_session_reset(None))
    assert str(error.value)


def test_pointer_checks_dtype_size_and_contiguity() -> None:
    good = np.arange(8, dtype=np.float32)
    assert native.pointer("x", good, np.float32, 8)[3] == 3.0
    with pytest.raises(ArgumentError, match="x: dtype float64 found, float32"):
        native.pointer("x", good.astype(np.float64), np.float32, 8)
    with pytest.raises(ArgumentError, match="x: 8 elements found, 9"):
        native.pointer("x", good, np.float32, 9)
    with pytest.raises(ArgumentError, match="x: .*contiguous"):
        native.pointer("x", good[::2], np.float32, 4)


@pytest.mark.parametrize("alignment", [64, 4096])
def test_aligned_bytes(alignment: int) -> None:
    array = native.aligned_bytes(100, alignment)
    assert array.ctypes.data % alignment == 0
    assert array.size == 100
    assert not array.any()
