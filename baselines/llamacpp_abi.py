"""The part of llama.cpp's C interface that the baseline uses, and the proof that it is the one written here.

The interface has no stable ABI: structures grow in the middle between builds. So the versions are compared
before any structure crosses the border, and then the defaults that the library fills in must be found in the
fields where this module expects them. Names follow `llama.h` and `ggml.h` of `VERSIONS`.
"""

from __future__ import annotations

import ctypes
import re
from ctypes import POINTER, c_bool, c_char_p, c_float, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from baselines.errors import BaselineError

VERSIONS: Final = {"llama.cpp": "0.5.0-dev", "ggml": "0.25.1", "commit": "0ad4a86"}
LOAD_WHOLE: Final = 0
LOAD_MMAP: Final = 1
MAX_CPUS: Final = 512
KV_TYPES: Final = {"f32": 0, "f16": 1, "q8_0": 8}
FLASH_ATTENTION: Final = {None: -1, False: 0, True: 1}
#: Of a log line: none, debug, info, warning, error, continuation of the line before.
LEVEL_DEBUG: Final = 1

LogCallback = ctypes.CFUNCTYPE(None, c_int, c_char_p, c_void_p)
#: `ggml_backend_sched_eval_callback`: (tensor, ask, user data).
EvalCallback = ctypes.CFUNCTYPE(c_bool, c_void_p, c_bool, c_void_p)


def _fields(kind: Any, names: str) -> list[tuple[str, Any]]:
    return [(name, kind) for name in names.split()]


class ModelParams(ctypes.Structure):
    """`llama_model_params`."""

    _fields_ = [
        *_fields(c_void_p, "devices tensor_buft_overrides"),
        *_fields(c_int32, "n_gpu_layers split_mode load_mode lazy_mode main_gpu"),
        *_fields(c_void_p, "tensor_split progress_callback progress_callback_user_data kv_overrides"),
        *_fields(c_bool, "vocab_only check_tensors use_extra_bufts no_host no_alloc load_mtp"),
    ]


class ContextParams(ctypes.Structure):
    """`llama_context_params`."""

    _fields_ = [
        *_fields(c_uint32, "n_ctx n_batch n_ubatch n_seq_max n_rs_seq n_outputs_max n_outputs_max_per_seq"),
        *_fields(c_int32, "n_threads n_threads_batch"),
        *_fields(c_int, "ctx_type rope_scaling_type pooling_type attention_type flash_attn_type"),
        *_fields(c_float, "rope_freq_base rope_freq_scale yarn_ext_factor yarn_attn_factor"),
        *_fields(c_float, "yarn_beta_fast yarn_beta_slow"),
        *_fields(c_uint32, "yarn_orig_ctx"),
        *_fields(c_float, "defrag_thold"),
        *_fields(c_void_p, "cb_eval cb_eval_user_data"),
        *_fields(c_int, "type_k type_v"),
        *_fields(c_void_p, "abort_callback abort_callback_data"),
        *_fields(c_bool, "embeddings offload_kqv no_perf op_offload swa_full kv_unified"),
        *_fields(c_void_p, "samplers"),
        *_fields(c_size_t, "n_samplers"),
        *_fields(c_void_p, "ctx_other"),
    ]


class Batch(ctypes.Structure):
    """`llama_batch`."""

    _fields_ = [
        ("n_tokens", c_int32),
        ("token", POINTER(c_int32)),
        *_fields(c_void_p, "embd pos n_seq_id seq_id logits"),
    ]


class ThreadpoolParams(ctypes.Structure):
    """`ggml_threadpool_params`."""

    _fields_ = [
        ("cpumask", c_bool * MAX_CPUS),
        *_fields(c_int, "n_threads prio"),
        ("poll", c_uint32),
        *_fields(c_bool, "strict_cpu paused"),
    ]


