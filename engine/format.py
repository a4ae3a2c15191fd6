"""The .cflow and .vflow file, version 1: what it holds, where, and its writer.

The layout is the comment "FILE FORMAT" of `include/cflow.h`. The writer here is the authoritative one; the C
library reads what it writes, and so does `read_file` (`engine.file_reader`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import xxhash
from numpy.typing import NDArray

from engine.arrangement import LAYER_MAJOR, Arrangement
from engine.enums import Role
from engine.errors import ArgumentError, NonFiniteError
from engine.file_reader import CflowFile, TensorEntry, read_file
from engine.hyperparameters import Hyperparameters
from engine.layout import (
    FileLayout,
    plan,
)
from engine.pending import PendingFile
from engine.tensors import (
    TensorSpec,
    model_specs,
    shape_of,
    tensor_spec,
)
from engine.tiles import BLOCK_COLUMNS, GROUP_ROWS, Bytes, Run, TileShape, group_bytes, nonfinite_group

__all__ = [
    "CflowFile",
    "CflowWriter",
    "FileLayout",
    "Hyperparameters",
    "TensorEntry",
    "TensorSpec",
    "model_specs",
    "plan",
    "read_file",
    "shape_of",
    "tensor_spec",
]


class CflowWriter:
    """Writes a .cflow or .vflow file, tensor by tensor in file order. Use as a context manager::

        with CflowWriter(path, hparams, specs, tokenizer_json) as writer:
            for spec in writer.specs:             # file order
                writer.write(spec, data)          # one or more pieces until the tensor is whole

    `data` are the stored bytes: tiles (`engine.tiles.pack`), or the f32 values of a vector, without padding.
    On leaving the block normally the file is completed, fsynced and renamed to `path`; after any exception
    nothing is left. Raises ArgumentError (specs, wrong order, too much or too little data), NonFiniteError
    naming tensor and block, and FileError (disk full, path not writable; the space is checked first).
    """

    def __init__(
        self,
        path: Path,
        hparams: Hyperparameters,
        specs: Iterable[TensorSpec],
        tokenizer_json: str | None = None,
        name: str = "",
        arrangement: Arrangement = LAYER_MAJOR,
    ) -> None:
        self.layout = plan(hparams, specs, name, tokenizer_json, arrangement)
        self._index = 0
        self._filled = 0
        self._hash = xxhash.xxh64()
        self._expert_hash = xxhash.xxh64()
        self._hashes: list[int] = []
        self._expert_hashes: list[int] = []
        self._checker = _FiniteChecker(self.specs[0], hparams.tile_shape)
        self._path = Path(path)
        self._file: PendingFile | None = None

    @property
    def specs(self) -> tuple[TensorSpec, ...]:
        """All tensors in file order."""
        return self.layout.specs

    def __enter__(self) -> Self:
        self._file = PendingFile(self._path, self.layout.file_bytes)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._opened() as file:
            if error is None:
                self._finish(file)

    def write(self, spec: TensorSpec, data: Bytes | NDArray[np.float32] | bytes | memoryview) -> None:
        """Appends a piece of any length to tensor `spec`, which must be the one whose turn it is."""
        if self._index == len(self.specs) or spec != self.specs[self._index]:
            turn = self.specs[self._index].name if self._index < len(self.specs) else "none, all are written"
            raise ArgumentError(f"{spec.name}: written out of turn; next is {turn}")
        view = memoryview(data.data if isinstance(data, np.ndarray) else data).cast("B")
        length = self.layout.lengths[self._index]
        if self._filled + len(view) > length:
            raise ArgumentError(f"{spec.name}: more than its {length} bytes were written")
        self._append(view)
        values_end = 4 * spec.part_rows[0] if spec.is_vector else length
        if self._filled == values_end:
            self._append(memoryview(bytes(length - self._filled)))
        if self._filled == length:
            self._end_tensor(spec)

    def _append(self, view: memoryview) -> None:
        self._checker.feed(view)
        self._hash.update(view)
        if self.specs[self._index].expert is not None:
            self._expert_hash.update(view)
        self._opened().write_at(self.layout.offsets[self._index] + self._filled, view)
        self._filled += len(view)

    def _end_tensor(self, spec: TensorSpec) -> None:
        self._hashes.append(self._hash.intdigest())
        # Tiles are whole multiples of 64 bytes, so the two matrices of an expert touch: no gap to hash.
        if spec.role is Role.EXPERT_DOWN:
            self._expert_hashes.append(self._expert_hash.intdigest())
            self._expert_hash.reset()
        self._hash.reset()
        self._index += 1
        self._filled = 0
        if self._index < len(self.specs):
            self._checker = _FiniteChecker(self.specs[self._index], self.layout.hparams.tile_shape)

    def _finish(self, file: PendingFile) -> None:
        if self._index < len(self.specs):
            spec, length = self.specs[self._index], self.layout.lengths[self._index]
            raise ArgumentError(f"{spec.name}: {self._filled} of {length} bytes were written")
        file.write_at(0, self.layout.front(self._hashes, self._expert_hashes))
        file.extend_to(self.layout.file_bytes)
        file.commit()

    def _opened(self) -> PendingFile:
        if self._file is None:
            raise ArgumentError("CflowWriter: use it in a with statement")
        return self._file


class _FiniteChecker:
    """Looks at the stored bytes of one tensor, in pieces of any length, for numbers that are not finite."""

    def __init__(self, spec: TensorSpec, shape: TileShape) -> None:
        self._spec = spec
        self._shape = shape
        self._runs: Iterator[Run] = iter(()) if spec.is_vector else spec.layout(shape).runs()
        self._run: Run | None = next(self._runs, None)
        self._done_groups = 0
        self._carry = b""

    def feed(self, view: memoryview) -> None:
        """The next bytes. Raises NonFiniteError naming tensor and block."""
        data = np.frombuffer(self._carry + bytes(view) if self._carry else view, np.uint8)
        data = data[self._take(data) :]
        self._carry = data.tobytes()

    def _take(self, data: Bytes) -> int:
        """Checks the whole groups (of a vector: values) at the start of `data`; returns their bytes."""
        if self._spec.is_vector:
            whole = len(data) // 4 * 4
            values = data[:whole].view(np.float32)
            if not np.isfinite(values).all():
                raise NonFiniteError(f"{self._spec.name}: holds a value that is not finite")
            return whole
        used = 0
        while self._run is not None:
            size = group_bytes(self._spec.kind, self._run.blocks)
            count = min((len(data) - used) // size, self._run.groups - self._done_groups)
            groups = data[used : used + count * size].reshape(count, size)
            self._check(groups, self._run)
            used += count * size
            self._done_groups += count
            if self._done_groups < self._run.groups:
                break
            self._run = next(self._runs, None)
            self._done_groups = 0
        return used

    def _check(self, groups: Bytes, run: Run) -> None:
        found = nonfinite_group(self._spec.kind, groups, run.blocks)
        if found is None:
            return
        group, row, block = found
        index = run.first_group + self._done_groups + group
        layout = self._spec.layout(self._shape)
        tile = next(t for t in layout.tiles() if t.first_group <= index < t.first_group + t.groups)
        matrix_row = tile.first_row + GROUP_ROWS * (index - tile.first_group) + row
        matrix_block = tile.first_column // BLOCK_COLUMNS + block
        raise NonFiniteError(
            f"{self._spec.name}: part {tile.part}, row {matrix_row}, block {matrix_block} "
            f"(32 columns each) holds a scale or value that is not finite"
        )
