"""Random models of any size, written about as fast as the disk takes them.

Weights come from `cflow_fill_groups`: quantised codes symmetric about their centre, so that no matrix has a
mean that would make the router choose the same experts for every token. Each worker fills one window of the
file, waits for its turn to hash it (hashes run through the file in order), and writes it, by O_DIRECT where
the file system allows it. The bytes depend on the geometry, the seed and the deviations alone, whatever the
number of threads.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.direct_io import reserve, switch_to_direct_io
from engine.enums import Order, Role, Type
from engine.errors import ArgumentError
from engine.format import FileLayout, TensorSpec, model_specs, plan
from engine.geometry import Geometry
from engine.native import HashHandle, check, lib
from engine.pending import PendingFile
from engine.stages import arrangement_of
from engine.tiles import GROUP_ROWS, Bytes, Run, clear_rows, group_bytes, type_named

WINDOW_BYTES = 16 << 20
HUGE_PAGE_BYTES = 2 << 20
EMBEDDING_SIGMA = 16.0
BIAS_SIGMA = 0.5


@dataclass(frozen=True)
class Synthesis:
    """What `synthesise` did. `note` says why the page cache was used when `direct_io` is False, else ""."""

    path: Path
    file_bytes: int
    elapsed_ns: int
    direct_io: bool
    note: str


def synthesise(
    path: Path,
    geometry: Geometry,
    seed: int = 0,
    type: str = "q4_0",
    *,
    kinds: Mapping[Role, Type] | None = None,
    tile_rows: int = 128,
    tile_cols: int = 256,
    embedding_sigma: float = EMBEDDING_SIGMA,
    matrix_sigma: float | None = None,
    name: str = "",
    order: Order = Order.LAYER,
    threads: int = 2,
    progress: Callable[[int, int], None] | None = None,
) -> Synthesis:
    """Writes a random model with all matrices in `type`, or what `kinds` says of their role (routers f32,
    gains 1).

    Deviations: of the embedding `embedding_sigma`, large enough that routing spreads over the experts; of
    biases 0.5; of the others `matrix_sigma`, or 1 / sqrt(columns), which keeps the scale of activations.
    The weights do not depend on `order`.
    `progress(done, total)` counts bytes and is called on the calling thread. Memory: some 20 MiB per thread.
    After any exception no file is left. Raises ArgumentError, FileError (no space, not writable) and
    LibraryError.
    """
    if not 0 <= seed < 1 << 64:
        raise ArgumentError(f"seed is {seed}, must be in 0..2^64 - 1")
    if threads < 1:
        raise ArgumentError(f"threads is {threads}, must be at least 1")
    kind = type_named(type)
    hparams = geometry.hyperparameters(tile_rows, tile_cols)
    specs = model_specs(
        hparams, lambda role: (kinds or {}).get(role, kind), geometry.qkv_bias, geometry.qk_norm
    )
    arrangement = arrangement_of(order, hparams, specs, Path(path).parent)
    layout = plan(hparams, specs, name, arrangement=arrangement)
    sigmas = [_sigma(spec, embedding_sigma, matrix_sigma) for spec in layout.specs]
    lib()
    started_ns = time.monotonic_ns()
    with PendingFile(Path(path), layout.file_bytes) as file:
        reserve(file, layout.file_bytes)
        note = switch_to_direct_io(file)
        job = _Job(file, layout, _seeds(seed, specs, layout), sigmas)
        job.run(threads, progress)
        job.write_front()
        file.commit()
    return Synthesis(Path(path), layout.file_bytes, time.monotonic_ns() - started_ns, not note, note)


def _seeds(seed: int, specs: list[TensorSpec], layout: FileLayout) -> list[int]:
    """Seed of each tensor in file order, from its place in layer-major order: no order changes a weight."""
    own = {spec.key: _mix(seed, index) for index, spec in enumerate(specs)}
    return [own[spec.key] for spec in layout.specs]


def _sigma(spec: TensorSpec, embedding_sigma: float, matrix_sigma: float | None) -> float:
    if spec.role is Role.EMBEDDING:
        return embedding_sigma
    if spec.role is Role.ATTN_QKV_BIAS:
        return BIAS_SIGMA
    if matrix_sigma is not None and spec.role is not Role.ROUTER:
        return matrix_sigma
    return 1 / math.sqrt(spec.columns)


class _Buffer:
    """A window of the file in memory on huge pages, with margins for groups that reach over its ends."""

    def __init__(self, window_bytes: int, margin_bytes: int) -> None:
        self._margin = -(-margin_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        total = window_bytes + 2 * self._margin + HUGE_PAGE_BYTES
        memory = mmap.mmap(-1, total)
        memory.madvise(mmap.MADV_HUGEPAGE)
        self._bytes: Bytes = np.frombuffer(memory, np.uint8)
        self._start = -self._bytes.ctypes.data % HUGE_PAGE_BYTES + self._margin
        self._size = window_bytes

    def at(self, offset: int, length: int) -> Bytes:
        """`length` bytes from `offset` of the window on; both may reach into the margins."""
        first = self._start + offset
        return self._bytes[first : first + length]

    def address(self, offset: int) -> int:
        """Address of byte `offset` of the window."""
        return int(self._bytes.ctypes.data) + self._start + offset


class _Hash:
    """Streaming XXH64 of the C library."""

    def __init__(self) -> None:
        self._handle = HashHandle()
        check(lib().cflow_hash_create(ctypes.byref(self._handle)))

    def update(self, address: int, length: int) -> None:
        check(lib().cflow_hash_update(self._handle, address, length))

    def finish(self) -> int:
        """The digest; frees the handle."""
        digest = ctypes.c_uint64()
        check(lib().cflow_hash_digest(self._handle, ctypes.byref(digest)))
        self.close()
        return digest.value

    def close(self) -> None:
        lib().cflow_hash_destroy(self._handle)
        self._handle = HashHandle()


class _Hasher:
    """Hashes regions (offset, length) of the file, which ascend, while windows arrive in file order."""

    def __init__(self, regions: tuple[tuple[int, int], ...]) -> None:
        self._regions = regions
        self._hash = _Hash() if regions else None
        self.digests: list[int] = []

    def feed(self, buffer: _Buffer, start: int, length: int) -> None:
        """The bytes start .. start + length of the file."""
        end = start + length
        while self._hash is not None:
            first, region_bytes = self._regions[len(self.digests)]
            low, high = max(first, start), min(first + region_bytes, end)
            if low < high:
                self._hash.update(buffer.address(low - start), high - low)
            if first + region_bytes > end:
                return
            self.digests.append(self._hash.finish())
            self._hash = _Hash() if len(self.digests) < len(self._regions) else None

    def close(self) -> None:
        """Frees what a run that ended early has left."""
        if self._hash is not None:
            self._hash.close()
            self._hash = None


class _Job:
    """The state that the workers share."""

    def __init__(self, file: PendingFile, layout: FileLayout, seeds: list[int], sigmas: list[float]) -> None:
        self._file = file
        self._layout = layout
        self._seeds = seeds
        self._sigmas = sigmas
        self._runs = [self._runs_of(spec) for spec in layout.specs]
        self._total = layout.file_bytes - layout.data_offset
        self._windows = -(-self._total // WINDOW_BYTES)
        self._tensor_hasher = _Hasher(tuple(zip(layout.offsets, layout.lengths, strict=True)))
        self._expert_hasher = _Hasher(layout.expert_regions)
        self._turn = threading.Condition()
        self._next_window = 0
        self._hash_turn = 0
        self._written = 0
        self._error: BaseException | None = None

    def run(self, threads: int, progress: Callable[[int, int], None] | None) -> None:
        """Writes all tensor data. Raises the first error of a worker."""
        workers = [threading.Thread(target=self._work, daemon=True) for _ in range(threads)]
        try:
            for worker in workers:
                worker.start()
            for worker in workers:
                while worker.is_alive():
                    worker.join(0.1)
                    if progress is not None:
                        progress(self._written, self._total)
        except BaseException as error:
            self._stop(error)
            raise
        finally:
            for worker in workers:
                if worker.ident is not None:
                    worker.join()
            self._tensor_hasher.close()
            self._expert_hasher.close()
        if self._error is not None:
            raise self._error

    def write_front(self) -> None:
        """Writes header and tables, after `run()`."""
        front = self._layout.front(self._tensor_hasher.digests, self._expert_hasher.digests)
        page = mmap.mmap(-1, len(front))
        page[:] = front
        self._file.write_at(0, memoryview(page))

    def _work(self) -> None:
        try:
            buffer = _Buffer(min(WINDOW_BYTES, self._total), self._largest_group())
            while True:
                with self._turn:
                    window = self._next_window
                    self._next_window += 1
                    if window >= self._windows or self._error is not None:
                        return
                start = self._layout.data_offset + window * WINDOW_BYTES
                length = min(WINDOW_BYTES, self._layout.file_bytes - start)
                self._fill(buffer, start, length)
                if not self._hash_in_turn(window, buffer, start, length):
                    return
                self._file.write_at(start, buffer.at(0, length).data)
                with self._turn:
                    self._written += length
        except BaseException as error:  # handed to the thread that called run()
            self._stop(error)

    def _stop(self, error: BaseException) -> None:
        with self._turn:
            self._error = self._error or error
            self._turn.notify_all()

    def _hash_in_turn(self, window: int, buffer: _Buffer, start: int, length: int) -> bool:
        """Waits until all windows before have been hashed; False when the job has stopped."""
        with self._turn:
            self._turn.wait_for(lambda: self._hash_turn == window or self._error is not None)
            if self._error is not None:
                return False
        self._tensor_hasher.feed(buffer, start, length)
        self._expert_hasher.feed(buffer, start, length)
        with self._turn:
            self._hash_turn += 1
            self._turn.notify_all()
        return True

    def _fill(self, buffer: _Buffer, start: int, length: int) -> None:
        """Fills the bytes start .. start + length of the file."""
        offsets, lengths = self._layout.offsets, self._layout.lengths
        index = max(bisect_right(offsets, start) - 1, 0)
        filled = start
        while index < len(offsets) and offsets[index] < start + length:
            if offsets[index] > filled:
                buffer.at(filled - start, offsets[index] - filled)[:] = 0
            if self._layout.specs[index].is_vector:
                self._fill_vector(buffer, index, start, length)
            else:
                self._fill_matrix(buffer, index, start, length)
            filled = max(filled, offsets[index] + lengths[index])
            index += 1
        if filled < start + length:
            buffer.at(filled - start, start + length - filled)[:] = 0

    def _fill_vector(self, buffer: _Buffer, index: int, start: int, length: int) -> None:
        spec, offset = self._layout.specs[index], self._layout.offsets[index]
        values = np.zeros(self._layout.lengths[index] // 4, np.float32)
        if spec.role is Role.ATTN_QKV_BIAS:
            values[: spec.part_rows[0]] = self._random_values(index)
        elif spec.role is not Role.REGISTER:  # the weights w of arch3 start at 0, every gain at 1
            values[: spec.part_rows[0]] = 1.0
        low, high = max(offset, start), min(offset + 4 * len(values), start + length)
        buffer.at(low - start, high - low)[:] = values.view(np.uint8)[low - offset : high - offset]

    def _random_values(self, index: int) -> NDArray[np.float32]:
        """The values of a random vector: the first ones of f32 groups of 32 columns."""
        rows = self._layout.specs[index].part_rows[0]
        groups = -(-rows * 4 // group_bytes(Type.F32, 1))
        values = np.empty((groups, group_bytes(Type.F32, 1) // 4), np.float32)
        seed, sigma = self._seeds[index], self._sigmas[index]
        check(lib().cflow_fill_groups(Type.F32, seed, 0, groups, 1, sigma, values.ctypes.data, values.nbytes))
        return values.reshape(-1)[:rows]

    def _fill_matrix(self, buffer: _Buffer, index: int, start: int, length: int) -> None:
        """Fills all groups of a matrix that reach into the window; the outer ones reach into the margins."""
        kind, offset = self._layout.specs[index].kind, self._layout.offsets[index]
        for run in self._runs[index]:
            size = group_bytes(kind, run.blocks)
            run_start = offset + run.offset - start
            first = max(-run_start // size, 0)
            end = min(-(-(length - run_start) // size), run.groups)
            if first >= end:
                continue
            status = lib().cflow_fill_groups(
                kind,
                self._seeds[index],
                run.first_group + first,
                end - first,
                run.blocks,
                self._sigmas[index],
                buffer.address(run_start + first * size),
                (end - first) * size,
            )
            check(status)
        self._clear_padding(buffer, index, start, length)

    def _clear_padding(self, buffer: _Buffer, index: int, start: int, length: int) -> None:
        """Padding rows are zero in the file; `cflow_fill_groups` knows whole groups only."""
        spec = self._layout.specs[index]
        for tile in spec.layout(self._layout.hparams.tile_shape).padded_tiles():
            size = group_bytes(spec.kind, tile.blocks)
            position = self._layout.offsets[index] + tile.offset + (tile.groups - 1) * size - start
            if position + size > 0 and position < length:
                used = tile.rows - GROUP_ROWS * (tile.groups - 1)
                clear_rows(spec.kind, buffer.at(position, size), tile.blocks, used)

    def _runs_of(self, spec: TensorSpec) -> list[Run]:
        return [] if spec.is_vector else list(spec.layout(self._layout.hparams.tile_shape).runs())

    def _largest_group(self) -> int:
        pairs = zip(self._layout.specs, self._runs, strict=True)
        return max(group_bytes(spec.kind, run.blocks) for spec, runs in pairs for run in runs)


def _mix(seed: int, index: int) -> int:
    """The seed of tensor `index`: splitmix64 of both, so that tensors and seeds do not overlap."""
    mask = (1 << 64) - 1
    value = (seed + (index + 1) * 0x9E3779B97F4A7C15) & mask
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & mask
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & mask
    return value ^ (value >> 31)
