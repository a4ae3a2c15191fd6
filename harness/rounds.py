"""The raw material of a timed figure: arms, samples, rounds, the roof, and what each round gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from harness.errors import EvidenceError
from harness.kinds import Kind
from harness.reductions import Scalar

STREAM_BYTE_COUNTERS: Final = (
    "attention_bytes",
    "dense_bytes",
    "expert_bytes",
    "router_bytes",
    "head_bytes",
    "embedding_bytes",
)
"""Engine counters whose sum is the weight bytes that a run read (keys and values are not weights)."""


def weight_bytes(counters: Mapping[str, int]) -> int:
    """Weight bytes in a set of engine counters: the sum of STREAM_BYTE_COUNTERS that are present."""
    return sum(counters.get(name, 0) for name in STREAM_BYTE_COUNTERS)


Measure = Literal["time", "speed", "bandwidth"]
MEASURES: Final[tuple[Measure, ...]] = ("time", "speed", "bandwidth")
"""time: ns per unit of work; speed: work per ns; bandwidth: bytes per ns (= GB/s)."""

IDLE_CPU_COUNTER: Final = "idle_cpu_ns"
"""Counter of a sample whose arm shares the cores with another engine: processor time that the other one,
which should sleep, used meanwhile.
"""

Rule = Literal["run_queue", "steal", "bandwidth_probe", "output", "cache", "idle_engine"]


@dataclass(frozen=True)
class Side:
    """One side of a timed figure: a measure of an arm."""

    arm: str
    measure: Measure

    def of(self, sample: Sample) -> float:
        """The measure of one sample."""
        if self.measure == "time":
            return sample.ns / sample.work
        if self.measure == "speed":
            return sample.work / sample.ns
        return sample.bytes / sample.ns


@dataclass(frozen=True)
class Figure:
    """What a round contributes: scale * subject / reference. "roof" divides by the roof, None by 1."""

    subject: Side
    reference: Side | Literal["roof"] | None
    scale: float = 1.0

    def to_json(self) -> dict[str, Any]:
        """As stored in results.json."""
        reference = vars(self.reference).copy() if isinstance(self.reference, Side) else self.reference
        return {"subject": vars(self.subject).copy(), "reference": reference, "scale": self.scale}


@dataclass(frozen=True)
class Sample:
    """One run of one arm.

    ns: duration measured where the work is done. bytes: weight bytes read. work: units done (tokens, rows,
    FLOP). digest: of the output. run_delay_ns: run-queue delay of the workers within `ns` (None = the runner
    measures its own thread). resident: share of the file's pages in memory before the run. counters: of the
    engine, for this run alone.
    """

    ns: int
    bytes: int
    digest: str
    work: float = 1.0
    run_delay_ns: int | None = None
    resident: float | None = None
    counters: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.ns <= 0 or self.work <= 0 or self.bytes < 0:
            raise EvidenceError(
                f"sample: ns={self.ns}, work={self.work}, bytes={self.bytes}; allowed: > 0, > 0, >= 0"
            )
        streams = any(name in self.counters for name in STREAM_BYTE_COUNTERS)
        if streams and weight_bytes(self.counters) != self.bytes:
            raise EvidenceError(
                f"sample: bytes={self.bytes}, but its counters add up to {weight_bytes(self.counters)}"
            )


@dataclass(frozen=True)
class Placed:
    """A sample and when it ran (CLOCK_MONOTONIC). run_delay_ns: None where the kernel keeps none."""

    start_ns: int
    wall_ns: int
    run_delay_ns: int | None
    sample: Sample

    def to_json(self) -> dict[str, Any]:
        """As stored in results.json."""
        return {
            "start_ns": self.start_ns,
            "wall_ns": self.wall_ns,
            "ns": self.sample.ns,
            "bytes": self.sample.bytes,
            "work": self.sample.work,
            "digest": self.sample.digest,
            "run_delay_ns": self.run_delay_ns,
            "resident": self.sample.resident,
            "counters": dict(self.sample.counters),
        }


@dataclass(frozen=True)
class Void:
    """Why a round does not count. arm: None when the cause belongs to the whole round."""

    rule: Rule
    arm: str | None

    def to_json(self) -> dict[str, Any]:
        """As stored in results.json."""
        return {"rule": self.rule, "arm": self.arm}


@dataclass(frozen=True)
class Round:
    """All arms once, in `order`. steal_ticks of cpu_ticks: /proc/stat over the round, of the CPUs that work.
    probe_bytes_per_ns: the 50 ms read.
    """

    seq: int
    order: tuple[str, ...]
    start_ns: int
    end_ns: int
    steal_ticks: int
    cpu_ticks: int
    probe_bytes_per_ns: float
    samples: Mapping[str, Placed]
    void: tuple[Void, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As stored in results.json."""
        return {
            "seq": self.seq,
            "order": list(self.order),
            "start_ns": self.start_ns,
            "end_ns": self.end_ns,
            "steal_ticks": self.steal_ticks,
            "cpu_ticks": self.cpu_ticks,
            "probe_bytes_per_ns": self.probe_bytes_per_ns,
            "samples": {name: placed.to_json() for name, placed in self.samples.items()},
            "void": [void.to_json() for void in self.void],
        }


@dataclass(frozen=True)
class ArmInfo:
    """An arm as declared. control_of: the arm it repeats (the A/A control). resident: cache precondition
    [low, high].
    """

    name: str
    description: str
    control_of: str | None
    expected_digest: str
    resident: tuple[float, float] | None

    def to_json(self) -> dict[str, Any]:
        """As stored in results.json."""
        return {
            "name": self.name,
            "description": self.description,
            "control_of": self.control_of,
            "expected_digest": self.expected_digest,
            "resident": None if self.resident is None else list(self.resident),
        }


@dataclass(frozen=True)
class Pattern:
    """One read-only access pattern of the roof: bytes per pass and the time of each pass, the first one
    dropped.
    """

    name: str
    bytes: int
    ns: tuple[int, ...]


@dataclass(frozen=True)
class Roof:
    """Best read-only bandwidth: the fastest pass over all patterns, with threads and cores of the arms."""

    threads: int
    patterns: tuple[Pattern, ...]

    @property
    def bytes_per_ns(self) -> float:
        """Bytes per nanosecond, that is GB/s."""
        return max(pattern.bytes / min(pattern.ns) for pattern in self.patterns)

    def to_json(self) -> dict[str, Any]:
        """As stored in results.json."""
        patterns = [{"name": p.name, "bytes": p.bytes, "ns": list(p.ns)} for p in self.patterns]
        return {"threads": self.threads, "patterns": patterns, "bytes_per_ns": self.bytes_per_ns}


@dataclass(frozen=True)
class Timed:
    """A paired run: every round, void ones too."""

    figure: Figure
    seed: int
    rounds_wanted: int
    interrupted: bool
    arms: tuple[ArmInfo, ...]
    rounds: tuple[Round, ...]
    roof: Roof | None = None
    inputs: Mapping[str, Scalar | bool | None] = field(default_factory=dict)

    @property
    def kind(self) -> Kind:
        """Kind of evidence."""
        return "timed"

    def to_json(self) -> dict[str, Any]:
        """As stored in results.json."""
        return {
            "kind": self.kind,
            "inputs": dict(self.inputs),
            "figure": self.figure.to_json(),
            "seed": self.seed,
            "rounds_wanted": self.rounds_wanted,
            "interrupted": self.interrupted,
            "arms": [arm.to_json() for arm in self.arms],
            "rounds": [one.to_json() for one in self.rounds],
            "roof": None if self.roof is None else self.roof.to_json(),
        }
