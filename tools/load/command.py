"""The commands of `python -m tools.load`.

    python -m tools.load decode --minutes 60 --way direct --out direct.json
    python -m tools.load sessions --count 10000 --out sessions.json
    python -m tools.load smoke --times 100 --out smoke.json

Each writes its outcome to the file as it goes. Ctrl-C ends it; the same command goes on, and a larger amount
extends it. Exit code 1: something stays behind, an output changed, or too little was seen to tell
(UNDECIDED).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from claims.models import synthetic
from claims.run import DEFAULT_RUNS, SEED
from engine.errors import CflowError
from engine.geometry import Geometry
from engine.kernels import threads_default
from tools.load.bodies import WAYS, decoding, sessions, small_model
from tools.load.loop import Limits, repeat
from tools.load.smoke import run_smoke
from tools.load.store import State, resumed

MIB: Final = 1 << 20
GEOMETRY: Final = "arch2_4_combined"
READ_EVERY_S: Final = 10.0
WARM_UP_S: Final = 120.0
LEAK_PER_HOUR: Final = 4 * MIB
"""Bytes of resident memory per hour that count as none: at 200 tokens per second, 6 bytes per token."""
LEAK_PER_SESSION: Final = 256
"""Bytes per session: 2.5 MB in 10,000; the smallest thing that a session allocates for good is larger."""
SESSION_WARM_UP: Final = 500


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses and runs; a usage error exits 2, what is not shown to be clean 1."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.load", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    decode = commands.add_parser("decode", help="decode in one session for a long time")
    decode.add_argument("--minutes", type=float, default=60.0)
    decode.add_argument("--way", choices=tuple(WAYS), default="memory", help="where the experts are")
    decode.add_argument("--tokens", type=int, default=64, help="of a turn (default 64)")
    decode.add_argument("-m", "--model", type=Path, help=f"default: a synthetic {GEOMETRY}")
    decode.set_defaults(run=_decode)
    many = commands.add_parser("sessions", help="open and close sessions of all kinds")
    many.add_argument("--count", type=int, default=10_000)
    many.set_defaults(run=_sessions)
    smoke = commands.add_parser("smoke", help="run the claims in a row at profile smoke")
    smoke.add_argument("--times", type=int, default=100)
    smoke.add_argument("--folder", type=Path, default=DEFAULT_RUNS / "load", help="of the runs and models")
    smoke.set_defaults(run=_smoke)
    for command in (decode, many, smoke):
        command.add_argument("--out", type=Path, required=True, metavar="FILE", help="outcome, gone on with")
    for command in (decode, many):
        command.add_argument("--threads", type=int, help="default: that of the engine")
        command.add_argument("--models", type=Path, default=DEFAULT_RUNS / "models", metavar="DIR")
    asked = parser.parse_args(arguments)
    try:
        for name in ("minutes", "tokens", "count", "times", "threads"):
            value = getattr(asked, name, None)
            if value is not None and value <= 0:
                raise ValueError(f"--{name} is {value}, must be above 0")
        if getattr(asked, "threads", 1) is None:
            asked.threads = threads_default()
        state = asked.run(asked)
    except (CflowError, OSError, ValueError) as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        print(f"\nstopped; the same command goes on with {asked.out}", file=sys.stderr)
        sys.exit(130)
    for name, value in state.summary.items():
        print(f"{name}: {value}")
    clean = state.summary["outcome"] == "CLEAN" and not state.summary.get("outputs_changed")
    sys.exit(0 if clean else 1)


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    """A folder in which this process makes its temporary files meanwhile, so that they can be counted."""
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory() as temporary:
        tempfile.tempdir = temporary
        try:
            yield Path(temporary)
        finally:
            tempfile.tempdir = before


def _decode(asked: argparse.Namespace) -> State:
    path = asked.model or synthetic(asked.models, GEOMETRY, Geometry.named(GEOMETRY))
    settings: dict[str, Any] = {
        "way": asked.way,
        "threads": asked.threads,
        "tokens": asked.tokens,
        "model": path.name,
    }
    state = resumed(asked.out, "decode", settings)
    limits = Limits(asked.minutes / 60, READ_EVERY_S / 3600, LEAK_PER_HOUR, WARM_UP_S / 3600)
    with (
        _temporary_folder() as temporary,
        decoding(path, asked.way, asked.threads, asked.tokens) as body,
    ):
        repeat(state, asked.out, body, limits, temporary, hours=True)
    return state


def _sessions(asked: argparse.Namespace) -> State:
    path = small_model(asked.models)
    state = resumed(asked.out, "sessions", {"threads": asked.threads, "model": path.name})
    limits = Limits(asked.count, max(1.0, asked.count / 100), LEAK_PER_SESSION, SESSION_WARM_UP)
    with (
        _temporary_folder() as temporary,
        sessions(path, asked.threads, SEED + len(state.pieces)) as body,
    ):
        repeat(state, asked.out, body, limits, temporary, hours=False)
    return state


def _smoke(asked: argparse.Namespace) -> State:
    state = resumed(asked.out, "smoke", {"profile": "smoke"})
    run_smoke(state, asked.out, asked.folder.absolute(), asked.times)
    return state
