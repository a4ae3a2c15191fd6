"""Reads that fail on purpose, inside `engine.native.fault_library()`: for tests of what happens then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from engine.enums import Fault
from engine.native import check, lib

ALL = (1 << 64) - 1
"""As `count`: every read from then on."""


@contextmanager
def faults(kind: Fault, *, after: int = 0, count: int = 1) -> Iterator[None]:
    """Inside, of the reads of this process `after` go well, then `count` fail, then they go well again.

    A read is one request of the device; the second try of one counts again. Raises UnsupportedError outside
    `fault_library()`.
    """
    library = lib()
    check(library.cflow_fault_set(kind, after, count))
    try:
        yield
    finally:
        check(library.cflow_fault_set(Fault.NONE, 0, 0))
