"""The ctypes boundary: one table with every function of `include/cflow.h`, the loader, and the status check.

`lib()` returns the loaded library with argument and result types set, so that `lib().cflow_abi_version()`
works under the C name. Handles are distinct subclasses of `c_void_p`: a pool where a session is due is an
error.
"""

import ctypes
import hashlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from ctypes import (
    POINTER,
    c_char_p,
    c_float,
    c_int,
    c_int8,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from engine.enums import Status
from engine.errors import ArgumentError, FileError, LibraryError, error_from_status

ABI_VERSION = 1
_SUFFIX = ".dylib" if sys.platform == "darwin" else ".so"
LIBRARY_NAME = f"libcflow{_SUFFIX}"
RECORDING_LIBRARY_NAME = f"libcflow_record{_SUFFIX}"
FAULT_LIBRARY_NAME = f"libcflow_fault{_SUFFIX}"
DRIVER_NAME = "cflow_gemv_driver"
ENVIRONMENT_VARIABLE = "CFLOW_LIBRARY"
BUILD_COMMAND = "cmake -S . -B build -DCMAKE_BUILD_TYPE=Release && cmake --build build"


class ModelHandle(c_void_p):
    """cflow_model *"""


class OptionsHandle(c_void_p):
    """cflow_options *"""


class SessionHandle(c_void_p):
    """cflow_session *"""


class PoolHandle(c_void_p):
    """cflow_pool *"""


class ArenaHandle(c_void_p):
    """cflow_arena *"""


class HashHandle(c_void_p):
    """cflow_hash *"""


class CacheHandle(c_void_p):
    """cflow_cache *"""


_f32p = POINTER(c_float)
_intp = POINTER(c_int)
_i8p = POINTER(c_int8)
_i32p = POINTER(c_int32)
_i64p = POINTER(c_int64)
_u32p = POINTER(c_uint32)
_u64p = POINTER(c_uint64)
_sizep = POINTER(c_size_t)
_ptrp = POINTER(c_void_p)
_model, _options, _session = ModelHandle, OptionsHandle, SessionHandle
_pool, _arena, _hash, _cache = PoolHandle, ArenaHandle, HashHandle, CacheHandle

#: name -> (result type, argument types), in the order of the header.
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "cflow_abi_version": (c_int, []),
    "cflow_status_name": (c_char_p, [c_int]),
    "cflow_last_error": (c_char_p, []),
    "cflow_build_info": (c_char_p, []),
    "cflow_type_name": (c_char_p, [c_int]),
    "cflow_isa_name": (c_char_p, [c_int]),
    "cflow_isa_supported": (c_int, [c_int]),
    "cflow_isa_default": (c_int, []),
    "cflow_model_open": (c_int, [c_char_p, POINTER(_model)]),
    "cflow_model_close": (None, [_model]),
    "cflow_model_param": (c_int, [_model, c_int, _u32p]),
    "cflow_model_param_name": (c_char_p, [c_int]),
    "cflow_model_name": (c_char_p, [_model]),
    "cflow_model_file_bytes": (c_uint64, [_model]),
    "cflow_model_order": (c_int, [_model]),
    "cflow_order_name": (c_char_p, [c_int]),
    "cflow_model_tensor_count": (c_uint32, [_model]),
    "cflow_model_tensor": (c_int, [_model, c_uint32, _u64p]),
    "cflow_model_tensor_name": (c_char_p, [_model, c_uint32]),
    "cflow_model_tensor_data": (c_int, [_model, c_uint32, _ptrp, _u64p]),
    "cflow_model_tokenizer": (c_int, [_model, POINTER(c_char_p), _u64p]),
    "cflow_model_advise": (c_int, [_model, c_int]),
    "cflow_model_verify": (c_int, [_model, _intp]),
    "cflow_options_create": (c_int, [POINTER(_options)]),
    "cflow_options_destroy": (None, [_options]),
    "cflow_options_set": (c_int, [_options, c_int, c_int64]),
    "cflow_options_get": (c_int, [_options, c_int, _i64p]),
    "cflow_option_name": (c_char_p, [c_int]),
    "cflow_threads_default": (c_int, []),
    "cflow_topology_field_name": (c_char_p, [c_int]),
    "cflow_topology": (c_int, [c_char_p, _u64p]),
    "cflow_topology_place": (c_int, [c_char_p, c_int, _i32p, _i32p]),
    "cflow_session_create": (c_int, [_model, _options, POINTER(_session)]),
    "cflow_session_destroy": (None, [_session]),
    "cflow_session_option": (c_int, [_session, c_int, _i64p]),
    "cflow_session_reset": (c_int, [_session]),
    "cflow_session_position": (c_int, [_session, _u32p]),
    "cflow_session_worker_cpu": (c_int, [_session, c_int, _intp]),
    "cflow_session_memory": (c_int, [_session, _u64p, _u64p]),
    "cflow_session_decode": (c_int, [_session, _i32p, c_size_t, _f32p]),
    "cflow_session_decode_all": (c_int, [_session, _i32p, c_size_t, _f32p]),
    "cflow_session_generate": (c_int, [_session, c_int32, c_size_t, _i32p, _u64p]),
    "cflow_session_read_experts": (c_int, [_session, _i32p, c_size_t, _u64p]),
    "cflow_session_wait": (c_int, [_session]),
    "cflow_session_cancel": (None, [_session]),
    "cflow_session_logits": (c_int, [_session, _f32p]),
    "cflow_sample": (c_int, [_f32p, c_uint32, c_float, c_uint32, c_float, _u64p, _i32p]),
    "cflow_counter_name": (c_char_p, [c_int]),
    "cflow_session_counters": (c_int, [_session, _u64p]),
    "cflow_session_counters_reset": (c_int, [_session]),
    "cflow_session_routing": (c_int, [_session, _i32p, _f32p]),
    "cflow_session_residual_norms": (c_int, [_session, _f32p, c_size_t]),
    "cflow_session_trace": (c_int, [_session, c_size_t]),
    "cflow_session_trace_read": (c_int, [_session, c_int, c_size_t, c_size_t, _u64p, _sizep]),
    "cflow_event_kind_name": (c_char_p, [c_int]),
    "cflow_session_events": (c_int, [_session, c_size_t]),
    "cflow_session_events_read": (c_int, [_session, c_int, c_size_t, c_size_t, _u64p, _sizep]),
    "cflow_piece_kind_name": (c_char_p, [c_int]),
    "cflow_stream_name": (c_char_p, [c_int]),
    "cflow_schedule_phase_count": (c_uint32, [_session]),
    "cflow_schedule_piece_count": (c_uint32, [_session]),
    "cflow_schedule_piece": (c_int, [_session, c_uint32, _u64p]),
    "cflow_schedule_dependencies": (c_int, [_session, c_uint32, _u32p, c_size_t, _sizep]),
    "cflow_kernel_count": (c_uint32, []),
    "cflow_kernel_name": (c_char_p, [c_uint32]),
    "cflow_kernel_info": (c_int, [c_uint32, _u64p]),
    "cflow_tiles_bytes": (c_int, [c_int, c_uint64, c_uint64, c_uint32, c_uint32, _u64p]),
    "cflow_tiles_pack": (
        c_int,
        [c_int, c_int, _u64p, c_uint64, c_uint32, c_uint32, _ptrp, c_void_p, c_uint64],
    ),
    "cflow_tiles_unpack": (
        c_int,
        [c_int, c_int, _u64p, c_uint64, c_uint32, c_uint32, c_void_p, c_uint64, _ptrp],
    ),
    "cflow_gemv": (
        c_int,
        [c_uint32, c_void_p, c_uint64, c_uint64, c_uint64, c_uint32, c_uint32, _f32p, _f32p],
    ),
    "cflow_gemm": (
        c_int,
        [c_uint32, c_void_p, c_uint64, c_uint64, c_uint64, c_uint32, c_uint32, _f32p, c_uint32, _f32p],
    ),
    "cflow_quantize_q8": (c_int, [_f32p, c_uint64, _i8p, _f32p, _i32p]),
    "cflow_pool_create": (c_int, [c_int, c_int, POINTER(_pool)]),
    "cflow_pool_destroy": (None, [_pool]),
    "cflow_pool_worker_cpu": (c_int, [_pool, c_int, _intp]),
    "cflow_pool_run_delay": (c_int, [_pool, c_int, _u64p]),
    "cflow_session_run_delay": (c_int, [_session, c_int, _u64p]),
    "cflow_arena_create": (c_int, [_pool, c_uint64, c_int, POINTER(_arena)]),
    "cflow_arena_destroy": (None, [_arena]),
    "cflow_arena_data": (c_void_p, [_arena]),
    "cflow_read_pattern_count": (c_int, []),
    "cflow_read_pattern_name": (c_char_p, [c_int]),
    "cflow_probe_read": (c_int, [_pool, _arena, c_int, _u64p, _u64p]),
    "cflow_probe_touch": (c_int, [_pool, c_uint64, _u64p]),
    "cflow_probe_load": (c_int, [_pool, _model, _u64p, _u64p]),
    "cflow_probe_reads": (
        c_int,
        [c_char_p, c_int, c_int, c_uint64, c_uint64, c_uint32, _u64p, c_size_t, c_void_p, _u64p],
    ),
    "cflow_walk_way_name": (c_char_p, [c_int]),
    "cflow_probe_walk": (c_int, [c_char_p, c_int, _u64p, c_size_t, c_uint64, _u64p, _u64p]),
    "cflow_probe_flops": (c_int, [_pool, c_int, c_uint64, _u64p, _u64p]),
    "cflow_probe_gemv": (
        c_int,
        [_pool, _arena, c_uint32, c_uint64, c_uint64, c_uint32, c_uint32, c_int, c_int64, c_int]
        + [_f32p, _f32p, _u64p],
    ),
    "cflow_probe_hints": (c_int, [_model, c_uint64, c_uint64, c_uint32, c_int, _u64p, _u64p, _u64p]),
    "cflow_probe_blocks": (c_int, [_model, c_uint64, c_uint64, c_uint64, c_uint32, c_int, _u64p, _u64p]),
    "cflow_cache_create": (c_int, [c_uint64, c_uint32, c_uint32, POINTER(_cache)]),
    "cflow_cache_destroy": (None, [_cache]),
    "cflow_cache_run": (c_int, [_cache, _u64p, c_size_t]),
    "cflow_cache_counts": (c_int, [_cache, c_int, _u64p]),
    "cflow_record_to": (c_int, [_cache]),
    "cflow_fault_set": (c_int, [c_int, c_uint64, c_uint64]),
    "cflow_hash_create": (c_int, [POINTER(_hash)]),
    "cflow_hash_destroy": (None, [_hash]),
    "cflow_hash_update": (c_int, [_hash, c_void_p, c_uint64]),
    "cflow_hash_digest": (c_int, [_hash, _u64p]),
    "cflow_fill_groups": (
        c_int,
        [c_int, c_uint64, c_uint64, c_uint64, c_uint32, c_float, c_void_p, c_uint64],
    ),
}


