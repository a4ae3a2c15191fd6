"""Claim 8: one model in each order of its data, and what a token reads of it, in the order of use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import xxhash
from numpy.typing import NDArray

from claims.models import LAYOUTS_PREFIX
from claims.run import SEED
from engine.arrangement import reader
from engine.enums import Order, Param, PieceKind, Role
from engine.geometry import Geometry
from engine.held import temporary_folder
from engine.model import Model, Tensor
from engine.session import Piece, Session
from engine.synth import synthesise
from engine.tensors import VECTOR_ROLES

LAYER, COPY, PHASE, KIND = "layer-major", "layer-major, fresh copy", "by phase", "by kind"
LAYOUTS: Final[Mapping[str, Order]] = {
    LAYER: Order.LAYER,
    COPY: Order.LAYER,
    PHASE: Order.PHASE,
    KIND: Order.KIND,
}
"""The copy is a file of its own with the bytes of the first: what differs between the two is no layout."""
STAGED: Final = (PHASE, KIND)
EVERY, ROUTED = "every expert", "routed experts"
PARTS: Final = (EVERY, ROUTED)
IDS: Final = (11, 7454, 2402, 257)
WORD_BYTES, SAMPLE_BYTES = 8, 4096

Ranges = NDArray[np.uint64]


@dataclass(frozen=True)
class Walk:
    """What one token reads of a file: (offset, bytes) in the order of use. digest: of the right bytes."""

    path: Path
    ranges: Ranges
    digest: int

    @property
    def needed_bytes(self) -> int:
        """Bytes of all ranges."""
        return int(self.ranges[:, 1].sum())


@dataclass(frozen=True)
class Layouts:
    """The files of one model by layout, and the walks over them by (part, layout). traced: see `Traced`."""

    geometry: str
    files: Mapping[str, Path]
    walks: Mapping[tuple[str, str], Walk]
    traced: Mapping[str, Traced]

    @property
    def file_bytes(self) -> int:
        """Size of each file, to a page or so: the layouts differ in the gaps between tensors."""
        return self.files[LAYER].stat().st_size


@dataclass(frozen=True)
class Traced:
    """Offsets of the matrices of one token as the kernels come to them, and in the order of the walk."""

    loaded: Sequence[int]
    walked: Sequence[int]


@contextmanager
def layouts(folder: Path, name: str, geometry: Geometry) -> Iterator[Layouts]:
    """Writes the files, each for itself, into a folder that is removed at the end. Raises FileError."""
    folder.mkdir(parents=True, exist_ok=True)
    with temporary_folder(folder, LAYOUTS_PREFIX) as temporary:
        files = {}
        for index, (layout, order) in enumerate(LAYOUTS.items()):
            suffix = "cflow" if order is Order.LAYER else "vflow"
            files[layout] = temporary / f"{name}-{index}.{suffix}"
            synthesise(files[layout], geometry, SEED, name=name, order=order)
        walks: dict[tuple[str, str], Walk] = {}
        traced = {}
        ids = [token % geometry.vocab for token in IDS]
        for part in PARTS:
            keys, traced[part] = _order_of_use(files[LAYER], ids, part)
            found = {layout: _ranges(path, keys) for layout, path in files.items()}
            digest = sampled_digest(files[LAYER], found[LAYER])
            walks |= {(part, layout): Walk(files[layout], ranges, digest) for layout, ranges in found.items()}
        yield Layouts(name, files, walks, traced)


Key = tuple[Role, int | None, int | None]


def used_tensors(
    pieces: Sequence[Piece], blocks: int, routing: NDArray[np.int32] | None, tied_head: bool
) -> list[Key]:
    """Role, block and expert of the tensors that a token uses, phase by phase as the executor does: vectors,
    then matrices in the order of the pieces. Keys of tensors that a model may lack are among them.

    routing: experts of each layer, [layers][slots]; None = every slot is the expert of that number.
    """
    dense = any(piece.kind is PieceKind.GATE_UP for piece in pieces)
    embedding = Role.HEAD if not tied_head else Role.EMBEDDING
    roles: dict[PieceKind, list[Role]] = {}
    for role in Role:
        if role in (Role.HEAD, Role.EMBEDDING) and role is not embedding:
            continue
        roles.setdefault(reader(role, dense), []).append(role)
    used: list[Key] = []
    for phase in range(1 + max(piece.phase for piece in pieces)):
        here = [piece for piece in pieces if piece.phase == phase]
        for vectors in (True, False):
            for piece in here:
                block = None if piece.layer is None else piece.layer % blocks
                expert = None
                if piece.kind in (PieceKind.EXPERT_GATE_UP, PieceKind.EXPERT_DOWN):
                    assert piece.layer is not None
                    expert = piece.slot if routing is None else int(routing[piece.layer, piece.slot])
                chosen = [role for role in roles[piece.kind] if (role in VECTOR_ROLES) is vectors]
                used += [(role, block, expert) for role in chosen]
    return used


def _order_of_use(path: Path, ids: Sequence[int], part: str) -> tuple[list[Key], Traced]:
    """The tensors of one token after `ids`, and beside them the trace of that token."""
    every = part == EVERY
    with (
        Model(path) as model,
        Session(
            model, threads=1, context=len(ids), read_streams=1, read_all_experts=every, prompt_batch=1
        ) as session,
    ):
        session.decode(ids[:-1])
        session.trace(1 << 20)
        session.decode(ids[-1:])
        loads = session.trace_records(0)[:, 0].astype(np.int64)
        routing = session.routing()[0] if model.param(Param.EXPERTS) and not every else None
        blocks, tied = model.param(Param.BLOCKS), model.param(Param.TIED_HEAD) == 1
        used = used_tensors(session.schedule(), blocks, routing, tied)
        tensors = {(tensor.role, tensor.block, tensor.expert): tensor for tensor in model.tensors}
        used = [key for key in used if key in tensors]
        matrices = [tensors[key] for key in used if key[0] not in VECTOR_ROLES]
        return used, Traced(_first_loads(loads, model.tensors, tied), [tensor.offset for tensor in matrices])


def _first_loads(loads: NDArray[np.int64], tensors: Sequence[Tensor], tied_head: bool) -> list[int]:
    """Offsets of the tensors in a trace, as often as they are come to; the row of the embedding left out."""
    ordered = sorted(tensors, key=lambda tensor: tensor.offset)
    starts = np.array([tensor.offset for tensor in ordered], np.int64)
    at = np.searchsorted(starts, loads, side="right") - 1
    come_to = at[np.flatnonzero(np.diff(at, prepend=-1))]
    named = [ordered[index] for index in come_to]
    return [tensor.offset for tensor in named if tied_head or tensor.role is not Role.EMBEDDING]


def _ranges(path: Path, keys: Sequence[Key]) -> Ranges:
    with Model(path) as model:
        tensors = {(tensor.role, tensor.block, tensor.expert): tensor for tensor in model.tensors}
        return np.array([(tensors[key].offset, tensors[key].bytes) for key in keys], np.uint64)


def sampled_digest(path: Path, ranges: Ranges) -> int:
    """XXH64 of the 8 bytes at every 4,096th byte of each range and of its last 8, as `probes.walk` has it."""
    data = np.memmap(path, np.uint8, "r")
    digest = xxhash.xxh64()
    for offset, size in ranges.tolist():
        words = data[offset : offset + size].view(np.uint64)
        last = len(words) - 1
        chosen = np.unique(np.append(np.arange(0, last, SAMPLE_BYTES // WORD_BYTES), last))
        digest.update(np.ascontiguousarray(words[chosen]).data)
    return digest.intdigest()
