"""Makes tests/data/results_sample/results.json: made-up measurements through the real runner, rules and
recorder.

python -m tests.harness.make_sample writes the file again; test_sample.py checks that it has not changed.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.evidence import Counted, Derived, Evidence, Hardware, Kernel, Simulated
from harness.paired import Arm, run_pairs
from harness.reductions import Reduction
from harness.registry import load_registry
from harness.results import FILE_NAME, Recorder, RunInfo, write_atomically
from harness.rounds import Figure, Measure, Pattern, Roof, Side, Timed
from harness.verdict import NotMeasurable
from tests.harness.fake import FakeMachine

SAMPLE_DIR = Path(__file__).parents[1] / "data" / "results_sample"
RATIO = "ratio"
MIB = 2**20
CHECK_NS = 60_000_000_000


@dataclass
class Clock:
    """Time of the made-up run. Every check takes CHECK_NS; its rounds lie within."""

    now_ns: int = 1_000_000_000


MACHINE = {
    "cpu": {
        "model": "Example 2-core CPU",
        "isa": ["avx2", "fma", "f16c"],
        "logical": 2,
        "physical": 2,
        "affinity": [0, 1],
        "governor": None,
    },
    "memory": {
        "total_bytes": 24_000_000_000,
        "available_bytes": 20_000_000_000,
        "transparent_huge_pages": "madvise",
    },
    "load": {"average_1m": 0.12, "steal_share": 0.0},
    "kernel": {"system": "Linux", "release": "6.1.0", "page_bytes": 4096},
    "python": {"python": "3.11.2", "numpy": "2.2.0"},
}


def _pair(machine: FakeMachine, new: Arm, old: Arm, measure: Measure = "speed", rounds: int = 20) -> Timed:
    figure = Figure(Side(new.name, measure), Side(old.name, measure))
    return run_pairs(
        [old, new],
        figure,
        machine.probes(),
        control_of=old.name,
        seed=machine.seed,
        rounds=rounds,
        inputs={"threads": 1, "model": "made-up"},
    )


def _roof() -> Roof:
    return Roof(
        2,
        (
            Pattern("1 stream", 4_000_000_000, (101_000_000, 100_500_000)),
            Pattern("4 streams", 4_000_000_000, (95_500_000, 95_000_000)),
        ),
    )


def _hint(seed: int, gain: float, start_ns: int) -> Timed:
    machine = FakeMachine(seed, {3: ("run_queue", "no hint"), 9: "steal"}, now_ns=start_ns)
    return _pair(machine, machine.arm("hint", 80e6 / gain), machine.arm("no hint", 80e6))


def _time(seed: int, gain: float, start_ns: int) -> Timed:
    machine = FakeMachine(seed, {5: "bandwidth_probe"}, now_ns=start_ns)
    return _pair(machine, machine.arm("(1,2)", 60e6 / gain), machine.arm("(0,0)", 60e6))


def _share(start_ns: int) -> Timed:
    machine = FakeMachine(31, now_ns=start_ns)
    arm = machine.arm("q4_0q8_gemv_t16_avx2", 300_000_000 / 33.0)
    figure = Figure(Side(arm.name, "bandwidth"), "roof")
    return run_pairs([arm], figure, machine.probes(), control_of=arm.name, seed=31, roof=_roof())


def _balance(start_ns: int) -> Timed:
    machine = FakeMachine(32, now_ns=start_ns)
    arm = machine.arm("FMA loop", 100e6, bytes_=0, work=6e9)
    return run_pairs(
        [arm],
        Figure(Side(arm.name, "speed"), "roof"),
        machine.probes(),
        control_of=arm.name,
        seed=32,
        roof=_roof(),
    )


def _readahead(start_ns: int) -> Timed:
    machine = FakeMachine(81, {2: ("output", "stage-major")}, noise=0.08, now_ns=start_ns)
    new = machine.arm("stage-major", 90e6, resident=0.0, wanted=(0.0, 0.01))
    old = machine.arm("layer-major", 95e6, resident=0.0, wanted=(0.0, 0.01))
    return _pair(machine, new, old, "bandwidth")


def fill(recorder: Recorder, clock: Clock) -> None:
    """Adds every made-up check. `clock` is that of the recorder."""

    def add(
        check_id: str, found: Evidence | NotMeasurable | Mapping[str, Evidence | NotMeasurable], *limits: str
    ) -> None:
        command = f"pytest claims/ --only {check_id} --profile quick"
        started_ns = clock.now_ns
        clock.now_ns += CHECK_NS
        recorder.add(check_id, found, started_ns=started_ns, command=command, limits=limits)

    add(
        "1.resident",
        Kernel(
            "mincore over the expert bank after one token",
            {"resident_bytes": 25_165_824, "routed_bytes": 25_165_824},
            Reduction(RATIO, ("resident_bytes", "routed_bytes")),
            {"experts": 8, "per_token": 2},
        ),
    )
    add(
        "2.l1.simulated",
        Simulated(
            "cachegrind 3.19",
            {"row_major": 9_830_400, "tiled": 1_280_000},
            Reduction(RATIO, ("row_major", "tiled")),
            {"rows": 1024, "columns": 32768},
            geometry="L1-d 32 KiB 8-way 64 B, LL 20 MiB 20-way",
        ),
        "f32 activations; with 8-bit activations the vector is four times smaller",
    )
    add(
        "2.l1.hardware",
        Hardware(
            "perf_event_open, user space",
            {"row_major": 9_700_123, "tiled": 1_330_456},
            Reduction(RATIO, ("row_major", "tiled")),
            events=("l1d_read_misses",),
        ),
    )
    add("2.dtlb.hardware", NotMeasurable("dtlb_read_misses: this machine has no such hardware counter"))
    equal = Reduction("count_unequal", ("scalar", "vector"))
    digests = ["a1", "b2", "c3", "d4"]
    add(
        "3.agreement",
        {
            "q4_0, AVX2": Counted(
                "integer dot products by row", {"scalar": [-7, 0, 123, 45], "vector": [-7, 0, 123, 45]}, equal
            ),
            "q8_0, AVX2": Counted(
                "digests of outputs by case", {"scalar": digests, "vector": list(digests)}, equal
            ),
            "q4_0, AVX-512": NotMeasurable("this CPU has no AVX-512"),
        },
    )
    machine = FakeMachine(33, now_ns=clock.now_ns)
    add("3.speedup", _pair(machine, machine.arm("avx2", 9e6), machine.arm("scalar", 80e6)))
    add("3.roof", _share(clock.now_ns))
    add("0.regime", _balance(clock.now_ns), "the arithmetic rate is that of one loop")
    add("6.hint", _hint(61, 1.10, clock.now_ns), "one distance: 8 KiB", "weights in RAM, 4 KiB pages")
    weights = {"attention": 1_048_576, "dense": 3_145_728, "expert_topk": 1_572_864, "layers": 6}
    law = (
        "sum over layers of max(B_attn, B_dense / (dd + 1), B_expert_topk / (de + 1)) at 0.5 byte per weight"
    )
    add(
        "7.law",
        {
            "(0,0) over (1,2)": Derived(
                law,
                {"undelayed_mib": 9.0, "delayed_mib": 4.5},
                Reduction(RATIO, ("undelayed_mib", "delayed_mib")),
                weights,
            ),
            "arch1": Derived(law, {"layer_mib": [1.5] * 6}, Reduction("sum", ("layer_mib",)), weights),
            "arch2_4_combined": Derived(
                law, {"layer_mib": [0.75] * 6}, Reduction("sum", ("layer_mib",)), weights
            ),
        },
        "bytes, not time",
    )
    add(
        "7.path",
        Counted(
            "longest path through the pieces that ran",
            {"undelayed_bytes": 12 * MIB, "delayed_bytes": 9 * MIB},
            Reduction(RATIO, ("undelayed_bytes", "delayed_bytes")),
        ),
    )
    add(
        "7.traffic",
        Counted(
            "engine byte counters over 8 tokens",
            {"delayed": [17_301_504] * 8, "undelayed": [17_301_504] * 8},
            Reduction(RATIO, ("delayed", "undelayed")),
        ),
    )
    add(
        "7.time",
        {
            "1 thread": _time(71, 1.01, clock.now_ns),
            "all threads": _time(72, 1.055, clock.now_ns + CHECK_NS // 2),
        },
        "weights in RAM",
    )
    add("8.readahead", _readahead(clock.now_ns), "guest-cold, host-warm")


def build_sample(directory: Path) -> Path:
    """Writes the sample results into a folder and returns the path of results.json."""
    clock = Clock()
    recorder = Recorder.open(
        directory,
        load_registry(SAMPLE_DIR / "claims.toml"),
        RunInfo(
            "quick",
            {"threads": 2, "seed": 1, "only": None},
            "0123456789abcdef0123456789abcdef01234567",
            False,
            "pytest claims/ --profile quick",
        ),
        {"compiler": "gcc 12.2.0", "flags": "-O3", "mutant": "none"},
        MACHINE,
        now=lambda: "2026-01-01T00:00:00Z",
        clock_ns=lambda: clock.now_ns,
    )
    fill(recorder, clock)
    recorder.finish({**MACHINE, "load": {"average_1m": 1.05, "steal_share": 0.0}})
    recorder.close()
    return recorder.path


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        write_atomically(SAMPLE_DIR / FILE_NAME, build_sample(Path(folder)).read_text(encoding="utf-8"))
    sys.stdout.write(f"{SAMPLE_DIR / FILE_NAME}\n")