def library_candidates() -> list[Path]:
    """Paths where the library is looked for, in order.

    `CFLOW_LIBRARY`, when set, is the only one: a wrong path given by hand must not fall back to another
    build.
    """
    override = os.environ.get(ENVIRONMENT_VARIABLE)
    if override:
        return [Path(override)]
    root = Path(__file__).resolve().parent.parent
    installed = resources.files("engine").joinpath(LIBRARY_NAME)
    return [Path(str(installed)), root / "build" / LIBRARY_NAME, root / "build" / "engine" / LIBRARY_NAME]


def load(candidates: Sequence[Path]) -> ctypes.CDLL:
    """Loads the first candidate that exists, sets the types of all functions and checks the ABI version.

    Raises LibraryError when none exists (every path is named), when it cannot be loaded, lacks a function, or
    has another ABI version.
    """
    path = _first_file(candidates)
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise LibraryError(f"{path} cannot be loaded: {error}") from error
    for name, (result, arguments) in FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError as error:
            raise LibraryError(f"{path} has no function {name}; rebuild it with `{BUILD_COMMAND}`") from error
        function.restype = result
        function.argtypes = arguments
    found = library.cflow_abi_version()
    if found != ABI_VERSION:
        raise LibraryError(
            f"{path} has ABI version {found}, this package needs {ABI_VERSION}; "
            f"rebuild it with `{BUILD_COMMAND}`"
        )
    return library