# What the library fills in. Fields that are not listed must be 0, false or null.
_MODEL_DEFAULTS = {
    "n_gpu_layers": -1,
    "split_mode": 1,
    "load_mode": -1,
    "lazy_mode": 1,
    "use_extra_bufts": True,
}
_CONTEXT_DEFAULTS = {
    "n_ctx": 512,
    "n_batch": 2048,
    "n_ubatch": 512,
    "n_seq_max": 1,
    "n_outputs_max_per_seq": 1,
    "n_threads": 4,
    "n_threads_batch": 4,
    "rope_scaling_type": -1,
    "pooling_type": -1,
    "attention_type": -1,
    "flash_attn_type": -1,
    "yarn_ext_factor": -1.0,
    "yarn_attn_factor": -1.0,
    "yarn_beta_fast": -1.0,
    "yarn_beta_slow": -1.0,
    "defrag_thold": -1.0,
    "type_k": KV_TYPES["f16"],
    "type_v": KV_TYPES["f16"],
    "offload_kqv": True,
    "no_perf": True,
    "op_offload": True,
    "swa_full": True,
}
_POOL_PROBE_THREADS = 3
_POOL_DEFAULTS = {"n_threads": _POOL_PROBE_THREADS, "poll": 50}

_MODEL = _CONTEXT = _POOL = c_void_p
_BASE_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "ggml_version": (c_char_p,),
    "ggml_commit": (c_char_p,),
    "ggml_threadpool_params_default": (ThreadpoolParams, c_int),
    "ggml_get_name": (c_char_p, c_void_p),
    "ggml_nbytes": (c_size_t, c_void_p),
    "ggml_backend_tensor_get": (None, c_void_p, c_void_p, c_size_t, c_size_t),
}
_LLAMA_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "llama_version": (c_char_p,),
    "llama_log_set": (None, LogCallback, c_void_p),
    "llama_backend_init": (None,),
    "llama_print_system_info": (c_char_p,),
    "llama_model_default_params": (ModelParams,),
    "llama_context_default_params": (ContextParams,),
    "llama_model_load_from_file": (_MODEL, c_char_p, ModelParams),
    "llama_model_free": (None, _MODEL),
    "llama_model_size": (c_uint64, _MODEL),
    "llama_model_desc": (c_int32, _MODEL, c_char_p, c_size_t),
    "llama_model_get_vocab": (c_void_p, _MODEL),
    "llama_vocab_n_tokens": (c_int32, c_void_p),
    "llama_init_from_model": (_CONTEXT, _MODEL, ContextParams),
    "llama_free": (None, _CONTEXT),
    "llama_batch_get_one": (Batch, POINTER(c_int32), c_int32),
    "llama_decode": (c_int32, _CONTEXT, Batch),
    "llama_synchronize": (None, _CONTEXT),
    "llama_get_logits_ith": (POINTER(c_float), _CONTEXT, c_int32),
    "llama_get_memory": (c_void_p, _CONTEXT),
    "llama_memory_clear": (None, c_void_p, c_bool),
    "llama_attach_threadpool": (None, _CONTEXT, _POOL, _POOL),
    "llama_detach_threadpool": (None, _CONTEXT),
}
_GGML_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "ggml_backend_load": (c_void_p, c_char_p),
    "ggml_backend_load_all_from_path": (None, c_char_p),
}
_CPU_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "ggml_threadpool_new": (_POOL, POINTER(ThreadpoolParams)),
    "ggml_threadpool_free": (None, _POOL),
    "ggml_threadpool_pause": (None, _POOL),
}


@dataclass(frozen=True)
class Libraries:
    """The loaded libraries with their functions declared, and the CPU back end that was picked."""

    base: ctypes.CDLL
    llama: ctypes.CDLL
    cpu: ctypes.CDLL
    back_end: str


