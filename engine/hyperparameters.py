"""The parameters in the header of a .cflow file, with the checks that `include/cflow.h` states for them."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import TypeVar

import numpy as np

from engine.enums import Activation, Architecture, Route
from engine.errors import ArgumentError
from engine.tiles import TileShape

NONE_U32 = 0xFFFFFFFF

_E = TypeVar("_E", bound=IntEnum)

#: Least and largest value, and what it must be a multiple of. The C reader refuses what lies outside.
_LIMITS = {
    "layers": (1, 4096, 1),
    "d_model": (32, 1 << 18, 32),
    "heads": (1, 1 << 14, 1),
    "kv_heads": (1, 1 << 14, 1),
    "head_dim": (2, 4096, 2),
    "ffn_hidden": (0, 1 << 20, 32),
    "experts": (0, 1 << 14, 1),
    "experts_per_token": (0, 1 << 10, 1),
    "expert_hidden": (0, 1 << 20, 32),
    "vocab": (1, 1 << 24, 1),
    "context": (1, 1 << 24, 1),
    "dense_delay": (0, 64, 1),
    "expert_delay": (0, 64, 1),
}


@dataclass(frozen=True)
class Hyperparameters:
    """The header parameters, named as `cflow_model_param_name` names them, in file order.

    `rms_eps` and `rope_base` are rounded to float32, which the file stores; `bos` and `eos` may be None.
    Raises ArgumentError that names the field, what it is and what is allowed.
    """

    layers: int
    blocks: int
    d_model: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn_hidden: int
    experts: int
    experts_per_token: int
    expert_hidden: int
    vocab: int
    context: int
    architecture: Architecture = Architecture.DELAYED
    dense_delay: int = 0
    expert_delay: int = 0
    route: Route = Route.CURRENT
    activation: Activation = Activation.GEGLU
    norm_topk: bool = True
    tile_rows: int = 128
    tile_cols: int = 256
    rms_eps: float = 1e-6
    rope_base: float = 10000.0
    tied_head: bool = False
    bos: int | None = None
    eos: int | None = None

    def __post_init__(self) -> None:
        with np.errstate(over="ignore"):  # beyond float32 is infinite, and refused below
            for name in ("rms_eps", "rope_base"):
                object.__setattr__(self, name, float(np.float32(getattr(self, name))))
        self._check_sizes()
        self._check_choices()

    @property
    def tile_shape(self) -> TileShape:
        """Rows and columns of a whole tile."""
        return TileShape(self.tile_rows, self.tile_cols)

    def words(self) -> list[int]:
        """The parameters as they are stored, one uint32 each."""
        values: list[int] = []
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, float):
                values.append(struct.unpack("<I", struct.pack("<f", value))[0])
            else:
                values.append(NONE_U32 if value is None else int(value))
        return values

    @classmethod
    def from_words(cls, words: list[int]) -> Hyperparameters:
        """The inverse of `words()`. Raises ArgumentError for values that are not allowed."""
        stored = dict(zip((item.name for item in fields(cls)), words, strict=True))
        floats = {
            n: struct.unpack("<f", struct.pack("<I", stored.pop(n)))[0] for n in ("rms_eps", "rope_base")
        }
        ids = {n: None if stored[n] == NONE_U32 else stored[n] for n in ("bos", "eos")}
        choices = {
            "architecture": _choice(Architecture, "architecture", stored["architecture"]),
            "route": _choice(Route, "route", stored["route"]),
            "activation": _choice(Activation, "activation", stored["activation"]),
            "norm_topk": _flag("norm_topk", stored["norm_topk"]),
            "tied_head": _flag("tied_head", stored["tied_head"]),
        }
        return cls(**{**stored, **floats, **ids, **choices})

    def _check_sizes(self) -> None:
        for name, (low, high, multiple) in _LIMITS.items():
            value = getattr(self, name)
            _in_range(name, value, low, high)
            if value % multiple:
                raise ArgumentError(f"{name} is {value}, must be a multiple of {multiple}")
        _in_range("blocks", self.blocks, 1, self.layers)
        width = self.heads * self.head_dim
        if width % 32:
            raise ArgumentError(f"heads * head_dim is {width}, must be a multiple of 32")
        if self.heads % self.kv_heads:
            raise ArgumentError(f"kv_heads is {self.kv_heads}, must divide heads = {self.heads}")
        if self.experts:
            _in_range("experts_per_token", self.experts_per_token, 1, self.experts)
            _in_range("expert_hidden", self.expert_hidden, 32, _LIMITS["expert_hidden"][1])
        elif self.experts_per_token or self.expert_hidden:
            raise ArgumentError("experts is 0, so experts_per_token and expert_hidden must be 0")
        elif not self.ffn_hidden:
            raise ArgumentError("ffn_hidden and experts are both 0, one must be positive")

    def _check_choices(self) -> None:
        delayed = self.dense_delay or self.expert_delay or self.route is not Route.CURRENT
        if self.architecture is not Architecture.DELAYED and delayed:
            raise ArgumentError(
                f"dense_delay is {self.dense_delay}, expert_delay {self.expert_delay}, route "
                f"{self.route.name.lower()}, must be 0, 0 and current for {self.architecture.name.lower()}"
            )
        if not 0 <= self.rms_eps < 1:
            raise ArgumentError(f"rms_eps is {self.rms_eps}, must be at least 0 and less than 1")
        if not (math.isfinite(self.rope_base) and self.rope_base >= 1):
            raise ArgumentError(f"rope_base is {self.rope_base}, must be a finite number, at least 1")
        for name in ("bos", "eos"):
            if getattr(self, name) is not None:
                _in_range(name, getattr(self, name), 0, self.vocab - 1)
        _ = self.tile_shape


def _choice(kind: type[_E], name: str, value: int) -> _E:
    _in_range(name, value, 0, len(kind) - 1)
    return kind(value)


def _flag(name: str, value: int) -> bool:
    _in_range(name, value, 0, 1)
    return bool(value)


def _in_range(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ArgumentError(f"{name} is {value}, must be in {low}..{high}")