def _first_file(candidates: Sequence[Path]) -> Path:
    path = next((candidate for candidate in candidates if candidate.is_file()), None)
    if path is None:
        tried = ", ".join(str(candidate) for candidate in candidates)
        raise LibraryError(
            f"the C library {candidates[0].name} was not found; tried: {tried}; "
            f"build it with `{BUILD_COMMAND}` or set {ENVIRONMENT_VARIABLE}"
        )
    return path


@cache
def _ordinary_library() -> ctypes.CDLL:
    return load(library_candidates())


@cache
def _recording_library() -> ctypes.CDLL:
    return load([built_beside_library(RECORDING_LIBRARY_NAME)])


@cache
def _fault_library() -> ctypes.CDLL:
    return load([built_beside_library(FAULT_LIBRARY_NAME)])


_IN_USE: ContextVar[ctypes.CDLL | None] = ContextVar("library in use", default=None)


def lib() -> ctypes.CDLL:
    """The library in use, loaded once per process: the ordinary one, except inside `recording_library()`."""
    return _IN_USE.get() or _ordinary_library()


@contextmanager
def recording_library() -> Iterator[None]:
    """Everything of this package that is made and used inside runs on the library whose kernels record.

    What is made inside must be closed inside. The build is that of the ordinary library, mutant and
    sanitizers included: it lies beside it. Raises LibraryError when it does not.
    """
    with _in_use(_recording_library()):
        yield