def load(folder: Path, back_end: str | None, log: Any) -> Libraries:
    """Loads and checks the libraries in `folder`; `log` is a LogCallback that the caller keeps alive.

    `back_end` names a CPU back end ("haswell"); None lets llama.cpp pick. Raises BaselineError for a version
    or a layout that is not the one written here, and for a back end that is missing or does not run here.
    """
    base = _library(folder / "libggml-base.so", _BASE_FUNCTIONS)
    ggml = _library(folder / "libggml.v0.5.0.so", _GGML_FUNCTIONS)
    llama = _library(folder / "libllama.v0.5.0.so", _LLAMA_FUNCTIONS)
    _check_versions(base, llama)
    check_defaults("llama_model_params", llama.llama_model_default_params(), _MODEL_DEFAULTS)
    check_defaults("llama_context_params", llama.llama_context_default_params(), _CONTEXT_DEFAULTS)
    pool = base.ggml_threadpool_params_default(_POOL_PROBE_THREADS)
    check_defaults("ggml_threadpool_params", pool, _POOL_DEFAULTS)
    _check_batch(llama)
    llama.llama_log_set(log, None)
    available = sorted(path.stem.removeprefix("libggml-cpu-") for path in folder.glob("libggml-cpu-*.so"))
    if back_end is None:
        ggml.ggml_backend_load_all_from_path(bytes(folder))
    elif back_end not in available:
        raise BaselineError(f"back end {back_end!r} found, allowed: {', '.join(available)}")
    elif not ggml.ggml_backend_load(bytes(folder / f"libggml-cpu-{back_end}.so")):
        raise BaselineError(f"back end {back_end} does not run on this CPU")
    llama.llama_backend_init()
    loaded = _mapped_back_end(folder)
    cpu = _library(loaded, _CPU_FUNCTIONS)
    return Libraries(base, llama, cpu, loaded.stem.removeprefix("libggml-cpu-"))


def check_defaults(name: str, found: ctypes.Structure, expected: dict[str, Any]) -> None:
    """Raises BaselineError unless every field of `found` has its default: `expected`, and 0 elsewhere."""
    for field in found._fields_:
        value = getattr(found, field[0])
        value = any(value) if isinstance(value, ctypes.Array) else value or 0
        if value != expected.get(field[0], 0):
            raise BaselineError(
                f"{name}.{field[0]} is {value!r} by default, {expected.get(field[0], 0)!r} is expected: "
                "another build of llama.cpp, whose structures differ"
            )


def _library(path: Path, functions: dict[str, tuple[Any, ...]]) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        for name, (result, *arguments) in functions.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise BaselineError(f"{path.name} is not the library that is needed: {error}") from error
    return library


def _check_versions(base: ctypes.CDLL, llama: ctypes.CDLL) -> None:
    found = {
        "llama.cpp": llama.llama_version().decode(),
        "ggml": base.ggml_version().decode(),
        "commit": base.ggml_commit().decode(),
    }
    if found != VERSIONS:
        raise BaselineError(f"versions {found} found, {VERSIONS} are needed")


def _check_batch(llama: ctypes.CDLL) -> None:
    tokens = (c_int32 * 2)(11, 12)
    batch = llama.llama_batch_get_one(tokens, 2)
    rest = [getattr(batch, name) for name in ("embd", "pos", "n_seq_id", "seq_id", "logits")]
    if batch.n_tokens != 2 or not batch.token or batch.token[1] != 12 or any(rest):
        raise BaselineError("llama_batch has another layout: another build of llama.cpp")


def _mapped_back_end(folder: Path) -> Path:
    """The CPU back end that is mapped into this process: what really runs, whatever was asked for."""
    maps = Path("/proc/self/maps").read_text()
    names: list[str] = sorted(set(re.findall(r"/(libggml-cpu-\w+\.so)$", maps, re.MULTILINE)))
    if len(names) != 1:
        raise BaselineError(f"one CPU back end must be loaded, found: {', '.join(names) or 'none'}")
    return folder / names[0]
