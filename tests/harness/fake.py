"""A machine that exists in numbers alone: the paired runner is tested on it without a clock."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from harness.paired import Arm, Probes
from harness.rounds import Sample


@dataclass
class FakeMachine:
    """A clock that only the arms move, noise from a seed, and incidents by round.

    incidents: round number -> "steal", "unplugged" (a CPU), "bandwidth_probe", or (rule, arm name).
    """

    seed: int
    incidents: Mapping[int, object] = field(default_factory=dict)
    noise: float = 0.004
    now_ns: int = 1_000_000_000
    round: int = -1
    ticks: int = 0
    stolen: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def clock_ns(self) -> int:
        return self.now_ns

    def bandwidth(self) -> float:
        self.round += 1
        self.now_ns += 50_000_000
        slow = 0.8 if self.incidents.get(self.round) == "bandwidth_probe" else 1.0
        return slow * 40.0 * (1.0 + self.rng.uniform(-0.01, 0.01))

    def steal(self) -> tuple[int, int]:
        self.ticks += 40
        if self.incidents.get(self.round) == "steal":
            self.stolen += 3
        if self.incidents.get(self.round) == "unplugged":
            self.ticks -= 1000
        return self.stolen, self.ticks

    def probes(self) -> Probes:
        return Probes(self.bandwidth, self.steal, lambda: 0, self.clock_ns)

    def arm(
        self,
        name: str,
        ns: float,
        bytes_: int = 300_000_000,
        work: float = 8.0,
        resident: float | None = None,
        wanted: tuple[float, float] | None = None,
        drift: Callable[[int], float] = lambda _: 1.0,
    ) -> Arm:
        """An arm that takes about `ns` nanoseconds."""

        def run() -> Sample:
            took = round(ns * drift(self.round) * (1.0 + self.rng.gauss(0.0, self.noise)))
            self.now_ns += took + 10_000
            incident = self.incidents.get(self.round)
            delay = took // 10 if incident == ("run_queue", name) else 20_000
            digest = "bad" if incident == ("output", name) else "5f3c0a9d"
            return Sample(took, bytes_, digest, work, delay, resident, {"dense_bytes": bytes_, "tokens": 8})

        return Arm(name, run, "5f3c0a9d", f"made-up arm {name}", wanted)
