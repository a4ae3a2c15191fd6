"""Matrices on which kernels are compared: random ones of odd sizes, adversarial blocks, exact products."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from claims.run import SEED
from engine.enums import Isa, Type
from engine.kernels import Kernel, gemv, kernels, pack_tiles
from engine.tiles import dequantise, quantise

_SHAPES = ((1, 32), (17, 32), (16, 256), (129, 288), (200, 1056), (384, 2048))


@dataclass(frozen=True)
class Case:
    """A matrix as GGUF rows and as tiles, an input, and the exact product in float64."""

    name: str
    rows: int
    tiles: NDArray[np.uint8]
    x: NDArray[np.float32]
    exact: NDArray[np.float64]


def _adversarial(blocks: NDArray[np.uint8], kind: Type, rng: np.random.Generator) -> NDArray[np.uint8]:
    """The same rows with scales among zero, subnormal, tiny, huge and negative ones."""
    size = {Type.Q4_0: 18, Type.Q4_1: 20, Type.Q8_0: 34}[kind]
    out = blocks.copy().reshape(blocks.shape[0], -1, size)
    scales = np.array([0.0, 6e-8, -6e-8, 6.1e-5, 1.0, -1.0, 60000.0, -60000.0], np.float16)
    chosen = rng.integers(0, len(scales), out.shape[:2])
    out[:, :, :2] = scales[chosen].view(np.uint8).reshape(*out.shape[:2], 2)
    return out.reshape(blocks.shape)


@cache
def cases(kind: Type) -> tuple[Case, ...]:
    """All cases of a weight type; same seed, same cases."""
    return tuple(_make(kind))


def _make(kind: Type) -> Iterator[Case]:
    rng = np.random.default_rng([SEED, kind])
    for rows, columns in _SHAPES:
        weights = rng.standard_normal((rows, columns), np.float32)
        blocks = quantise(weights, kind)
        yield _case(f"{rows} x {columns}", kind, blocks, columns, rng)
        if kind in (Type.Q4_0, Type.Q4_1, Type.Q8_0):
            yield _case(
                f"{rows} x {columns}, adversarial scales", kind, _adversarial(blocks, kind, rng), columns, rng
            )


def _case(name: str, kind: Type, blocks: NDArray[np.uint8], columns: int, rng: np.random.Generator) -> Case:
    x = rng.standard_normal(columns).astype(np.float32)
    exact = dequantise(blocks, kind).astype(np.float64) @ x.astype(np.float64)
    return Case(name, blocks.shape[0], pack_tiles(kind, [blocks], columns), x, exact)


def tiled_kernel(kind: Type, q8: bool, isa: Isa) -> Kernel | None:
    """The tiled kernel of exactly this instruction set, if there is one."""
    for kernel in kernels():
        if (kernel.type, kernel.q8, kernel.isa, kernel.rows_per_pass) == (kind, q8, isa, 0):
            return kernel
    return None


def best_q8_kernel(isa: Isa) -> Kernel:
    """The tiled q4_0 kernel with 8-bit activations of the best instruction set up to `isa`."""
    for candidate in sorted((found for found in Isa if found <= isa), reverse=True):
        kernel = tiled_kernel(Type.Q4_0, True, candidate)
        if kernel is not None:
            return kernel
    raise AssertionError("the scalar kernel always exists")


def product(kernel: Kernel, case: Case) -> NDArray[np.float32]:
    """W x of a case by one kernel."""
    return gemv(kernel, case.tiles, case.rows, case.x)
