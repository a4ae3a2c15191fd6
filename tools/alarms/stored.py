"""Stored rounds of arms that do the same work: collected in quiet moments, kept as text, resampled later.

A round keeps what the rules of evidence look at: per position in it the nanoseconds and the longest wait of a
worker; beside them the read probe and the stolen ticks. Which arm stood where does not matter: all are the
same.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from harness.results import write_atomically
from harness.rounds import Placed, Sample, Timed

FORM: Final = 1
DIGEST: Final = "same"
"""Of all outputs: what is stored did the same work."""
DEFAULT: Final = Path("tests/data/quiet_rounds.json")


@dataclass(frozen=True)
class StoredRound:
    """ns, delay_ns: by position in the round; a delay is None where the kernel keeps none."""

    probe_bytes_per_ns: float
    steal_ticks: int
    cpu_ticks: int
    ns: tuple[int, ...]
    delay_ns: tuple[int | None, ...]

    def to_json(self) -> list[Any]:
        """[probe, steal, ticks, [ns, ...], [delay, ...]]."""
        probe = float(f"{self.probe_bytes_per_ns:.6g}")
        return [probe, self.steal_ticks, self.cpu_ticks, list(self.ns), list(self.delay_ns)]


@dataclass(frozen=True)
class Piece:
    """Rounds that ran one after another. bytes: weight bytes of a sample; roof: bytes per ns."""

    material: str
    utc: str
    threads: int
    bytes: int
    roof_bytes_per_ns: float
    rounds: tuple[StoredRound, ...]

    @cached_property
    def placed(self) -> tuple[tuple[Placed, ...], ...]:
        """The samples of every round, by position."""
        return tuple(
            tuple(
                Placed(0, ns, delay, Sample(ns, self.bytes, DIGEST, run_delay_ns=delay))
                for ns, delay in zip(one.ns, one.delay_ns, strict=True)
            )
            for one in self.rounds
        )


@dataclass(frozen=True)
class Store:
    """All pieces, and the machine that they are of."""

    machine: Mapping[str, Any]
    pieces: tuple[Piece, ...]

    def of(self, material: str) -> tuple[Piece, ...]:
        """Pieces of one material, oldest first."""
        return tuple(piece for piece in self.pieces if piece.material == material)


class StoreError(ValueError):
    """A file of rounds that cannot be used; the message names file and field."""


def piece_of(timed: Timed, material: str, utc: str, threads: int) -> Piece:
    """A paired run of the same work in all arms as a piece; needs its roof."""
    assert timed.roof is not None
    rounds = []
    for one in timed.rounds:
        placed = [one.samples[name] for name in one.order]
        rounds.append(
            StoredRound(
                one.probe_bytes_per_ns,
                one.steal_ticks,
                one.cpu_ticks,
                tuple(each.sample.ns for each in placed),
                tuple(each.run_delay_ns for each in placed),
            )
        )
    size = next(iter(timed.rounds[0].samples.values())).sample.bytes
    return Piece(material, utc, threads, size, timed.roof.bytes_per_ns, tuple(rounds))


def save(store: Store, path: Path) -> None:
    """One line for each round, so that a difference can be read."""
    lines = [f'{{"form": {FORM}, "machine": {json.dumps(store.machine, sort_keys=True)}, "pieces": [']
    for index, piece in enumerate(store.pieces):
        head = {
            "material": piece.material,
            "utc": piece.utc,
            "threads": piece.threads,
            "bytes": piece.bytes,
            "roof_bytes_per_ns": float(f"{piece.roof_bytes_per_ns:.6g}"),
        }
        lines.append(f'{json.dumps(head)[:-1]}, "rounds": [')
        lines.append(",\n".join(json.dumps(one.to_json()) for one in piece.rounds))
        lines.append("]}" + ("," if index + 1 < len(store.pieces) else ""))
    lines.append("]}")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "\n".join(lines) + "\n")


def load(path: Path) -> Store:
    """Reads what `save` wrote. Raises StoreError, OSError."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["form"] != FORM:
            raise StoreError(f"{path}: form is {data['form']!r}, allowed: {FORM}")
        pieces = tuple(
            Piece(
                str(item["material"]),
                str(item["utc"]),
                int(item["threads"]),
                int(item["bytes"]),
                float(item["roof_bytes_per_ns"]),
                tuple(_round(path, row) for row in item["rounds"]),
            )
            for item in data["pieces"]
        )
        return Store(dict(data["machine"]), pieces)
    except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise StoreError(f"{path}: not a file of stored rounds: {error!r}") from error


def _round(path: Path, row: Sequence[Any]) -> StoredRound:
    if len(row) != 5 or len(row[3]) != len(row[4]) or len(row[3]) < 2:
        raise StoreError(f"{path}: round {row!r}, allowed: [probe, steal, ticks, [ns, ...], [delay, ...]]")
    probe, steal, ticks = float(row[0]), int(row[1]), int(row[2])
    ns = tuple(int(value) for value in row[3])
    if not (math.isfinite(probe) and probe > 0) or not 0 <= steal <= ticks or min(ns) <= 0:
        raise StoreError(f"{path}: round {row!r}: probe and ns must be above 0, steal within the ticks")
    delays = tuple(None if value is None else int(value) for value in row[4])
    return StoredRound(probe, steal, ticks, ns, delays)
