"""A simulated cache, fed by the kernels themselves or by a list of accesses.

The kernels of the recording library pass each load and store to the model; nothing here describes a kernel a
second time. True LRU, loads and stores allocate alike, an access over two lines is at most one miss: as in
cachegrind, so that the two can be compared. No prefetcher, no other level, no other process.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import byref
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from engine.enums import AccessField, AccessKind, PieceKind
from engine.errors import ArgumentError
from engine.native import CacheHandle, check, lib, pointer, recording_library
from harness.machine import ROOT, caches

READS: Final = (AccessKind.WEIGHT, AccessKind.SCALE, AccessKind.ACTIVATION, AccessKind.OUTPUT_LOAD)
"""Kinds that a counter of read misses counts."""


@dataclass(frozen=True)
class CacheGeometry:
    """Size, associativity and line of one cache."""

    name: str
    size_bytes: int
    ways: int
    line_bytes: int

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.size_bytes / 1024:g} KiB, {self.ways}-way, {self.line_bytes} B lines, LRU, "
            "stores allocate, no prefetcher"
        )

    def cachegrind(self) -> str:
        """As the option --D1 of cachegrind wants it."""
        return f"{self.size_bytes},{self.ways},{self.line_bytes}"


E5_2650: Final = CacheGeometry("L1-d of the paper's Xeon E5-2650", 32 * 1024, 8, 64)


def this_machine(root: Path = ROOT) -> CacheGeometry | None:
    """L1-d of CPU 0, from /sys; None where the kernel does not say."""
    try:
        found = [item for item in caches(root) if item["level"] == 1 and item["type"] == "data"]
    except (OSError, KeyError, ValueError):
        return None
    if not found or not found[0]["ways"] or not found[0]["line_bytes"]:
        return None
    one = found[0]
    return CacheGeometry("L1-d of this machine", one["size_bytes"], one["ways"], one["line_bytes"])


@dataclass(frozen=True)
class AccessCounts:
    """Accesses, bytes and misses by kind: int arrays [kind, field]."""

    values: npt.NDArray[np.uint64]

    def of(self, field: AccessField, *kinds: AccessKind) -> int:
        """The sum of a field over kinds."""
        return int(sum(int(self.values[kind, field]) for kind in kinds))

    @property
    def read_misses(self) -> int:
        """Loads that missed."""
        return self.of(AccessField.MISSES, *READS)

    @property
    def reads(self) -> int:
        """Loads."""
        return self.of(AccessField.ACCESSES, *READS)

    @property
    def activation_loads(self) -> int:
        """Load instructions for prepared activations: values or codes, scales, sums."""
        return self.of(AccessField.ACCESSES, AccessKind.ACTIVATION)

    @property
    def weight_bytes(self) -> int:
        """Bytes of codes, scales and minima that were loaded."""
        return self.of(AccessField.BYTES, AccessKind.WEIGHT, AccessKind.SCALE)


class Cache:
    """An empty cache of some geometry. A context manager; made in the library that is in use."""

    def __init__(self, geometry: CacheGeometry) -> None:
        self._library = lib()
        self.geometry = geometry
        handle = CacheHandle()
        check(
            self._library.cflow_cache_create(
                geometry.size_bytes, geometry.ways, geometry.line_bytes, byref(handle)
            )
        )
        self._handle = handle
        self._finalizer = weakref.finalize(self, self._library.cflow_cache_destroy, handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Frees it. May be called again."""
        self._finalizer()

    @property
    def handle(self) -> CacheHandle:
        """The C handle; ArgumentError after `close()`."""
        if not self._finalizer.alive:
            raise ArgumentError("the cache is closed")
        return self._handle

    def run(self, accesses: npt.NDArray[np.uint64]) -> None:
        """Accesses in order, uint64 [n, 3]: address, bytes, AccessKind. Counted outside any piece."""
        if accesses.ndim != 2 or accesses.shape[1] != 3:
            raise ArgumentError(f"accesses: shape {accesses.shape} found, (n, 3) is needed")
        data = pointer("accesses", accesses, np.uint64, accesses.size)
        check(self._library.cflow_cache_run(self.handle, data, len(accesses)))

    def counts(self, piece: PieceKind | None = None) -> AccessCounts:
        """Counts of one kind of piece, or of all accesses outside any piece (None)."""
        values = np.zeros((len(AccessKind), len(AccessField)), dtype=np.uint64)
        out = pointer("counts", values, np.uint64, values.size)
        index = len(PieceKind) if piece is None else piece
        check(self._library.cflow_cache_counts(self.handle, index, out))
        return AccessCounts(values)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Every access of the library's matrix kernels inside goes through this cache.

        Raises UnsupportedError outside `recording_library()`, ArgumentError inside another recording.
        """
        check(self._library.cflow_record_to(self.handle))
        try:
            yield
        finally:
            check(self._library.cflow_record_to(None))


def simulate(geometry: CacheGeometry, work: Callable[[], Any]) -> AccessCounts:
    """Counts of the products that `work` computes outside a session, from an empty cache."""
    with recording_library(), Cache(geometry) as cache:
        with cache.recording():
            work()
        return cache.counts()