@contextmanager
def fault_library() -> Iterator[None]:
    """As `recording_library()`, on the library whose reads fail where `engine.faults` says so."""
    with _in_use(_fault_library()):
        yield


@contextmanager
def other_library(path: Path) -> Iterator[None]:
    """As `recording_library()`, on any build of the library: two builds compared in one process.

    Raises LibraryError when it cannot be loaded or has another ABI.
    """
    with _in_use(load([path.absolute()])):
        yield


@contextmanager
def _in_use(library: ctypes.CDLL) -> Iterator[None]:
    token = _IN_USE.set(library)
    try:
        yield
    finally:
        _IN_USE.reset(token)


def built_beside_library(name: str) -> Path:
    """The path of what the same build made and put beside the library; whether it exists is not looked at."""
    return _first_file(library_candidates()).with_name(name)


def last_error() -> str:
    """The sentence that the last failing call on this thread left."""
    return text(lib().cflow_last_error())


def check(status: int) -> None:
    """Raises the exception of a failed status with the message of the library."""
    if status != Status.OK:
        raise error_from_status(status, last_error())


def text(value: bytes | None) -> str:
    """A C string as str; NULL gives the empty string."""
    return "" if value is None else value.decode("utf-8", errors="replace")


def library_path() -> Path:
    """The library file in use."""
    return Path(str(lib()._name))


def library_sha256() -> str:
    """SHA-256 of the library file in use, hexadecimal: builds of one compiler and flags can differ."""
    return hashlib.sha256(library_path().read_bytes()).hexdigest()


def build_info() -> str:
    """Compiler, flags and mutant of the library, one line."""
    return text(lib().cflow_build_info())


_Scalar = TypeVar("_Scalar", bound=np.generic)

_DTYPE: dict[Any, Any] = {
    np.dtype(np.float32): c_float,
    np.dtype(np.int8): c_int8,
    np.dtype(np.int32): c_int32,
    np.dtype(np.int64): c_int64,
    np.dtype(np.uint32): c_uint32,
    np.dtype(np.uint64): c_uint64,
}


def path_bytes(path: Path) -> bytes:
    """A path as C takes it. Raises FileError for one with a NUL character: C would stop there."""
    encoded = os.fsencode(path)
    if b"\0" in encoded:
        raise FileError(f"{str(path)!r}: has a NUL character, which no path can have")
    return encoded


def pointer(name: str, array: npt.NDArray[_Scalar], dtype: type[_Scalar], size: int) -> Any:
    """A typed C pointer to `array`, after checking dtype, number of elements, C-contiguity and alignment.

    The caller keeps the array alive during the call. Raises ArgumentError that names the argument.
    """
    wanted = np.dtype(dtype)
    if array.dtype != wanted:
        raise ArgumentError(f"{name}: dtype {array.dtype} found, {wanted} is needed")
    if array.size != size:
        raise ArgumentError(f"{name}: {array.size} elements found, {size} are needed")
    if not array.flags.c_contiguous or not array.flags.aligned:
        raise ArgumentError(f"{name}: the array must be C-contiguous and aligned")
    return array.ctypes.data_as(POINTER(_DTYPE[wanted]))


def aligned_bytes(size: int, alignment: int = 64) -> npt.NDArray[np.uint8]:
    """Zeroed bytes whose address is a multiple of `alignment`, as tiled kernels need them."""
    raw = np.zeros(size + alignment, dtype=np.uint8)
    start = -raw.ctypes.data % alignment
    return raw[start : start + size]
