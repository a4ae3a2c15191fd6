"""Between .cflow and .vflow: the same tensors in another order, byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine.enums import Order
from engine.format import CflowWriter, read_file
from engine.stages import arrangement_of


@dataclass(frozen=True)
class Reordering:
    """What was written."""

    path: Path
    name: str
    order: Order
    tensors: int
    file_bytes: int


def reorder(
    source: Path, target: Path, order: Order, progress: Callable[[int, int], None] | None = None
) -> Reordering:
    """Writes the model `source` with its data in `order`; names, types, bytes and hashes stay what they are.

    `progress(done, total)` counts stored bytes. Raises FileError, FormatError, ChecksumError naming the
    tensor of the source that does not match its hash, and NonFiniteError; nothing half-written stays.
    """
    file = read_file(source)
    specs = [entry.spec for entry in file.tensors]
    entries = {entry.spec.key: entry for entry in file.tensors}
    arrangement = arrangement_of(order, file.hparams, specs, target.parent)
    with CflowWriter(
        target, file.hparams, specs, file.tokenizer_json, file.name, arrangement=arrangement
    ) as writer:
        total, done = sum(writer.layout.lengths), 0
        for spec, length in zip(writer.specs, writer.layout.lengths, strict=True):
            stored = file.data(entries[spec.key])
            # A vector is written without the zeros behind it.
            writer.write(spec, stored[: 4 * spec.part_rows[0]] if spec.is_vector else stored)
            done += length
            if progress is not None:
                progress(done, total)
        file_bytes = writer.layout.file_bytes
    return Reordering(target, file.name, order, len(specs), file_bytes)
