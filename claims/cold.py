"""Expert bytes that become resident while tokens are decoded from an empty page cache, by either engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from baselines.llamacpp import Info, LlamaCpp
from claims.experts import ExpertBank
from claims.moe_gguf import ExpertFile
from engine.enums import Advice
from engine.model import Model
from engine.session import OptionValue, Session
from harness.cachestate import CacheStateError, evict, residency

EVICTIONS = 10
SETTLED_READINGS = 4
SETTLE_S = 0.05


@dataclass(frozen=True)
class ColdRun:
    """Of the expert bank after each count of tokens: bytes in memory, and of the experts routed so far."""

    bank_bytes: int
    tokens: list[int] = field(default_factory=list)
    resident_bytes: list[int] = field(default_factory=list)
    routed_bytes: list[int] = field(default_factory=list)

    def add(self, tokens: int, resident_bytes: int, routed_bytes: int) -> None:
        """Notes the state after a count of tokens."""
        self.tokens.append(tokens)
        self.resident_bytes.append(resident_bytes)
        self.routed_bytes.append(routed_bytes)

    def observations(self) -> dict[str, list[int]]:
        """As they stand in results."""
        return {
            "tokens": self.tokens,
            "resident_bytes": self.resident_bytes,
            "routed_bytes": self.routed_bytes,
        }


def empty_for_good(path: Path, resident_bytes: Callable[[], int]) -> None:
    """Evicts what opening has read ahead, until nothing of the bank comes back.

    Reads under way hold their pages: eviction passes over them and mincore shows them later. Raises
    CacheStateError when the bank is not empty at several readings in a row.
    """
    for _ in range(EVICTIONS):
        evict(path, allowed_share=1.0)  # a mapped header stays
        left = 0
        for _ in range(SETTLED_READINGS):
            left = max(left, resident_bytes())
            time.sleep(SETTLE_S)
        if max(left, resident_bytes()) == 0:
            return
    raise CacheStateError(f"{path}: {left} bytes of experts stay resident after {EVICTIONS} evictions")


def cold_engine(
    path: Path,
    ids: Sequence[int],
    advice: Advice,
    after: Sequence[int],
    *,
    threads: int,
    **options: OptionValue,
) -> ColdRun:
    """This engine decodes `ids` from a cold mapping; options: of its session.

    Raises CacheStateError when it is not cold.
    """
    evict(path)
    with Model(path) as model:
        model.advise(advice)
        bank = ExpertBank(model)

        def resident_bytes() -> int:
            return residency(path, bank.offset).resident_bytes

        if advice is Advice.RANDOM:
            empty_for_good(path, resident_bytes)
        run = ColdRun(bank.blocks * bank.experts * bank.expert_bytes)
        chosen: set[tuple[int, int]] = set()
        with Session(model, threads=threads, context=max(after), **options) as session:
            for count, token in enumerate(ids[: max(after)], start=1):
                session.decode([token])
                routing, _ = session.routing()
                chosen |= {(layer, int(e)) for layer, row in enumerate(routing) for e in row}
                if count in after:
                    run.add(count, resident_bytes(), len(chosen) * bank.expert_bytes)
    return run


@dataclass(frozen=True)
class ColdBaseline:
    """llama.cpp's run, and what of the bank its start-up, which maps and reads ahead, had in memory."""

    run: ColdRun
    started_bytes: int
    info: Info


def cold_llamacpp(
    file: ExpertFile, ids: Sequence[int], after: Sequence[int], *, threads: int, readahead: bool
) -> ColdBaseline:
    """llama.cpp decodes `ids` from a cold mapping of plain weights: not repacked, not warmed up.

    Its start-up reads the whole file. Then it lets go of its pages, they are evicted from here, and mincore
    must find none. The experts counted as routed are those of its own graph, not of another engine that
    rounds differently. Raises BaselineError, and CacheStateError when the mapping is not cold.
    """

    def resident_bytes() -> int:
        return sum(residency(file.path, one.offset, one.bytes).resident_bytes for one in file.tensors)

    run = ColdRun(file.bank_bytes)
    chosen: set[tuple[int, int]] = set()
    with LlamaCpp() as baseline:
        baseline.load(
            file.path, threads, repack=False, warm_up=False, routing=True, context=max(after), poll=0
        )
        started_bytes = resident_bytes()
        baseline.let_go(readahead=readahead)
        empty_for_good(file.path, resident_bytes)
        for count, token in enumerate(ids[: max(after)], start=1):
            baseline.decode([token])
            chosen |= {(layer, e) for layer, row in enumerate(baseline.routing()) for e in row}
            if count in after:
                run.add(count, resident_bytes(), len(chosen) * file.expert_bytes)
        return ColdBaseline(run, started_bytes, baseline.info())
