"""The reader of sessions on its own: ranges of a file, read side by side, and how long it took."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from engine.enums import Reader, ReadPath, ReadsField
from engine.errors import ArgumentError
from engine.native import check, lib, path_bytes, pointer
from engine.tiles import Bytes

MIB = 1 << 20


@dataclass(frozen=True)
class Reads:
    """What `probe_reads` found. Times in nanoseconds.

    ns: from the first issue until the last byte is there; wait_ns, issue_ns: of it in waiting and in issuing;
    read_ns: in which at least one read was under way. asked_bytes: rounded outwards to 4 KiB. data: the bytes
    of all ranges one after the other, if they were asked for.
    """

    reader: Reader
    path: ReadPath
    ns: int
    asked_bytes: int
    wait_ns: int
    read_ns: int
    issue_ns: int
    data: Bytes | None


def probe_reads(
    path: Path,
    ranges: npt.NDArray[np.uint64],
    *,
    reader: Reader = Reader.AUTO,
    read_path: ReadPath = ReadPath.DIRECT,
    request_bytes: int = MIB,
    bytes_per_s: int = 0,
    depth: int = 2,
    keep: bool = False,
) -> Reads:
    """Reads `ranges` of a file, uint64 [n, 2] of (offset, bytes), in order with `depth` of them outstanding.

    request_bytes: one read of the device, 4 KiB to 16 MiB in multiples of 4 KiB. bytes_per_s: of an emulated
    device; 0 is the one at hand. keep: return the bytes, too. Raises ArgumentError, FileError, and
    UnsupportedError where io_uring was asked for by name and is refused.
    """
    if ranges.ndim != 2 or ranges.shape[1] != 2:
        raise ArgumentError(f"ranges: shape {ranges.shape} found, (n, 2) is needed")
    data = np.empty(int(ranges[:, 1].sum()), np.uint8) if keep else None
    fields = np.zeros(len(ReadsField), np.uint64)
    check(
        lib().cflow_probe_reads(
            path_bytes(path),
            reader,
            read_path,
            request_bytes,
            bytes_per_s,
            depth,
            pointer("ranges", ranges, np.uint64, ranges.size),
            len(ranges),
            None if data is None else data.ctypes.data,
            pointer("fields", fields, np.uint64, fields.size),
        )
    )
    value = {field: int(fields[field]) for field in ReadsField}
    return Reads(
        reader=Reader(value[ReadsField.READER]),
        path=ReadPath(value[ReadsField.PATH]),
        ns=value[ReadsField.NS],
        asked_bytes=value[ReadsField.ASKED_BYTES],
        wait_ns=value[ReadsField.WAIT_NS],
        read_ns=value[ReadsField.READ_NS],
        issue_ns=value[ReadsField.ISSUE_NS],
        data=data,
    )


def consecutive(file_bytes: int, each_bytes: int) -> npt.NDArray[np.uint64]:
    """Ranges that cover a file from its first byte to its last, `each_bytes` long but for the last one."""
    offsets = np.arange(0, file_bytes, each_bytes, dtype=np.uint64)
    return np.stack([offsets, np.minimum(np.uint64(each_bytes), np.uint64(file_bytes) - offsets)], axis=1)
