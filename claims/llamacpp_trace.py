"""What cachegrind counts in llama.cpp's own functions for one q4_0 matrix.

A model of one layer whose down matrix alone is q4_0: whatever these functions load while one token is decoded
belongs to it. The back end for 256-bit vectors is forced, for valgrind knows no AVX-512.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import numpy as np
from gguf import GGMLQuantizationType

from baselines.install import LLAMACPP, libraries
from claims.llamacpp_rows import PANEL_ROWS
from claims.moe_gguf import Tensor, random_q4_0, write_gguf
from claims.run import ROOT, SEED
from engine.geometry import Geometry
from harness.cachegrind import CachegrindError, FunctionCounts, run
from harness.cachesim import E5_2650, CacheGeometry

ROWS: Final = 256
COLUMNS: Final = 32768
BACK_END: Final = "haswell"
FUNCTIONS: Final[Mapping[int, str]] = {
    PANEL_ROWS: "gemv_q4_b32_8x8_q8_0_lut_avx",
    1: "ggml_vec_dot_q4_0_q8_0",
}
"""By rows per pass over the vector: the function that does all of the product in the pinned build."""
_SHAPE: Final = Geometry(
    layers=1,
    blocks=1,
    d_model=ROWS,
    heads=4,
    kv_heads=4,
    head_dim=64,
    ffn_hidden=COLUMNS,
    vocab=64,
    context=64,
)


def down_gguf(folder: Path) -> Path:
    """The cached model in `folder`. Raises FileError when it cannot be written."""
    digest = hashlib.sha256(f"down {_SHAPE} {SEED}".encode()).hexdigest()[:12]
    path = folder / f"llamacpp-down-{digest}.gguf"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_gguf(path, _SHAPE, _tensors())
    return path


def _tensors() -> Iterator[Tensor]:
    rng = np.random.default_rng(SEED)
    d, hidden = ROWS, COLUMNS

    def matrix(name: str, rows: int, columns: int) -> Tensor:
        values = rng.standard_normal((rows, columns), np.float32) * np.float32(columns**-0.5)
        return f"{name}.weight", GGMLQuantizationType.F16, values.astype(np.float16)

    def gain(name: str) -> Tensor:
        return f"{name}.weight", GGMLQuantizationType.F32, np.ones(d, np.float32)

    yield matrix("token_embd", _SHAPE.vocab, d)
    yield matrix("output", _SHAPE.vocab, d)
    yield gain("output_norm")
    for name in ("attn_norm", "ffn_norm"):
        yield gain(f"blk.0.{name}")
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        yield matrix(f"blk.0.{name}", d, d)
    for name in ("ffn_gate", "ffn_up"):
        yield matrix(f"blk.0.{name}", hidden, d)
    down = random_q4_0(rng, (d, hidden), hidden**-0.5)
    yield "blk.0.ffn_down.weight", GGMLQuantizationType.Q4_0, down


def traced(gguf: Path, panel_rows: int, geometry: CacheGeometry = E5_2650) -> FunctionCounts:
    """Counts of the one product of that matrix. Raises CachegrindError and BaselineError."""
    layout = "repacked" if panel_rows == PANEL_ROWS else "plain"
    program = [sys.executable, "-m", "baselines.llamacpp_once", str(libraries(LLAMACPP)), BACK_END]
    counts = run([*program, str(gguf.resolve()), layout], geometry, {"PYTHONPATH": str(ROOT)})
    name = FUNCTIONS[panel_rows]
    parts = [one.events for key, one in counts.items() if name in key and one.reads > 0]
    if not parts:
        raise CachegrindError(f"llama.cpp has no function {name}, or it did not run")
    return FunctionCounts({event: sum(part[event] for part in parts) for event in parts[0]})
