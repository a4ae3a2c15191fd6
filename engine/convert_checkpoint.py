"""A trained model (`engine.checkpoint`) to .cflow or .vflow, with a type for each class of weights.

Nothing is permuted: training rotates the pairs (i, i + head_dim / 2) and multiplies by the gain, as the
engine does. Quantisation is that of GGUF (`engine.tiles.quantise`). Its error is
||stored - trained|| / ||trained|| over all weights of a class, with Euclidean norms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.checkpoint import TENSOR_NAMES, Checkpoint
from engine.enums import Order, Role, Type
from engine.errors import ArgumentError, NonFiniteError
from engine.format import CflowWriter
from engine.hyperparameters import Hyperparameters
from engine.kernels import pack_tiles
from engine.layout import fitting_name
from engine.stages import arrangement_of
from engine.tensors import TensorSpec, model_specs
from engine.tiles import TileShape, dequantise, quantise, type_named


class WeightClass(StrEnum):
    """Matrices that share a type. Routers, norms and registers are always f32."""

    ATTENTION = "attention"
    DENSE = "dense"
    EXPERT = "expert"
    EMBEDDING = "embedding"
    HEAD = "head"


_CLASS_OF: Final[Mapping[Role, WeightClass]] = {
    Role.ATTN_QKV: WeightClass.ATTENTION,
    Role.ATTN_OUTPUT: WeightClass.ATTENTION,
    Role.FFN_GATE_UP: WeightClass.DENSE,
    Role.FFN_DOWN: WeightClass.DENSE,
    Role.EXPERT_GATE_UP: WeightClass.EXPERT,
    Role.EXPERT_DOWN: WeightClass.EXPERT,
    Role.EMBEDDING: WeightClass.EMBEDDING,
    Role.HEAD: WeightClass.HEAD,
}


@dataclass(frozen=True)
class QuantisationError:
    """Of one class of weights: its type, its relative norm error, and the matrix with the largest one."""

    weights: WeightClass
    kind: Type
    relative: float
    worst: str
    worst_relative: float


@dataclass(frozen=True)
class CheckpointConversion:
    """What was written. `errors`: of each class that the model has, in the order of `WeightClass`."""

    path: Path
    name: str
    tensors: int
    file_bytes: int
    errors: tuple[QuantisationError, ...]


def parse_types(text: str) -> dict[WeightClass, Type]:
    """Types from "q4_0" (all classes) or "q4_0,head=f16,attention=f32" (one for all, then what differs).

    Classes that are not named are q4_0. Raises ArgumentError that names what is not allowed and what is.
    """
    types = dict.fromkeys(WeightClass, Type.Q4_0)
    for index, item in enumerate(piece.strip() for piece in text.split(",")):
        name, equals, label = item.partition("=")
        if not equals and index == 0:
            types = dict.fromkeys(WeightClass, type_named(item))
        elif equals and name in set(WeightClass):
            types[WeightClass(name)] = type_named(label)
        else:
            raise ArgumentError(
                f"{item!r} must be a type, or CLASS=TYPE with a class of {', '.join(WeightClass)}"
            )
    return types


def convert_checkpoint(
    folder: Path,
    target: Path,
    *,
    types: Mapping[WeightClass, Type] | None = None,
    tile_shape: TileShape | None = None,
    order: Order = Order.LAYER,
    progress: Callable[[int, int], None] | None = None,
) -> CheckpointConversion:
    """Writes the model in `folder` to `target`. `progress(done, total)` counts stored bytes.

    types: of classes; q4_0 for those that are not named. Memory: one tensor, or one expert of it. Raises
    FileError, FormatError and NonFiniteError naming file and field or tensor; nothing half-written stays.
    """
    kinds = {**dict.fromkeys(WeightClass, Type.Q4_0), **(types or {})}
    shape = tile_shape or TileShape()
    with Checkpoint(folder) as checkpoint:
        config = checkpoint.config
        plain = config.geometry.hyperparameters(shape.rows, shape.cols)
        hparams = replace(plain, bos=config.bos, eos=config.eos)
        specs = model_specs(hparams, lambda role: kinds[_CLASS_OF[role]])
        checkpoint.check_tensors(tensor_shapes(hparams))
        errors = _Errors()
        arrangement = arrangement_of(order, hparams, specs, target.parent)
        name = fitting_name(config.name)
        with CflowWriter(target, hparams, specs, checkpoint.tokenizer_json, name, arrangement) as writer:
            total, done = sum(writer.layout.lengths), 0
            for spec, length in zip(writer.specs, writer.layout.lengths, strict=True):
                with np.errstate(over="ignore", invalid="ignore"):  # refused by the writer, with its place
                    data = _data(checkpoint, spec, shape, errors)
                try:
                    writer.write(spec, data)
                except NonFiniteError as error:  # a value beyond what the scales of its type hold
                    raise NonFiniteError(f"{folder}: {error}") from error
                done += length
                if progress is not None:
                    progress(done, total)
            file_bytes = writer.layout.file_bytes
    return CheckpointConversion(target, name, len(specs), file_bytes, errors.of_classes(kinds))


def tensor_shapes(hparams: Hyperparameters) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor that a folder of such a model holds."""
    shapes: dict[str, tuple[int, ...]] = {}
    for spec in model_specs(hparams, lambda role: Type.F32):
        for name, rows in zip(TENSOR_NAMES[spec.role], spec.part_rows, strict=True):
            one = (rows,) if spec.is_vector else (rows, spec.columns)
            stacked = one if spec.expert is None else (hparams.experts, *one)
            shapes[name.format(b=spec.block)] = stacked
    return shapes


