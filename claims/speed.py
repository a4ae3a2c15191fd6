"""Rows and ratios of `cflow bench`: what the rounds of a paired run say about the engines in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np

from claims.turns import STORAGE, STREAMS, Turn
from harness.registry import DEFAULT_GUARD
from harness.rounds import Figure, Pattern, Roof, Side, Timed
from harness.statistics import ROOF_LIMIT, TimedSummary, median, summarise

CONFIDENCE: Final = 0.95
_PERCENTILES: Final = {"median": 50, "p10": 10, "p90": 90}


@dataclass(frozen=True)
class Storage:
    """What came from disk during the tokens.

    asked, device: bytes per token asked of the reader (whole pages), and read by the device. wait_share: of
    the time in which computation stood still for it. expert_hits_per_token: experts that were in memory.
    """

    asked_bytes_per_token: float
    device_bytes_per_token: float
    wait_share: float
    expert_hits_per_token: float


@dataclass(frozen=True)
class Row:
    """One engine with one number of threads. Roof and share are None when the share is above `ROOF_LIMIT`.

    storage: None unless experts came from disk; then there is no share of the roof or of the probe, which are
    the memory's.

    share_of_probe: median over the rounds of the turn's bandwidth over that of the read probe beside it. The
    roof is the best pass of minutes, and where neighbours come and go no reader's median reaches its own
    best: this share compares like with like.

    ms_per_token: over all tokens of the rounds that count. prompt_tok_per_s: of the whole prompt. streams:
    our engine's, ns per token and worker, by name; barrier_share: of the workers' time. rounds, void: those
    that count, and those that do not; when none counts, all are shown and `doubts` says so. halves: medians
    of the bandwidth's share in the first and second half of the rounds. settings: of the engine that ran.
    """

    engine: str
    threads: int
    tok_per_s: float
    weight_bytes_per_token: float
    bytes_per_s: float
    roof_bytes_per_s: float | None
    share_of_roof: float | None
    share_of_probe: float | None
    isa: str
    ms_per_token: Mapping[str, float]
    prompt_tok_per_s: float
    streams_ns_per_token: Mapping[str, float] | None
    barrier_share: float | None
    storage: Storage | None
    rounds: int
    void: int
    halves: tuple[float, float] | None
    doubts: tuple[str, ...]
    settings: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """As a row of `cflow bench --json`."""
        return asdict(self)


@dataclass(frozen=True)
class Ratio:
    """Another engine's time over ours, per token: above 1 ours is faster. what: "decode" or "prompt".

    verdict: FASTER or SLOWER (ours), or INCONCLUSIVE: the interval holds 1, or `reasons` says why nothing is
    decided. same_weights: False where the other engine has a format of its own, made from the same values.
    """

    threads: int
    against: str
    what: str
    median: float | None
    low: float | None
    high: float | None
    a_a: tuple[float, float] | None
    rounds: int
    void: int
    tokens_equal: bool
    verdict: str
    reasons: tuple[str, ...]
    same_weights: bool = True

    def to_json(self) -> dict[str, Any]:
        """As a ratio of `cflow bench --json`."""
        return asdict(self)


def row(timed: Timed, engine: str, threads: int, roof: Roof, isa: str, settings: Mapping[str, Any]) -> Row:
    """The row of the arm called `engine`. threads: workers that it has."""
    figure = Figure(Side(engine, "bandwidth"), "roof")
    summary = summarise(replace(timed, figure=figure, roof=roof), CONFIDENCE, DEFAULT_GUARD)
    turns = _turns(timed, engine)
    prompts = [turn.prompt for turn in turns if turn.prompt is not None]
    speed = median([turn.work / turn.ns for turn in turns]) * 1e9
    per_token = sum(turn.bytes for turn in turns) / sum(turn.work for turn in turns)
    roof_bytes_per_s = roof.bytes_per_ns * 1e9
    storage = _storage(turns)
    share = speed * per_token / roof_bytes_per_s
    sound = share <= ROOF_LIMIT
    return Row(
        engine=engine,
        threads=threads,
        tok_per_s=speed,
        weight_bytes_per_token=per_token,
        bytes_per_s=speed * per_token,
        roof_bytes_per_s=roof_bytes_per_s if sound else None,
        share_of_roof=share if sound and storage is None else None,
        share_of_probe=_share_of_probe(timed, engine) if storage is None else None,
        isa=isa,
        ms_per_token=_ms_per_token(turns),
        prompt_tok_per_s=median([prompt.work / prompt.ns for prompt in prompts]) * 1e9,
        streams_ns_per_token=_streams(turns, threads),
        barrier_share=_barrier_share(turns, threads),
        storage=storage,
        rounds=summary.valid,
        void=summary.void,
        halves=summary.halves,
        doubts=summary.reasons,
        settings=settings,
    )


def ratio(timed: Timed, threads: int, against: str, ours: str, what: str, tokens_equal: bool) -> Ratio:
    """The ratio of the arms `against` and `ours` over the rounds."""
    figure = time_ratio(against, ours)
    summary = summarise(replace(timed, figure=figure), CONFIDENCE, DEFAULT_GUARD)
    return Ratio(
        threads=threads,
        against=against,
        what=what,
        median=summary.value,
        low=summary.low,
        high=summary.high,
        a_a=summary.a_a,
        rounds=summary.valid,
        void=summary.void,
        tokens_equal=tokens_equal,
        verdict=_verdict(summary),
        reasons=summary.reasons,
    )


def time_ratio(against: str, ours: str) -> Figure:
    """Time per token of one arm over that of another."""
    return Figure(Side(against, "time"), Side(ours, "time"))


def merged(before: Roof, after: Roof) -> Roof:
    """Both measurements of a roof as one: the best of either counts."""
    later = {pattern.name: pattern for pattern in after.patterns}
    patterns = [Pattern(one.name, one.bytes, one.ns + later[one.name].ns) for one in before.patterns]
    return Roof(before.threads, tuple(patterns))


def _verdict(summary: TimedSummary) -> str:
    if not summary.reasons and summary.low is not None and summary.high is not None:
        if summary.low > 1:
            return "FASTER"
        if summary.high < 1:
            return "SLOWER"
    return "INCONCLUSIVE"


def _turns(timed: Timed, arm: str) -> list[Turn]:
    counting = [one for one in timed.rounds if not one.void] or timed.rounds
    samples = [one.samples[arm].sample for one in counting]
    return [sample for sample in samples if isinstance(sample, Turn)]


def _share_of_probe(timed: Timed, arm: str) -> float:
    counting = [one for one in timed.rounds if not one.void] or timed.rounds
    samples = [(one.samples[arm].sample, one.probe_bytes_per_ns) for one in counting]
    return median([sample.bytes / sample.ns / probe for sample, probe in samples])


def _ms_per_token(turns: Sequence[Turn]) -> dict[str, float]:
    every = np.array([ns for turn in turns for ns in turn.token_ns]) / 1e6
    return {name: float(np.percentile(every, percent)) for name, percent in _PERCENTILES.items()}


def _streams(turns: Sequence[Turn], threads: int) -> dict[str, float] | None:
    if any(f"{name}_ns" not in turn.counters for turn in turns for name in STREAMS):
        return None
    tokens = sum(turn.work for turn in turns)
    return {name: sum(turn.counters[f"{name}_ns"] for turn in turns) / tokens / threads for name in STREAMS}


def _storage(turns: Sequence[Turn]) -> Storage | None:
    total = {name: sum(turn.counters.get(name, 0) for turn in turns) for name in (*STORAGE, "wall_ns")}
    if total["asked_bytes"] == 0:
        return None
    tokens = sum(turn.work for turn in turns)
    return Storage(
        asked_bytes_per_token=total["asked_bytes"] / tokens,
        device_bytes_per_token=total["device_bytes"] / tokens,
        wait_share=total["io_wait_ns"] / total["wall_ns"],
        expert_hits_per_token=total["expert_hits"] / tokens,
    )


def _barrier_share(turns: Sequence[Turn], threads: int) -> float | None:
    if any("barrier_ns" not in turn.counters for turn in turns):
        return None
    waited = sum(turn.counters["barrier_ns"] for turn in turns)
    return waited / (threads * sum(turn.counters["wall_ns"] for turn in turns))
