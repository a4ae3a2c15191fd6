"""The raw material of a timed figure: arms, samples, rounds, the roof, and what each round gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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


Measure = Literal["time", "speed", "bandwidth", "computing", "reading"]
"""time: ns per unit of work; speed: work per ns; bandwidth: bytes per ns (= GB/s); computing: the time
without what was waited for reads (counter io_wait_ns), and reading: the time in which a read was under way
(counter read_ns), both per unit of work.
"""

IDLE_CPU_COUNTER: Final = "idle_cpu_ns"
"""Counter of a sample whose arm shares the cores with another engine: processor time that the other one,
which should sleep, used meanwhile.
"""

ASKED_COUNTER: Final = "asked_bytes"
"""Counter of a sample whose arm reads a file past the page cache: bytes that it asked for. The device must
have delivered as many (counter device_bytes), or a cache or somebody else's reads are in the sample.
"""

FAILED_COUNTER: Final = "engine_failed"
"""Counter of a sample that stands for one that an engine did not give: it died or hung, and was started
anew.
"""

Rule = Literal[
    "run_queue",
    "steal",
    "bandwidth_probe",
    "output",
    "cache",
    "idle_engine",
    "device_bytes",
    "engine_failed",
]


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
        if self.measure == "computing":
            return (sample.ns - sample.counters["io_wait_ns"]) / sample.work
        if self.measure == "reading":
            return sample.counters["read_ns"] / sample.work
        return sample.bytes / sample.ns


@dataclass(frozen=True)
class Paths:
    """Time that a model predicts from what computing and reading take alone: that of its longest path.

    terms: one pair (a, b) per path, which holds `a` of the computing and `b` of the reading, so that the time
    is the greatest a * compute + b * read. ((1, 1),): one after the other; ((1, 0), (0, 1)): side by side.
    """

    compute: Side
    read: Side
    terms: tuple[tuple[float, float], ...]

    def of(self, samples: Mapping[str, Placed]) -> float:
        """The predicted time of one round, ns per unit of work."""
        compute = self.compute.of(samples[self.compute.arm].sample)
        read = self.read.of(samples[self.read.arm].sample)
        return max(a * compute + b * read for a, b in self.terms)

    def to_json(self) -> dict[str, Any]:
        """As stored in results.json."""
        sides = {"compute": vars(self.compute).copy(), "read": vars(self.read).copy()}
        return {**sides, "terms": [list(term) for term in self.terms]}


@dataclass(frozen=True)
class Figure:
    """What a round contributes: scale * subject / reference, over the quotient of `expected`, if any.

    reference: "roof" divides by the roof, None by 1. expected: (above, below), two predictions.
    """

    subject: Side
    reference: Side | Paths | Literal["roof"] | None
    scale: float = 1.0
    expected: tuple[Paths, Paths] | None = None

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms that it looks at."""
        sides = [self.subject, *([self.reference] if isinstance(self.reference, Side) else [])]
        paths = [*([self.reference] if isinstance(self.reference, Paths) else []), *(self.expected or ())]
        sides += [side for one in paths for side in (one.compute, one.read)]
        return tuple(dict.fromkeys(side.arm for side in sides))

    def of(self, samples: Mapping[str, Placed], roof: Roof | None) -> float:
        """The figure of one round. Raises EvidenceError when it needs a roof and there is none."""
        value = self.scale * self.subject.of(samples[self.subject.arm].sample)
        if isinstance(self.reference, Side):
            value /= self.reference.of(samples[self.reference.arm].sample)
        elif isinstance(self.reference, Paths):
            value /= self.reference.of(samples)
        elif self.reference == "roof":
            if roof is None:
                raise EvidenceError("figure.reference: roof, but the evidence holds no roof")
            value /= roof.bytes_per_ns
        if self.expected is not None:
            above, below = self.expected
            value /= above.of(samples) / below.of(samples)
        return value

    def to_json(self) -> dict[str, Any]:
        """As stored in results.json."""
        reference = self.reference
        if isinstance(reference, Side):
            stored: Any = vars(reference).copy()
        else:
            stored = reference.to_json() if isinstance(reference, Paths) else reference
        figure = {"subject": vars(self.subject).copy(), "reference": stored, "scale": self.scale}
        if self.expected is not None:
            above, below = self.expected
            figure["expected"] = {"above": above.to_json(), "below": below.to_json()}
        return figure


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
class RoundsOf:
    """The record and cell that hold the rounds of a figure which looks at them anew."""

    check: str
    cell: str


@dataclass(frozen=True)
class Timed:
    """A paired run: every round, void ones too.

    rounds_of: where the same rounds are stored already, None: with this figure.
    """

    figure: Figure
    seed: int
    rounds_wanted: int
    interrupted: bool
    arms: tuple[ArmInfo, ...]
    rounds: tuple[Round, ...]
    roof: Roof | None = None
    inputs: Mapping[str, Scalar | bool | None] = field(default_factory=dict)
    rounds_of: RoundsOf | None = None

    @property
    def kind(self) -> Kind:
        """Kind of evidence."""
        return "timed"

    def to_json(self) -> dict[str, Any]:
        """As stored in results.json: with its rounds, or with where they are."""
        if self.rounds_of is not None:
            own = {"kind": self.kind, "inputs": dict(self.inputs), "figure": self.figure.to_json()}
            return {**own, "rounds_of": vars(self.rounds_of).copy()}
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


def views(timed: Timed, check: str, chosen: Mapping[str, Figure]) -> dict[str, Timed]:
    """Figures of one paired run for cells of one check, by label: the first holds the rounds, the others
    name it. The same rounds stored twice would be two runs at one time.
    """
    first = next(iter(chosen))
    return {
        label: replace(timed, figure=figure, rounds_of=None if label == first else RoundsOf(check, first))
        for label, figure in chosen.items()
    }
