"""False alarms and power of the timed checks.

    python -m tools.alarms collect              rounds of equal arms, measured now, appended to the store
    python -m tools.alarms false [--write]      bootstrap of the store: the table
    python -m tools.alarms live --out FILE      runs of equal arms, measured now; the same command goes on

Exit code 1: a check raises more false alarms than it may.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from claims.run import DEFAULT_RUNS, REGISTRY_PATH, SEED
from engine.errors import CflowError
from harness.cachestate import CacheStateError
from harness.kinds import PROFILE_NAMES
from harness.registry import load_registry
from tools.alarms.collect import append, collect_one, machine
from tools.alarms.live import go_on, outcome, repetitions, rules_of
from tools.alarms.materials import MATERIALS, material
from tools.alarms.outcomes import RUNS
from tools.alarms.stored import DEFAULT, StoreError, load
from tools.alarms.table import PAGE, most_alarms, put, row, rows, text


def main(arguments: Sequence[str] | None = None) -> None:
    """Parses and runs; a usage error exits 2."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.alarms",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    collect = commands.add_parser("collect", help="append rounds of equal arms, measured now, to the store")
    collect.add_argument("--out", type=Path, default=DEFAULT, metavar="FILE")
    collect.add_argument("--material", action="append", metavar="NAME", help="which (default: all)")
    collect.add_argument("--rounds", type=int, default=40, help="valid rounds wanted of each (default 40)")
    collect.set_defaults(run=_collect, after="--material names those that are not in the file yet")
    false = commands.add_parser("false", help="false alarms and power by bootstrap of the store")
    false.add_argument("--store", type=Path, default=DEFAULT, metavar="FILE")
    false.add_argument("--runs", type=int, default=RUNS, help=f"of the bootstrap (default {RUNS})")
    false.add_argument("--write", action="store_true", help=f"put the table into {PAGE}")
    false.set_defaults(run=_false, after="nothing is kept")
    live = commands.add_parser("live", help="false alarms of runs of equal arms, measured now")
    live.add_argument("--times", type=int, default=20)
    live.add_argument("--profile", choices=PROFILE_NAMES, default="quick")
    live.add_argument("--only", action="append", metavar="CHECK")
    live.add_argument("--out", type=Path, required=True, metavar="FILE", help="counts, gone on with")
    live.set_defaults(run=_live, after="the same command goes on")
    for command in (collect, live):
        command.add_argument("--models", type=Path, default=DEFAULT_RUNS / "models", metavar="DIR")
    asked = parser.parse_args(arguments)
    try:
        for name in ("rounds", "runs", "times"):
            if getattr(asked, name, 1) < 1:
                raise ValueError(f"--{name} is {getattr(asked, name)}, must be at least 1")
        code = asked.run(asked)
    except (CflowError, CacheStateError, StoreError, OSError, ValueError) as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        print(f"\nstopped; {asked.after}", file=sys.stderr)
        sys.exit(130)
    sys.exit(code)


def _collect(asked: argparse.Namespace) -> int:
    chosen = [material(name) for name in asked.material] if asked.material else list(MATERIALS)
    asked.models.mkdir(parents=True, exist_ok=True)
    here = machine(asked.models)
    pieces = len(load(asked.out).pieces) if asked.out.exists() else 0
    for one in chosen:
        piece = collect_one(one, asked.models, asked.rounds, SEED + pieces)
        append(piece, asked.out, here)
        pieces += 1
        print(f"{one.name}: {len(piece.rounds)} rounds", flush=True)
    return 0


def _false(asked: argparse.Namespace) -> int:
    found = list(rows(load(asked.store), load_registry(REGISTRY_PATH), asked.runs))
    made = text(found)
    print(made)
    limit = most_alarms(asked.runs)
    worst = max(one.worst for one in found)
    print(f"most false alarms of a check: {worst} of {asked.runs}, allowed: {limit}")
    if asked.write:
        put(PAGE, made)
    return 0 if worst <= limit else 1


def _live(asked: argparse.Namespace) -> int:
    registry = load_registry(REGISTRY_PATH)
    rules = rules_of(registry, asked.profile, asked.only)
    asked.models.mkdir(parents=True, exist_ok=True)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    steps = go_on(asked.out, registry, rules, asked.profile, asked.times, asked.models, SEED)
    for rule, repetition in steps:
        print(f"{rule.check}: repetition {repetition + 1} of {asked.times}", flush=True)
    kept = repetitions(asked.out, asked.profile)
    measured = [(outcome(rule, kept[rule.check]), registry.check(rule.check)) for rule in rules]
    found = [row(one, one, check) for one, check in measured]
    print(text(found))
    return 0 if all(one.worst <= most_alarms(one.runs) for one in found) else 1
