"""Small valid model files that fuzzing starts from: every architecture, type, order and optional part.

`python -m tools.fuzz seeds` writes them to fuzz/corpus; the same files each time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from engine.enums import Activation, Architecture, Order, Role, Route, Type
from engine.format import CflowWriter, TensorSpec, model_specs
from engine.geometry import Geometry
from engine.stages import arrangement_of
from engine.tiles import Bytes, TileShape, pack, quantise

TAIL_BYTES = 16
"""Behind the file in an input of target vflow: TAIL_* of fuzz/fuzz_vflow.c."""

_SMALL = Geometry(
    layers=2,
    blocks=1,
    d_model=32,
    heads=2,
    kv_heads=1,
    head_dim=16,
    ffn_hidden=32,
    vocab=16,
    context=8,
)
_EXPERTS = replace(_SMALL, experts=2, experts_per_token=1, expert_hidden=32)
_MIXED = {
    Role.EMBEDDING: Type.F16,
    Role.ATTN_QKV: Type.Q4_1,
    Role.ATTN_OUTPUT: Type.F32,
    Role.FFN_GATE_UP: Type.Q8_0,
    Role.EXPERT_GATE_UP: Type.Q8_0,
    Role.EXPERT_DOWN: Type.Q4_1,
}
_TOKENIZER = '{"version":"1.0","model":{"type":"BPE","vocab":{"a":0,"\u00e4":1},"merges":[]}}'


@dataclass(frozen=True)
class Seed:
    """One model; `types` by role, q4_0 for the others. tables: False when another has tables like its own."""

    name: str
    geometry: Geometry
    types: Mapping[Role, Type] = field(default_factory=dict)
    tile_rows: int = 128
    tile_cols: int = 256
    tokenizer_json: str | None = None
    tables: bool = True


def _all(kind: Type) -> dict[Role, Type]:
    return dict.fromkeys(Role, kind)


SEEDS = (
    Seed("dense-tied", replace(_SMALL, tied=True, activation=Activation.SWIGLU)),
    Seed("dense-tokenizer", _SMALL, tokenizer_json=_TOKENIZER),
    Seed("dense-bias-qknorm", replace(_SMALL, qkv_bias=True, qk_norm=True, vocab=17)),
    Seed("dense-q4_1", _SMALL, _all(Type.Q4_1), tables=False),
    Seed("dense-q8_0", _SMALL, _all(Type.Q8_0), tokenizer_json=_TOKENIZER),
    Seed("dense-small-tiles", replace(_SMALL, d_model=64, ffn_hidden=96), tile_rows=16, tile_cols=32),
    Seed("moe-only", replace(_EXPERTS, ffn_hidden=0, norm_topk=False, experts_per_token=2)),
    Seed("arch1", replace(_EXPERTS, architecture=Architecture.TWO_STREAM)),
    Seed("arch2_4_combined", replace(_EXPERTS, layers=4, dd=1, de=2, tied=True)),
    Seed("arch2_4_sync", replace(_EXPERTS, dd=1), tables=False),
    Seed("arch3", replace(_EXPERTS, architecture=Architecture.REGISTER)),
    Seed("arch4", replace(_EXPERTS, layers=3, de=2, route=Route.PRE_DENSE)),
    Seed("arch5", replace(_EXPERTS, layers=4, blocks=2, experts=1, ffn_hidden=0)),
    Seed("moe-mixed-types", _EXPERTS, _MIXED),
)


def write_seeds(folder: Path) -> list[Path]:
    """Writes all inputs below `folder`, one folder per target. Raises FileError and LibraryError."""
    written = []
    for index, seed in enumerate(SEEDS):
        stage_order = (Order.PHASE, Order.KIND)[index % 2]
        # One in the order of .cflow, too, for the paths through its data.
        orders = (stage_order, Order.LAYER) if index == 0 else (stage_order,)
        if seed.tables:
            written.append(_put(folder / "cflow", seed, Order.LAYER, _model(seed, Order.LAYER)))
        for order in orders:
            tail = _tail(index + (order is Order.LAYER))
            written.append(_put(folder / "vflow", seed, order, _model(seed, order) + tail))
    return written


def _put(folder: Path, seed: Seed, order: Order, data: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{seed.name}-{order.name.lower()}.seed"
    path.write_bytes(data)
    return path


def _tail(index: int) -> bytes:
    """Options of a session: all residencies, kinds of reads and instruction sets, in turn."""
    rng = np.random.default_rng(index)
    tail = bytearray(rng.integers(0, 256, TAIL_BYTES, np.uint8).tobytes())
    tail[0] = index % 3
    tail[10] = 0  # tiles
    return bytes(tail)


def _model(seed: Seed, order: Order) -> bytes:
    hparams = seed.geometry.hyperparameters(seed.tile_rows, seed.tile_cols)
    specs = model_specs(
        hparams,
        lambda role: seed.types.get(role, Type.Q4_0),
        seed.geometry.qkv_bias,
        seed.geometry.qk_norm,
    )
    rng = np.random.default_rng(0)
    data = {spec.key: bytes(data) for spec, data in _weights(specs, hparams.tile_shape, rng)}
    with TemporaryDirectory(prefix="cflow-seeds-") as temporary:
        path = Path(temporary) / "seed"
        arrangement = arrangement_of(order, hparams, specs, path.parent)
        with CflowWriter(path, hparams, specs, seed.tokenizer_json, seed.name, arrangement) as writer:
            for spec in writer.specs:
                writer.write(spec, data[spec.key])
        return path.read_bytes()


def _weights(
    specs: list[TensorSpec], tile_shape: TileShape, rng: np.random.Generator
) -> Iterator[tuple[TensorSpec, Bytes]]:
    for spec in specs:
        if spec.is_vector:
            values = np.ones(spec.part_rows[0], np.float32)
            yield spec, values.view(np.uint8)
            continue
        sigma = np.float32(1 / math.sqrt(spec.columns))
        rows = [sigma * rng.standard_normal((n, spec.columns), np.float32) for n in spec.part_rows]
        yield spec, pack(spec.layout(tile_shape), [quantise(part, spec.kind) for part in rows])
