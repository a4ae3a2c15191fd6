"""Decode a model beyond memory beside llama.cpp: `python -m tools.beyond_ram CFLOW GGUF --limit 1GiB`.

Both engines decode the same weights, each turn in a new process inside a memory cgroup of its own with that
limit, page cache counted. Ours reads experts from disk and keeps those that fit; llama.cpp maps its file, as
it does by default, not repacked: repacked weights would have to fit. The turns come one after the other, A B
B A ...; before each, both files leave the page cache. A turn feeds the prompt token by token, which fills
whatever the engine keeps, and then times the tokens that our first turn chose. A ratio is llama.cpp's time
over ours, round by round.

The budget of our session is the limit less what its process holds before it has one, as the cgroup counts it,
less a 32nd of the limit for what grows later: page tables, stacks, Python.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from baselines.errors import BaselineError
from claims.prompts import bench_prompt
from engine.enums import Param
from engine.errors import ArgumentError, CflowError
from engine.kernels import threads_default
from engine.model import Model
from engine.session import parse_options, size_bytes
from harness.cachestate import CacheStateError
from harness.memory_limit import MemoryLimitError
from harness.readahead import ReadAheadError
from tools.beyond_ram_turns import OURS, THEIRS, Setup, Turn, turns
from tools.versus import thread_counts


@dataclass(frozen=True)
class Outcome:
    """All rounds, each our turn and theirs."""

    setup: Setup
    rounds: tuple[tuple[Turn, Turn], ...]

    @property
    def ratios(self) -> list[float]:
        """llama.cpp's time over ours, round by round: above 1 we are faster."""
        return [ours.tokens_per_s / theirs.tokens_per_s for ours, theirs in self.rounds]

    @property
    def equal_tokens(self) -> tuple[int, int]:
        """Greedy choices on which both agree, of all: they round differently, near ties fall either way."""
        pairs = [
            pair for ours, theirs in self.rounds for pair in zip(ours.chosen, theirs.chosen, strict=True)
        ]
        return sum(one == other for one, other in pairs), len(pairs)

    def to_json(self) -> dict[str, Any]:
        """Everything, with what ran."""
        setup = {
            **asdict(self.setup),
            "model": str(self.setup.model),
            "gguf": str(self.setup.gguf),
        }
        return {
            "setup": setup,
            "rounds": [[asdict(turn) for turn in pair] for pair in self.rounds],
            "ratios": self.ratios,
            "ratio": statistics.median(self.ratios),
            "equal_tokens": list(self.equal_tokens),
        }


def _fault(setup: Setup, ahead_kib: int | None) -> str:
    if not setup.readahead:
        return "one page"
    return "ahead" if ahead_kib is None else f"up to {ahead_kib} KiB ahead"


def table(outcome: Outcome) -> list[str]:
    """Lines for people: setting, a line per engine, a line per round, the ratio."""
    setup, pairs = outcome.setup, outcome.rounds
    facts, theirs = pairs[0][0].facts, pairs[0][1].facts
    equal, compared = outcome.equal_tokens
    ratios = outcome.ratios
    lines = [
        f"{setup.gguf.name}, {setup.gguf.stat().st_size / 1e6:.0f} MB, in {setup.limit_bytes / 1e6:.0f} MB, "
        f"{setup.threads} threads, {setup.tokens} tokens after {len(setup.prompt)}, {len(pairs)} rounds",
        f"budget of our session: {facts['options']['ram_budget'] / 1e6:.0f} MB; its process held "
        f"{facts['held_before_bytes'] / 1e6:.0f} MB before",
        f"{THEIRS}: flash attention {theirs['flash_attention']}, "
        f"a fault reads {_fault(setup, theirs['read_ahead_kib'])}",
    ]
    for index, engine in enumerate((OURS, THEIRS)):
        speeds = sorted(pair[index].tokens_per_s for pair in pairs)
        read = statistics.median(pair[index].device_bytes_per_token for pair in pairs)
        lines.append(
            f"{engine:<10}{statistics.median(speeds):>8.2f} tok/s ({speeds[0]:.2f} to {speeds[-1]:.2f})"
            f"{read / 1e6:>9.1f} MB from the device per token"
        )
    for number, ratio in enumerate(ratios, start=1):
        lines.append(f"round {number}: {ratio:.2f}")
    lines.append(
        f"{OURS} over {THEIRS}: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}); "
        f"{equal} of {compared} greedy tokens equal"
    )
    return lines


