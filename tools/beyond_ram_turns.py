"""Turns of two engines inside a memory limit, for `tools.beyond_ram`: ours, and llama.cpp on its mapping."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from baselines.llamacpp import LlamaCpp
from baselines.worker_process import WorkerProcess, python_environment
from engine.errors import ArgumentError
from engine.session import OptionValue
from harness.cachestate import CacheStateError, evict
from harness.memory_limit import MemoryGroup, MemoryLimitError, memory_limit
from harness.readahead import ReadAheadError, read_ahead, read_ahead_kib

OURS: Final = "cflow"
THEIRS: Final = "llama.cpp"
GROWTH: Final = 32
"""One part in so many of the limit is left to what the process takes once it has a session."""
TIMEOUT_S: Final = 600.0
EVICTIONS: Final = 20
SETTLE_S: Final = 0.1


@dataclass(frozen=True)
class Setup:
    """What both engines run.

    readahead: whether the kernel may read ahead in llama.cpp's mapping, as by default. read_ahead_kib: how
    far the disk of the GGUF does so during its turns; None leaves the machine as it is. options: of our
    session, beside those that the comparison sets.
    """

    model: Path
    gguf: Path
    limit_bytes: int
    threads: int
    prompt: tuple[int, ...]
    tokens: int
    readahead: bool
    read_ahead_kib: int | None
    options: dict[str, OptionValue]

    @property
    def context(self) -> int:
        """Positions that are needed."""
        return len(self.prompt) + self.tokens


@dataclass(frozen=True)
class Turn:
    """One engine's timed tokens: what it chose after each, and the bytes that the device gave its process.

    facts: what ran, for the results.
    """

    engine: str
    chosen: tuple[int, ...]
    ns: tuple[int, ...]
    device_bytes: int
    facts: dict[str, Any]

    @property
    def tokens_per_s(self) -> float:
        """Of all its tokens together."""
        return len(self.ns) / sum(self.ns) * 1e9

    @property
    def device_bytes_per_token(self) -> float:
        """Whatever came into the process from the device while the tokens were timed."""
        return self.device_bytes / len(self.ns)


def device_bytes(process: int) -> int:
    """Bytes that a process has had read from devices (proc(5), read_bytes)."""
    fields = (line.split(": ") for line in Path(f"/proc/{process}/io").read_text().splitlines())
    return int(dict(fields)["read_bytes"])


def _empty(path: Path) -> None:
    """Gets a file out of the page cache: readahead that a turn left under way holds its pages for a while."""
    for _ in range(EVICTIONS - 1):
        try:
            evict(path)
            return
        except CacheStateError:
            time.sleep(SETTLE_S)
    evict(path)


@contextmanager
def limited(setup: Setup) -> Iterator[MemoryGroup]:
    """A cgroup with the limit, and neither file in the page cache.

    Raises MemoryLimitError and CacheStateError where that cannot be had.
    """
    for path in (setup.model, setup.gguf):
        _empty(path)
    with memory_limit(setup.limit_bytes) as group:
        if group.may_swap():
            raise MemoryLimitError(
                f"{group.folder}: its processes could swap and so hold more than the limit; "
                "run `swapoff -a` first"
            )
        yield group


def _read_ahead(setup: Setup) -> AbstractContextManager[int | None]:
    """The readahead of the disk of the GGUF as asked for; gives KiB, None where the kernel does not say."""
    folder = setup.gguf.parent
    if setup.read_ahead_kib is not None:
        return read_ahead(folder, setup.read_ahead_kib)
    try:
        return nullcontext(read_ahead_kib(folder))
    except ReadAheadError:
        return nullcontext(None)


def our_turn(setup: Setup) -> Turn:
    """Our engine: what it chooses is what both are timed on. Raises BaselineError when its process ends."""
    command = [sys.executable, "-m", "tools.beyond_ram_worker", str(setup.model)]
    with (
        limited(setup) as group,
        WorkerProcess(
            OURS, command, python_environment(), TIMEOUT_S, enter=lambda: group.add(os.getpid())
        ) as worker,
    ):
        held = group.held_bytes()
        options: dict[str, OptionValue] = {
            "residency": "direct",
            "verify": "never",  # llama.cpp verifies nothing
            "threads": setup.threads,
            "context": setup.context,
            "ram_budget": max(1, setup.limit_bytes - held - setup.limit_bytes // GROWTH),
            **setup.options,
        }
        loaded = worker.call("load", TIMEOUT_S, options=options)
        if setup.prompt[:-1]:
            worker.call("feed", TIMEOUT_S, tokens=setup.prompt[:-1])
        before = device_bytes(worker.pid)
        answer = worker.call("generate", TIMEOUT_S, token=setup.prompt[-1], n=setup.tokens)
        read = device_bytes(worker.pid) - before
        facts = {**loaded, "held_before_bytes": held, "counters": answer["counters"]}
    return Turn(OURS, tuple(answer["tokens"]), tuple(answer["ns"]), read, facts)


def their_turn(setup: Setup, course: Sequence[int]) -> Turn:
    """llama.cpp, fed the tokens that our engine chose. Raises BaselineError, and ReadAheadError."""
    fed = [setup.prompt[-1], *course[:-1]]
    with (
        limited(setup) as group,
        _read_ahead(setup) as ahead_kib,
        LlamaCpp(enter=lambda: group.add(os.getpid())) as baseline,
    ):
        baseline.load(setup.gguf, setup.threads, repack=False, context=setup.context)
        if not setup.readahead:
            baseline.let_go(readahead=False)
        if setup.prompt[:-1]:
            baseline.follow(setup.prompt[:-1])
        before = device_bytes(baseline.pid)
        answer = baseline.follow(fed)
        read = device_bytes(baseline.pid) - before
        facts = {**baseline.info().to_json(), "read_ahead_kib": ahead_kib}
    return Turn(THEIRS, answer.argmax, answer.ns, read, facts)


def turns(setup: Setup, rounds: int) -> Iterator[tuple[Turn, Turn]]:
    """Our turn and theirs of each round; which comes first alternates, and ours does in the first.

    Raises ArgumentError when our tokens are not the same in all turns.
    """
    course: tuple[int, ...] = ()
    for number in range(rounds):
        if number % 2:
            theirs = their_turn(setup, course)
            ours = our_turn(setup)
        else:
            ours = our_turn(setup)
            course = course or ours.chosen
            theirs = their_turn(setup, course)
        if ours.chosen != course:
            raise ArgumentError(f"{setup.model}: round {number + 1} chose other tokens than the first")
        yield ours, theirs
