"""Measurement in C: a pool of pinned workers, an arena that they touched first, and the probes on both."""

import ctypes
import weakref
from ctypes import POINTER, byref, c_int, c_uint64
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

from engine.enums import Isa, Prefetch, Status, WalkWay
from engine.errors import ArgumentError
from engine.kernels import TILE_COLS, TILE_ROWS, Kernel
from engine.model import Model
from engine.native import ArenaHandle, PoolHandle, check, lib, path_bytes, pointer, text

READ_STREAMS = 4
"""Default of the session option read_streams."""
MIB = 1 << 20


class Pool:
    """Worker threads, each pinned to its own physical core if `pin`. A context manager."""

    def __init__(self, threads: int, *, pin: bool = True) -> None:
        self._library = lib()
        handle = PoolHandle()
        check(self._library.cflow_pool_create(threads, int(pin), byref(handle)))
        self.threads = threads
        self._handle = handle
        self._finalizer = weakref.finalize(self, self._library.cflow_pool_destroy, handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the workers. May be called again; close the arenas of the pool first."""
        self._finalizer()

    @property
    def handle(self) -> PoolHandle:
        """The C handle; ArgumentError after `close()`."""
        if not self._finalizer.alive:
            raise ArgumentError("the pool is closed")
        return self._handle

    @property
    def worker_cpus(self) -> list[int]:
        """CPU that each worker is bound to, as the kernel reports it; -1 for one that is not bound."""
        cpus = []
        for thread in range(self.threads):
            cpu = c_int()
            check(self._library.cflow_pool_worker_cpu(self.handle, thread, byref(cpu)))
            cpus.append(cpu.value)
        return cpus

    def run_delays_ns(self) -> list[int] | None:
        """Nanoseconds that each worker waited for a CPU since creation; None when the kernel keeps none."""
        delays = []
        for thread in range(self.threads):
            delay = c_uint64()
            status = self._library.cflow_pool_run_delay(self.handle, thread, byref(delay))
            if status == Status.ERR_UNSUPPORTED:
                return None
            check(status)
            delays.append(delay.value)
        return delays

    def touch(self, size_bytes: int) -> int:
        """Nanoseconds that all workers need to touch `size_bytes` of new memory, which is freed again."""
        elapsed = c_uint64()
        check(self._library.cflow_probe_touch(self.handle, size_bytes, byref(elapsed)))
        return elapsed.value

    def load(self, model: Model) -> tuple[int, int]:
        """Reads the data of a model into memory that was touched before.

        Returns nanoseconds, and how many bytes were read past the page cache since they were not in it.
        """
        elapsed, direct = c_uint64(), c_uint64()
        check(self._library.cflow_probe_load(self.handle, model.handle, byref(elapsed), byref(direct)))
        return elapsed.value, direct.value

    def flops(self, isa: Isa, iterations: int) -> tuple[int, int]:
        """f32 multiply-add throughput of all workers: (operations, nanoseconds); a multiply-add counts 2."""
        operations, elapsed = c_uint64(), c_uint64()
        check(
            self._library.cflow_probe_flops(self.handle, isa, iterations, byref(operations), byref(elapsed))
        )
        return operations.value, elapsed.value


class Arena:
    """`size_bytes` of anonymous memory, first touched by the workers of `pool`. A context manager."""

    def __init__(self, pool: Pool, size_bytes: int, *, huge: bool = True) -> None:
        self._library = lib()
        self.pool = pool
        self.size_bytes = size_bytes
        handle = ArenaHandle()
        check(self._library.cflow_arena_create(pool.handle, size_bytes, int(huge), byref(handle)))
        self._handle = handle
        self._finalizer = weakref.finalize(self, _destroy_arena, self._library, handle, pool)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Frees the memory; arrays from `data()` must not be used any more. May be called again."""
        self._finalizer()

    @property
    def handle(self) -> ArenaHandle:
        """The C handle; ArgumentError after `close()`."""
        if not self._finalizer.alive:
            raise ArgumentError("the arena is closed")
        return self._handle

    def data(self) -> npt.NDArray[np.uint8]:
        """A writable view, uint8 [size_bytes], valid until `close()`."""
        address = self._library.cflow_arena_data(self.handle)
        view = ctypes.cast(address, POINTER(ctypes.c_uint8 * self.size_bytes)).contents
        return np.ctypeslib.as_array(view)

    def read(self, pattern: int) -> tuple[int, int]:
        """One read-only pass by all workers: (nanoseconds, sum that keeps the reads alive)."""
        elapsed, total = c_uint64(), c_uint64()
        pool = self.pool.handle
        check(self._library.cflow_probe_read(pool, self.handle, pattern, byref(elapsed), byref(total)))
        return elapsed.value, total.value

    def gemv(
        self,
        kernel: Kernel,
        rows: int,
        x: npt.NDArray[np.float32],
        y: npt.NDArray[np.float32],
        *,
        tile_rows: int = TILE_ROWS,
        tile_cols: int = TILE_COLS,
        hint: Prefetch = Prefetch.NONE,
        distance_bytes: int = 4096,
        streams: int = READ_STREAMS,
    ) -> int:
        """y [rows] = W x over a matrix that the caller put into the arena, by all workers; nanoseconds."""
        elapsed = c_uint64()
        check(
            self._library.cflow_probe_gemv(
                self.pool.handle,
                self.handle,
                kernel.index,
                rows,
                x.size,
                tile_rows,
                tile_cols,
                hint,
                distance_bytes,
                streams,
                pointer("x", x, np.float32, x.size),
                pointer("y", y, np.float32, rows),
                byref(elapsed),
            )
        )
        return elapsed.value


def read_patterns() -> list[str]:
    """Names of the read patterns, by index."""
    return [text(lib().cflow_read_pattern_name(index)) for index in range(lib().cflow_read_pattern_count())]


def _destroy_arena(library: ctypes.CDLL, handle: ArenaHandle, pool: Pool) -> None:
    # Holding `pool` in the finalizer keeps its workers alive until the arena is gone.
    library.cflow_arena_destroy(handle)


@dataclass(frozen=True)
class Walked:
    """What a walk took, and the digest of what it read (cflow.h says what of)."""

    ns: int
    digest: int


def walk(path: Path, way: WalkWay, ranges: npt.NDArray[np.uint64], request_bytes: int = MIB) -> Walked:
    """Reads `ranges` [count][2] (offset, bytes; multiples of 8) of a file in that order, on this thread.

    Raises ArgumentError, FileError and UnsupportedError (no O_DIRECT here).
    """
    ns, digest = c_uint64(), c_uint64()
    given = np.ascontiguousarray(ranges, np.uint64)
    check(
        lib().cflow_probe_walk(
            path_bytes(path),
            way,
            pointer("ranges", given, np.uint64, given.size),
            len(given),
            request_bytes,
            byref(ns),
            byref(digest),
        )
    )
    return Walked(ns.value, digest.value)
