"""Made-up runs of made-up machines, through the real runner, rules and recorder."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.evidence import Counted, Evidence, Hardware, Simulated
from harness.paired import run_pairs
from harness.reductions import Reduction
from harness.registry import parse_registry
from harness.results import FILE_NAME, Recorder, RunInfo
from harness.rounds import Figure, Pattern, Roof, Side, Timed
from harness.verdict import NotMeasurable
from tests.harness.fake import FakeMachine
from tests.harness.make_sample import CHECK_NS, MACHINE, SAMPLE_DIR, Clock

CLAIMS = re.sub(r"^rounds = .*\n", "", (SAMPLE_DIR / "claims.toml").read_text(encoding="utf-8"), flags=re.M)
"""Those of the sample, with as many rounds as a test likes."""
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def machine(**changes: Any) -> dict[str, Any]:
    """A small machine; `cpu__model="X"` sets the model of its cpu."""
    state = copy.deepcopy(MACHINE)
    state["cpu"] |= {
        "architecture": "x86_64",
        "caches": [
            {
                "level": 1,
                "type": "data",
                "size_bytes": 32768,
                "line_bytes": 64,
                "ways": 8,
                "shared_cpus": "0",
            },
            {
                "level": 2,
                "type": "unified",
                "size_bytes": 2**20,
                "line_bytes": 64,
                "ways": 8,
                "shared_cpus": "0",
            },
        ],
    }
    state["memory"]["page_bytes"] = 4096
    state["storage"] = {"filesystem": "ext4", "read_ahead_kb": 128, "rotational": False}
    for name, value in changes.items():
        group, _, key = name.partition("__")
        state[group][key] = value
    return state


_RECORDED: dict[str, str] = {}
"""results.json of the runs that were recorded already, by what makes them."""


@dataclass(frozen=True)
class Made:
    """What a made-up run finds. Gains are what the figures of timed checks come to.

    speedup: 3.speedup, at least 2 wanted. time: 7.time by cell, at least 1.05 wanted. hint: 6.hint, at most
    1.03 wanted. roof: 3.roof, 0.6 to 1.03 wanted. noisy: 8.readahead, whose controls do not hold. differing:
    3.agreement, items that differ where none may. misses: of 2.l1.simulated. hardware: 2.l1.hardware, None:
    no counter. tier: of all pairs. without: checks that did not run.
    arms: of all pairs.
    """

    seed: int = 1
    machine: Mapping[str, Any] = field(default_factory=machine)
    created: str = "2026-01-01T00:00:00Z"
    profile: str = "quick"
    commit: str | None = COMMIT
    dirty: bool = False
    claims: str = CLAIMS
    build: Mapping[str, Any] = field(default_factory=lambda: {"engine": "gcc 12.2.0 -O3; mutant none"})
    options: Mapping[str, Any] = field(default_factory=lambda: {"threads": 2, "isa": "avx2"})
    speedup: float = 9.0
    time: float = 1.10
    hint: float = 1.00
    roof: float = 0.80
    noise: float = 0.004
    differing: int = 0
    misses: tuple[int, int] = (9_830_400, 1_280_000)
    hardware: float | None = None
    tier: str | None = None
    rounds: int = 12
    without: tuple[str, ...] = ()
    arms: tuple[str, str] = ("new", "old")

    def write(self, folder: Path) -> Path:
        """Records the run in a folder and returns the folder. What was recorded before is copied."""
        kept = _RECORDED.get(repr(self))
        if kept is None:
            kept = _RECORDED[repr(self)] = self._record(folder).read_text(encoding="utf-8")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FILE_NAME).write_text(kept, encoding="utf-8")
        return folder

    def _record(self, folder: Path) -> Path:
        clock = Clock(1_000_000_000 * self.seed)
        registry = parse_registry(self.claims)
        recorder = Recorder.open(
            folder,
            registry,
            RunInfo(self.profile, self.options, self.commit, self.dirty, "pytest claims/"),
            self.build,
            self.machine,
            now=lambda: self.created,
            clock_ns=lambda: clock.now_ns,
        )
        found = self._found(clock)
        wanted = [check.id for check in registry.checks if self.profile in check.budget_s]
        for index, check_id in enumerate([*found, *(other for other in wanted if other not in found)]):
            if check_id not in wanted or check_id in self.without:
                continue
            started_ns = 1_000_000_000 * self.seed + index * CHECK_NS
            clock.now_ns = started_ns + CHECK_NS
            evidence = found.get(check_id, NotMeasurable("not looked at"))
            recorder.add(
                check_id, evidence, started_ns=started_ns, command=f"pytest claims/ --only {check_id}"
            )
        recorder.finish(self.machine)
        recorder.close()
        return recorder.path

    def _found(
        self, clock: Clock
    ) -> dict[str, Evidence | NotMeasurable | dict[str, Evidence | NotMeasurable]]:
        start = clock.now_ns
        row_major, tiled = self.misses
        ratio = Reduction("ratio", ("row_major", "tiled"))
        hardware: Evidence | NotMeasurable = NotMeasurable("this machine has no such hardware counter")
        if self.hardware is not None:
            observations = {"row_major": round(1e6 * self.hardware), "tiled": 1_000_000}
            hardware = Hardware("perf_event_open", observations, ratio, events=("l1d_read_misses",))
        same = [0] * (10 - self.differing) + [1] * self.differing
        equal = Counted(
            "outputs by case",
            {"scalar": [0] * 10, "vector": same},
            Reduction("count_unequal", ("scalar", "vector")),
        )
        return {
            "2.l1.simulated": Simulated(
                "a model",
                {"row_major": row_major, "tiled": tiled},
                ratio,
                {"rows": 1024},
                geometry="L1-d 32 KiB",
            ),
            "2.l1.hardware": hardware,
            "3.agreement": {
                "q4_0, AVX2": equal,
                "q8_0, AVX2": equal,
                "q4_0, AVX-512": NotMeasurable("this CPU has no AVX-512"),
            },
            "3.speedup": self._pair(1, self.speedup, start + 3 * CHECK_NS),
            "3.roof": self._share(start + 4 * CHECK_NS),
            "6.hint": self._pair(2, self.hint, start + 5 * CHECK_NS),
            "7.time": {
                "1 thread": self._pair(3, self.time, start + 6 * CHECK_NS),
                "all threads": self._pair(4, self.time, start + 6 * CHECK_NS + CHECK_NS // 2),
            },
            "8.readahead": self._pair(5, 1.05, start + 7 * CHECK_NS, noise=0.2),
        }

    def _pair(self, offset: int, gain: float, start_ns: int, noise: float | None = None) -> Timed:
        fake = FakeMachine(10 * self.seed + offset, noise=noise or self.noise, now_ns=start_ns)
        new, old = fake.arm(self.arms[0], 80e6 / gain), fake.arm(self.arms[1], 80e6)
        inputs: dict[str, Any] = {"threads": self.options["threads"], "share": 0.1 * self.seed}
        return run_pairs(
            [old, new],
            Figure(Side(new.name, "speed"), Side(old.name, "speed")),
            fake.probes(),
            control_of=old.name,
            seed=fake.seed,
            rounds=self.rounds,
            inputs=inputs | ({} if self.tier is None else {"tier": self.tier}),
        )

    def _share(self, start_ns: int) -> Timed:
        fake = FakeMachine(10 * self.seed, noise=self.noise, now_ns=start_ns)
        arm = fake.arm("gemv", 300_000_000 / (self.roof * 4e9 / 95e6))
        roof = Roof(2, (Pattern("4 streams", 4_000_000_000, (95_500_000, 95_000_000)),))
        figure = Figure(Side(arm.name, "bandwidth"), "roof")
        return run_pairs([arm], figure, fake.probes(), control_of=arm.name, seed=fake.seed, roof=roof)
