"""Collects rounds of arms that do the same work."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from claims.timing import open_bench, progress_line
from harness.machine import machine_state
from harness.paired import alike, run_pairs
from harness.rounds import Figure, Side
from tools.alarms.materials import Material
from tools.alarms.stored import Piece, Store, StoreError, load, piece_of, save

POSITIONS: Final = 5
"""Arms of a round: as many as the widest check with a target has, its A/A arm among them."""


def collect_one(material: Material, folder: Path, rounds: int, seed: int) -> Piece:
    """Rounds of one material: one thing, run POSITIONS times a round. Void rounds are kept as they are.

    folder: of the models. Raises KeyboardInterrupt, CflowError, CacheStateError.
    """
    with open_bench(material.threads) as bench, ExitStack() as stack:
        arm = material.maker(stack, bench, folder)("1")
        arms = [replace(arm, name=str(index + 1)) for index in range(POSITIONS - 1)]
        timed = run_pairs(
            alike(arms),
            Figure(Side("2", "time"), Side("1", "time")),
            bench.probes(),
            control_of="1",
            seed=seed,
            rounds=rounds,
            roof=bench.roof(),
            progress=progress_line(material.name),
        )
    if timed.interrupted:
        raise KeyboardInterrupt
    utc = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return piece_of(timed, material.name, utc, material.threads)


def machine(folder: Path) -> dict[str, Any]:
    """What tells one machine from another; nothing that names its owner."""
    state = machine_state(folder)
    cpu, kernel = state["cpu"], state["kernel"]
    return {
        "cpu": cpu["model"],
        "isa": cpu["isa"],
        "physical_cores": cpu["physical"],
        "caches_bytes": {
            f"L{c['level']} {c['type']}": c["size_bytes"] for c in cpu["caches"] if c["type"] != "instruction"
        },
        "virtualised": cpu["virtualised"],
        "memory_bytes": state["memory"]["total_bytes"],
        "kernel": kernel["release"].split("-")[0],
    }


def append(piece: Piece, path: Path, here: dict[str, Any]) -> None:
    """Adds a piece to a file. Raises StoreError when its rounds are another machine's."""
    store = load(path) if path.exists() else Store(here, ())
    if dict(store.machine) != here:
        raise StoreError(f"{path}: rounds of another machine, {store.machine}; this one is {here}")
    save(Store(here, (*store.pieces, piece)), path)