def _data(
    checkpoint: Checkpoint, spec: TensorSpec, shape: TileShape, errors: _Errors
) -> npt.NDArray[np.uint8] | npt.NDArray[np.float32]:
    """Stored bytes of a tensor."""
    names = [name.format(b=spec.block) for name in TENSOR_NAMES[spec.role]]
    values = [checkpoint.values(name, spec.expert) for name in names]
    if spec.is_vector:
        return values[0]
    parts = []
    for name, matrix in zip(names, values, strict=True):
        parts.append(quantise(matrix, spec.kind))
        if spec.role in _CLASS_OF:
            where = name if spec.expert is None else f"{name}[{spec.expert}]"
            errors.add(_CLASS_OF[spec.role], where, matrix, dequantise(parts[-1], spec.kind))
    return pack_tiles(spec.kind, parts, spec.columns, shape.rows, shape.cols)


class _Errors:
    """Sums of squares of what was trained and of how far it is from what is stored."""

    def __init__(self) -> None:
        self._squares: dict[WeightClass, tuple[float, float]] = {}
        self._worst: dict[WeightClass, tuple[float, str]] = {}

    def add(
        self,
        weights: WeightClass,
        name: str,
        trained: npt.NDArray[np.float32],
        stored: npt.NDArray[np.float32],
    ) -> None:
        difference = _square(stored - trained)
        norm = _square(trained)
        differences, norms = self._squares.get(weights, (0.0, 0.0))
        self._squares[weights] = (differences + difference, norms + norm)
        self._worst[weights] = max(self._worst.get(weights, (-1.0, "")), (_relative(difference, norm), name))

    def of_classes(self, kinds: Mapping[WeightClass, Type]) -> tuple[QuantisationError, ...]:
        return tuple(
            QuantisationError(
                weights,
                kinds[weights],
                _relative(*self._squares[weights]),
                self._worst[weights][1],
                self._worst[weights][0],
            )
            for weights in WeightClass
            if weights in self._squares
        )


def _square(values: npt.NDArray[np.float32]) -> float:
    return float(np.sum(np.square(values, dtype=np.float64)))


def _relative(difference: float, norm: float) -> float:
    return math.sqrt(difference / norm) if norm > 0 else 0.0
