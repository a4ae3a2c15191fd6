"""Five seconds of an arm against itself: what this machine's noise alone makes of two equal things.

The same paired rounds, read probe and rules as in every timed check. Both arms are the fastest read-only
pass over an arena, on all threads: what neighbours take of the memory's bandwidth or of a core shows there.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from claims.run import SEED
from claims.timing import Bench, arena_bytes, longest_wait_ns, open_bench
from engine.kernels import threads_default
from harness.doctor import Finding
from harness.paired import Arm, Progress, run_pairs
from harness.registry import DEFAULT_GUARD, Registry
from harness.rounds import Figure, Sample, Side, Timed
from harness.statistics import TimedSummary, median, summarise

ARM_NS: Final = 80_000_000
"""Of one run of an arm: with the probe of 50 ms, 20 rounds take some 4 s."""
ROUNDS: Final = 20
CONFIDENCE: Final = 0.95
READ: Final = "read"


@dataclass(frozen=True)
class Noise:
    """What the rounds showed. spread: of the ratio of the two, smallest, median and largest; None without a
    valid round. void: rounds that do not count, by rule.
    """

    timed: Timed
    summary: TimedSummary
    threads: int
    spread: tuple[float, float, float] | None
    void: Mapping[str, int]

    @property
    def quiet(self) -> bool:
        """Whether a timed check with the usual guard could give a verdict now."""
        return not self.summary.reasons

    @property
    def resolution(self) -> float | None:
        """The least relative difference that stands out of the noise: by how far the A/A interval reaches."""
        a_a = self.summary.a_a
        return None if a_a is None else max(a_a[1], 1 / a_a[0]) - 1

    def reasons(self, guard: float) -> tuple[str, ...]:
        """Why a check with that guard would be INCONCLUSIVE; empty when it would not."""
        return summarise(self.timed, CONFIDENCE, guard).reasons

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "threads": self.threads,
            "guard": DEFAULT_GUARD,
            "a_a": None if self.summary.a_a is None else list(self.summary.a_a),
            "spread": None if self.spread is None else list(self.spread),
            "resolution": self.resolution,
            "rounds": self.summary.valid,
            "void": self.summary.void,
            "void_by_rule": dict(self.void),
            "bytes_per_s": median([one.probe_bytes_per_ns for one in self.timed.rounds]) * 1e9,
            "quiet": self.quiet,
            "reasons": list(self.summary.reasons),
        }


def needed_bytes() -> int:
    """Memory that `listen` takes."""
    return arena_bytes()


def listen(progress: Progress | None = None) -> Noise:
    """Measures. Raises KeyboardInterrupt, and CflowError where there is no memory for it."""
    threads = threads_default()
    with open_bench(threads) as bench:
        arm = read_arm(bench)
        timed = run_pairs(
            [arm],
            Figure(Side(READ, "bandwidth"), None),
            bench.probes(),
            control_of=READ,
            seed=SEED,
            rounds=ROUNDS,
            progress=progress,
        )
    if timed.interrupted:
        raise KeyboardInterrupt
    return judged(timed, threads)


def read_arm(bench: Bench) -> Arm:
    """Reads the arena as often as takes about ARM_NS."""
    once_ns, expected = bench.arena.read(bench.probe_pattern)
    passes = max(1, round(ARM_NS / once_ns))

    def run() -> Sample:
        before = bench.pool.run_delays_ns()
        taken_ns = 0
        totals = set()
        for _ in range(passes):
            elapsed_ns, total = bench.arena.read(bench.probe_pattern)
            taken_ns += elapsed_ns
            totals.add(total)
        delay_ns = longest_wait_ns(before, bench.pool.run_delays_ns())
        return Sample(
            taken_ns, passes * bench.arena.size_bytes, str(sorted(totals)), passes, run_delay_ns=delay_ns
        )

    return Arm(READ, run, str([expected]), f"{passes} passes over {bench.arena.size_bytes} bytes")


def judged(timed: Timed, threads: int) -> Noise:
    """What rounds of an arm and its control say."""
    control = timed.arms[-1].name
    ratios = [
        (one.samples[control].sample.ns / one.samples[control].sample.work)
        / (one.samples[READ].sample.ns / one.samples[READ].sample.work)
        for one in timed.rounds
        if not one.void
    ]
    spread = None
    if ratios:
        logs = [math.log(ratio) for ratio in ratios]
        spread = min(ratios), math.exp(median(logs)), max(ratios)
    void: Counter[str] = Counter(item.rule for one in timed.rounds for item in one.void)
    return Noise(timed, summarise(timed, CONFIDENCE, DEFAULT_GUARD), threads, spread, dict(void))


def noise_finding(noise: Noise) -> Finding:
    """In words: what was seen, and what that means for verdicts."""
    summary = noise.summary
    seen = f"{summary.valid} valid rounds of an arm against itself, {summary.void} void"
    if summary.a_a is not None and noise.spread is not None and noise.resolution is not None:
        seen += (
            f"; A/A [{summary.a_a[0]:.3f}, {summary.a_a[1]:.3f}], single rounds {noise.spread[0]:.3f} to "
            f"{noise.spread[2]:.3f}: differences above {noise.resolution:.1%} stand out"
        )
    if noise.quiet:
        return Finding("noise", "noisy neighbours", "yes", seen)
    reasons = "; ".join(summary.reasons)
    remedy = "end other programs, wait for a quieter hour, or use a machine of your own; then ask again"
    return Finding("noise", "noisy neighbours", "no", f"{seen}; {reasons}", remedy)


def doubtful_checks(noise: Noise, registry: Registry, profile: str) -> tuple[str, ...]:
    """Timed checks of a profile that would be INCONCLUSIVE in such noise, each by its own guard."""
    guards = {check.guard for check in registry.checks}
    fails = {guard for guard in guards if noise.reasons(guard)}
    return tuple(
        check.id
        for check in registry.checks
        if check.built and profile in check.budget_s and "timed" in check.kinds and check.guard in fails
    )
