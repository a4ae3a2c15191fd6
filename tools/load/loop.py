"""A body that is run again and again while what the process holds is looked at."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tools.load.series import Judged, judge
from tools.load.store import State
from tools.load.watch import Reading, look

SAVE_S: Final = 5.0


@dataclass(frozen=True)
class Turn:
    """What one run of the body gave. key: runs with the same one must have the same output."""

    key: str
    output: str
    work: float
    ns: int


@dataclass(frozen=True)
class Limits:
    """total: units (seconds / 3,600, or runs) over all pieces. every: units between two readings. leak: bytes
    of memory per unit. warm_up: units of a piece that are not judged.
    """

    total: float
    every: float
    leak: float
    warm_up: float


def repeat(
    state: State, path: Path, body: Callable[[int], Turn], limits: Limits, temporary: Path, *, hours: bool
) -> None:
    """Runs the body until all pieces together have `limits.total`; a file that is there is gone on with.

    hours: whether `at` counts hours or runs. Ctrl-C ends the piece and keeps what it has.
    """
    done = sum(piece["units"] for piece in state.pieces)
    if done >= limits.total:
        summarise(state, path, limits)
        return
    piece: dict[str, Any] = {
        "units": 0.0,
        "runs": 0,
        "readings": [],
        "speed": [],
        "outputs": {},
        "changed": [],
    }
    state.pieces.append(piece)
    started, saved, next_at = time.monotonic(), time.monotonic(), 0.0
    try:
        while done + piece["units"] < limits.total:
            turn = body(piece["runs"])
            piece["runs"] += 1
            _note(state, piece, turn)
            at = (time.monotonic() - started) / 3600 if hours else float(piece["runs"])
            piece["units"] = at
            if at >= next_at:
                piece["readings"].append(look(at, temporary).to_json())
                piece["speed"].append(turn.work / turn.ns * 1e9)
                next_at = at + limits.every
            if time.monotonic() - saved > SAVE_S:
                summarise(state, path, limits)
                saved = time.monotonic()
    except KeyboardInterrupt:
        summarise(state, path, limits)
        raise
    summarise(state, path, limits)


def _note(state: State, piece: dict[str, Any], turn: Turn) -> None:
    """The output is the first one that any piece had for that key, or it has changed."""
    for known in state.pieces:
        if turn.key in known["outputs"]:
            if known["outputs"][turn.key] != turn.output:
                piece["changed"].append(f"run {piece['runs']}, {turn.key}: {turn.output}")
            return
    piece["outputs"][turn.key] = turn.output


def judged(state: State, limits: Limits) -> Judged:
    """What all pieces say."""
    pieces = [[Reading.of_json(one) for one in piece["readings"]] for piece in state.pieces]
    return judge(pieces, limits.leak, limits.warm_up)


def summarise(state: State, path: Path, limits: Limits) -> None:
    """Writes the file with what its pieces come to."""
    found = judged(state, limits)
    changed = [text for piece in state.pieces for text in piece["changed"]]
    speeds = [value for piece in state.pieces for value in piece["speed"]]
    half = len(speeds) // 2
    drift = None
    if half:
        drift = sorted(speeds[-half:])[half // 2] / sorted(speeds[:half])[half // 2]
    state.summary = {
        **found.to_json(),
        "units": sum(piece["units"] for piece in state.pieces),
        "runs": sum(piece["runs"] for piece in state.pieces),
        "outputs_changed": len(changed),
        "speed_second_half_over_first": drift,
    }
    state.save(path)
