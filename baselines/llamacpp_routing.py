"""Which experts llama.cpp routes a token to, as its own graph says.

Runs in the worker. llama.cpp shows each tensor of its graph to a callback that may ask for its values; the
choice of layer L is called `ffn_moe_topk-L`, int32, k of one token. Asking makes it wait for that tensor: for
what is counted, never for what is timed.
"""

from __future__ import annotations

import ctypes
import re
from typing import Any

import numpy as np

from baselines import llamacpp_abi as abi

_CHOICE = re.compile(rb"ffn_moe_topk-(\d+)")


class Routing:
    """The choices of the last token. `callback` must live as long as the context that it is given to."""

    def __init__(self, base: Any) -> None:
        self._base = base
        self._chosen: dict[int, list[int]] = {}
        self.callback = abi.EvalCallback(self._seen)

    def forget(self) -> None:
        """Before the next token."""
        self._chosen.clear()

    def chosen(self) -> list[list[int]]:
        """Experts of the last token by layer, ascending; empty without experts."""
        return [sorted(self._chosen[layer]) for layer in sorted(self._chosen)]

    def _seen(self, tensor: int | None, ask: bool, _: int | None) -> bool:
        name = _CHOICE.fullmatch(self._base.ggml_get_name(tensor))
        if name is None:
            return not ask  # not wanted; and go on
        if not ask:
            ids = np.empty(self._base.ggml_nbytes(tensor) // 4, np.int32)
            address = ids.ctypes.data_as(ctypes.c_void_p)
            self._base.ggml_backend_tensor_get(tensor, address, 0, ids.nbytes)
            self._chosen[int(name[1])] = ids.tolist()
        return True