def prepare(arguments: argparse.Namespace) -> Setup:
    """The setup that the arguments ask for. Raises ArgumentError, and CflowError for the model."""
    for name in ("tokens", "prompt", "rounds"):
        if getattr(arguments, name) < 1:
            raise ArgumentError(f"--{name} is {getattr(arguments, name)}, must be at least 1")
    if arguments.read_ahead is not None and arguments.read_ahead < 1:
        raise ArgumentError(f"--read-ahead is {arguments.read_ahead}, must be at least 1")
    threads = thread_counts(arguments.threads)
    if len(threads) != 1:
        raise ArgumentError(f"--threads is {arguments.threads!r}, must be one number")
    limit_bytes = size_bytes("--limit", arguments.limit)
    with Model(arguments.model) as model:
        if model.param(Param.EXPERTS) == 0:
            raise ArgumentError(f"{arguments.model}: has no experts that could stay on disk")
        prompt = bench_prompt(model, arguments.prompt, arguments.tokens).ids
    if not arguments.gguf.is_file():
        raise ArgumentError(f"{arguments.gguf}: no such file")
    smaller = min(path.stat().st_size for path in (arguments.model, arguments.gguf))
    if limit_bytes >= smaller:
        raise ArgumentError(f"--limit is {limit_bytes} bytes, must be below {smaller}: the model would fit")
    options = parse_options(arguments.option)
    return Setup(
        model=arguments.model,
        gguf=arguments.gguf,
        limit_bytes=limit_bytes,
        threads=threads[0],
        prompt=prompt,
        tokens=arguments.tokens,
        readahead=not arguments.no_readahead,
        read_ahead_kib=arguments.read_ahead,
        options=options,
    )


def main(arguments: list[str] | None = None) -> None:
    """Parses the arguments, measures, and prints the table or the JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.beyond_ram", description=(__doc__ or "").partition("\n\n")[2]
    )
    parser.add_argument("model", type=Path, help="the model as .cflow")
    parser.add_argument("gguf", type=Path, help="the same model as GGUF")
    parser.add_argument(
        "--limit", required=True, help="memory of each engine, e.g. 1GiB; below the model's size"
    )
    parser.add_argument(
        "--threads", default=str(threads_default()), help="of each engine (default: all cores)"
    )
    parser.add_argument("--tokens", type=int, default=16, help="timed tokens of a turn (default 16)")
    parser.add_argument("--prompt", type=int, default=32, help="tokens before them (default 32)")
    parser.add_argument("--rounds", type=int, default=4, help="turns of each engine (default 4)")
    parser.add_argument(
        "-o", "--option", action="append", default=[], metavar="NAME=VALUE", help="of our session"
    )
    parser.add_argument(
        "--no-readahead", action="store_true", help="a fault of llama.cpp reads one page (MADV_RANDOM)"
    )
    parser.add_argument(
        "--read-ahead",
        type=int,
        metavar="KIB",
        help="readahead of the whole disk during llama.cpp's turns (default: as it is; Linux has 128)",
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    given = parser.parse_args(arguments)
    try:
        setup = prepare(given)
        outcome = Outcome(setup, tuple(turns(setup, given.rounds)))
    except (BaselineError, CacheStateError, CflowError, MemoryLimitError, OSError, ReadAheadError) as error:
        parser.error(str(error))
    print(json.dumps(outcome.to_json(), indent=1) if given.json else "\n".join(table(outcome)))


if __name__ == "__main__":
    main()
