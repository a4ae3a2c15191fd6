"""The forms in which a folder for Hugging Face's loaders can hold a matrix: bf16, and the int8 and int4 of
compressed-tensors.

The rules are those of its min-max observer and its formats `int-quantized` and `pack-quantized`: a symmetric
scale of max |w| over half the range (127.5 for a row of int8, 7.5 for a group of int4), codes rounded to even
and clamped, int4 stored as code + 8, eight to an int32, the first column in the lowest bits.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.safetensors_target import SafeTensor
from engine.tiles import Bytes

GROUP_COLUMNS: Final = 128
"""Columns that share a scale in int4."""

HEAD: Final = "lm_head"

_PACKED: Final = 8
_HALF_RANGE: Final = {"int8": 127.5, "int4": 7.5}

Values = npt.NDArray[np.float32]


class HfForm(StrEnum):
    """int8 is W8A8 (a scale per row, activations by token), int4 W4A16 with groups of 128 columns."""

    BF16 = "bf16"
    INT8 = "int8"
    INT4 = "int4"


def tensors_of(name: str, rows: int, columns: int, form: HfForm) -> tuple[SafeTensor, ...]:
    """The tensors that hold a matrix [rows, columns] called `name`, in the order of the file."""
    if form is HfForm.BF16:
        return (SafeTensor(f"{name}.weight", "BF16", (rows, columns)),)
    if form is HfForm.INT8:
        return (
            SafeTensor(f"{name}.weight", "I8", (rows, columns)),
            SafeTensor(f"{name}.weight_scale", "F32", (rows, 1)),
        )
    return (
        SafeTensor(f"{name}.weight_packed", "I32", (rows, columns // _PACKED)),
        SafeTensor(f"{name}.weight_scale", "BF16", (rows, columns // GROUP_COLUMNS)),
        SafeTensor(f"{name}.weight_shape", "I64", (2,)),
    )


def encode(values: Values, form: HfForm) -> tuple[Bytes, Bytes]:
    """The bytes of the weights and of the scales (none for bf16) of whole rows, float32 [rows, columns]."""
    if form is HfForm.BF16:
        return as_bytes(bf16_bits(values)), np.zeros(0, np.uint8)
    if form is HfForm.INT8:
        scales = _scales(values, form)
        codes = np.clip(np.rint(values / scales), -128, 127).astype(np.int8)
        return as_bytes(codes), as_bytes(scales)
    groups = values.reshape(values.shape[0], -1, GROUP_COLUMNS)
    stored = bf16_bits(_scales(groups, form))
    codes = np.clip(np.rint(groups / bf16_values(stored)), -8, 7).astype(np.int8) + np.int8(8)
    pairs = codes.view(np.uint8).reshape(values.shape[0], -1, 2)
    return as_bytes(pairs[..., 0] | (pairs[..., 1] << np.uint8(4))), as_bytes(stored)


def shape_bytes(rows: int, columns: int) -> Bytes:
    """The bytes of an int4 matrix's `weight_shape`."""
    return as_bytes(np.array([rows, columns], np.int64))


def quantization_config(form: HfForm, head: bool) -> dict[str, Any] | None:
    """What config.json says of the matrices; None for bf16. `head`: the head is in this form, too."""
    if form is HfForm.BF16:
        return None
    common = {"type": "int", "symmetric": True}
    if form is HfForm.INT8:
        layout = "int-quantized"
        weights = {**common, "num_bits": 8, "strategy": "channel", "dynamic": False}
        inputs = {**common, "num_bits": 8, "strategy": "token", "dynamic": True}
    else:
        layout, inputs = "pack-quantized", None
        weights = {**common, "num_bits": 4, "strategy": "group", "dynamic": False}
        weights |= {"group_size": GROUP_COLUMNS, "actorder": None}
    return {
        "quant_method": "compressed-tensors",
        "quantization_status": "compressed",
        "format": layout,
        "ignore": [] if head else [HEAD],
        "config_groups": {
            "group_0": {
                "targets": ["Linear", f"re:.*{HEAD}"] if head else ["Linear"],
                "weights": weights,
                "input_activations": inputs,
                "output_activations": None,
            }
        },
    }


def bf16_bits(values: Values) -> npt.NDArray[np.uint16]:
    """bfloat16, as its bits, of finite float32: round to nearest, ties to even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    bits = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (bits >> np.uint32(16)).astype(np.uint16)


def bf16_values(bits: npt.NDArray[np.uint16]) -> Values:
    """The inverse of `bf16_bits`, exact."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def as_bytes(array: npt.NDArray[Any]) -> Bytes:
    """The little-endian bytes of an array, uint8 [bytes]."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _scales(values: Values, form: HfForm) -> Values:
    """max |w| over half the range, along the last axis, which stays with length 1; 1 where all are zero."""
    largest = np.abs(values).max(axis=-1, keepdims=True)
    scales = largest / np.float32(_HALF_RANGE[form])
    return np.where(scales > 0, scales, np.float32(1)).astype(np.float32)
