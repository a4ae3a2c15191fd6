"""Evidence: the raw material of each figure, by kind. A figure never mixes kinds: one cell holds one evidence
object.

Exact kinds (counted, kernel, simulated, hardware, derived) hold named observations and a declared reduction.
Timed evidence holds every round of a paired run (harness/rounds.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from harness.errors import EvidenceError
from harness.kinds import Kind
from harness.reductions import Observation, Reduction, Scalar, reduce
from harness.rounds import Timed


@dataclass(frozen=True)
class ExactEvidence:
    """A figure without timing; only reductions of harness/estimates.py give it an interval. `method` says how
    the observations were made, `inputs` what was fixed. `note` is said beside the verdict: what is missing.
    """

    KIND: ClassVar[Kind]

    method: str
    observations: Mapping[str, Observation]
    reduction: Reduction
    inputs: Mapping[str, Scalar | bool | None] = field(default_factory=dict)
    note: str = ""

    @property
    def kind(self) -> Kind:
        """Kind of evidence."""
        return self.KIND

    @property
    def value(self) -> float:
        """The figure."""
        return reduce(self.observations, self.reduction)

    def to_json(self) -> dict[str, Any]:
        """As stored in results.json."""
        observations = {
            name: item if isinstance(item, int | float | str) else list(item)
            for name, item in self.observations.items()
        }
        return {
            "kind": self.kind,
            "method": self.method,
            "inputs": dict(self.inputs),
            "observations": observations,
            "reduction": self.reduction.to_json(),
        }


class Counted(ExactEvidence):
    """Counted by the engine or by comparing outputs; `method` names the counters."""

    KIND = "counted"


class Kernel(ExactEvidence):
    """Told by the operating system (mincore, /proc/self/io, faults); `method` names the interface."""

    KIND = "kernel"


class Derived(ExactEvidence):
    """Computed from other numbers; `method` is the formula."""

    KIND = "derived"


@dataclass(frozen=True)
class Simulated(ExactEvidence):
    """A cache model; `geometry` states the caches that were simulated."""

    KIND = "simulated"

    geometry: str = ""

    def __post_init__(self) -> None:
        if not self.geometry:
            raise EvidenceError("geometry: missing; a simulated figure states its cache geometry")

    def to_json(self) -> dict[str, Any]:
        """As stored in results.json."""
        return {**super().to_json(), "geometry": self.geometry}


@dataclass(frozen=True)
class Hardware(ExactEvidence):
    """Hardware counters (perf_event_open); `events` names them."""

    KIND = "hardware"

    events: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.events:
            raise EvidenceError("events: missing; a hardware figure names its counters")

    def to_json(self) -> dict[str, Any]:
        """As stored in results.json."""
        return {**super().to_json(), "events": list(self.events)}


Evidence = ExactEvidence | Timed
