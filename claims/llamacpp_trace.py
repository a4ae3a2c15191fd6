"""What cachegrind counts in llama.cpp's own functions for one q4_0 matrix.

A model of one layer whose down matrix alone is q4_0: whatever these functions load while one token is decoded
belongs to it. The back end for 256-bit vectors is forced, for valgrind knows no AVX-512.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from baselines.install import LLAMACPP, libraries
from claims.llamacpp_rows import PANEL_ROWS
from claims.models import as_gguf, synthetic
from claims.run import ROOT
from engine.enums import Activation, Role, Type
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
    activation=Activation.SWIGLU,
)
_KINDS: Final[Mapping[Role, Type]] = {role: Type.F16 for role in Role if role is not Role.FFN_DOWN}


def down_gguf(folder: Path) -> Path:
    """The cached model in `folder`. Raises FileError when it cannot be written."""
    return as_gguf(synthetic(folder, "llamacpp-down", _SHAPE, _KINDS))


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
