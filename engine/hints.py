"""Prefetch hints over the mapping of a model, and a walk over it with hints or advice for what comes next."""

from __future__ import annotations

from ctypes import byref, c_uint64
from dataclasses import dataclass

from engine.enums import Ahead, Prefetch
from engine.model import Model
from engine.native import check, lib

LINE_BYTES = 64
TRACE_HINT = 1 << 30
"""Added to the phase of a trace record of a range that was hinted at, not loaded (CFLOW_TRACE_HINT)."""


@dataclass(frozen=True)
class Hinted:
    """Hints that were given, page faults of the thread meanwhile (minor and major), and their time."""

    hints: int
    faults: int
    ns: int


def give_hints(
    model: Model, offset: int, size_bytes: int, hint: Prefetch, stride_bytes: int = LINE_BYTES
) -> Hinted:
    """Hints every `stride_bytes` over a range of the file's mapping; nothing is loaded.

    Raises ArgumentError for a range that is not inside the file.
    """
    hints, faults, elapsed = c_uint64(), c_uint64(), c_uint64()
    check(
        lib().cflow_probe_hints(
            model.handle, offset, size_bytes, stride_bytes, hint, byref(hints), byref(faults), byref(elapsed)
        )
    )
    return Hinted(hints.value, faults.value, elapsed.value)


def walk(
    model: Model, offset: int, size_bytes: int, ahead: Ahead, *, block_bytes: int = 1 << 20, passes: int = 1
) -> tuple[int, int]:
    """Reads a range of the file's mapping block by block, `passes` times each: (ns, a sum of its words).

    ahead: what is done about the next block before this one is read. Raises ArgumentError for a range that is
    not inside the file or not of whole blocks, FileError when the kernel refuses the advice.
    """
    elapsed, total = c_uint64(), c_uint64()
    check(
        lib().cflow_probe_blocks(
            model.handle, offset, size_bytes, block_bytes, passes, ahead, byref(elapsed), byref(total)
        )
    )
    return elapsed.value, total.value
