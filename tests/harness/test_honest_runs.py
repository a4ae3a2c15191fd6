"""Whatever happens to an honest run, the second opinion finds no fault in it: void rounds of every rule, a
kernel without an account of waits, engines that fail, Ctrl-C in the middle of a round, a resume after a boot.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.check import check
from harness.paired import Arm, Probes, run_pairs
from harness.registry import load_registry
from harness.results import Recorder, RunInfo
from harness.rounds import FAILED_COUNTER, Figure, Sample, Side, Timed
from tests.harness.fake import FakeMachine
from tests.harness.make_sample import MACHINE, SAMPLE_DIR

REGISTRY = load_registry(SAMPLE_DIR / "claims.toml")
CHECKS = ("3.speedup", "6.hint", "8.readahead")
KINDS = ("steal", "bandwidth_probe", "run_queue", "output", "engine_failed", "nothing")
RUN = RunInfo("quick", {"threads": 2, "seed": 1, "only": None}, None, None, "pytest")


@dataclasses.dataclass(frozen=True)
class Course:
    """What happens: to round after round, whether waits are counted, and before which run of an arm Ctrl-C
    comes.
    """

    seed: int
    arms: int
    incidents: tuple[str, ...]
    counted: bool
    ctrl_c: int | None
    wanted: int


COURSES = st.builds(
    Course,
    seed=st.integers(0, 10**6),
    arms=st.integers(2, 4),
    incidents=st.lists(st.sampled_from(KINDS), max_size=20).map(tuple),
    counted=st.booleans(),
    ctrl_c=st.none() | st.integers(0, 80),
    wanted=st.sampled_from([12, 20]),
)


def measured(course: Course, now_ns: int) -> tuple[Timed, int]:
    """The rounds, and the time when they have ended."""
    names = [f"arm {index}" for index in range(course.arms)]
    struck = {
        number: kind if kind in ("steal", "bandwidth_probe") else (kind, names[number % course.arms])
        for number, kind in enumerate(course.incidents)
    }
    machine = FakeMachine(course.seed, struck, now_ns=now_ns)
    runs = count()

    def arm(name: str) -> Arm:
        made = machine.arm(name, 50e6)

        def run() -> Sample:
            if next(runs) == course.ctrl_c:
                raise KeyboardInterrupt
            sample = made.run()
            if struck.get(machine.round) == ("engine_failed", name):
                return Sample(sample.ns, 0, "", counters={FAILED_COUNTER: 1})
            return sample if course.counted else dataclasses.replace(sample, run_delay_ns=None)

        return dataclasses.replace(made, run=run)

    probes = dataclasses.replace(machine.probes(), run_delay_ns=lambda: 0 if course.counted else None)
    assert isinstance(probes, Probes)
    figure = Figure(Side(names[0], "speed"), Side(names[1], "speed"))
    arms = [arm(name) for name in names]
    timed = run_pairs(arms, figure, probes, control_of=names[1], seed=course.seed, rounds=course.wanted)
    return timed, machine.now_ns + 1


def begun(folder: Path, moments: Iterator[int], now: list[int], *, resume: bool) -> Recorder:
    return Recorder.open(
        folder,
        REGISTRY,
        RUN,
        {"mutant": "none"},
        MACHINE,
        resume=resume,
        now=lambda: f"2026-01-01T00:{next(moments) // 60:02}:00Z",
        clock_ns=lambda: now[0],
    )


@given(st.lists(COURSES, min_size=len(CHECKS), max_size=len(CHECKS)), st.booleans())
@settings(max_examples=15)
def test_an_honest_run_has_no_problems(courses: list[Course], boots: bool) -> None:
    """A run goes on after each Ctrl-C, in another process and perhaps after a boot."""
    with tempfile.TemporaryDirectory() as temporary:
        folder, moments, now = Path(temporary), count(step=20), [10**9]
        recorder = begun(folder, moments, now, resume=False)
        for check_id, course in zip(CHECKS, courses, strict=True):
            course = dataclasses.replace(
                course, wanted=REGISTRY.check(check_id).rounds("quick") or course.wanted
            )
            for one in (course, dataclasses.replace(course, ctrl_c=None)):
                started_ns = now[0]
                timed, now[0] = measured(one, started_ns + 1)
                recorder.add(check_id, timed, started_ns=started_ns, command="pytest")
                if not timed.interrupted:
                    break
                assert check(folder)["problems"] == []
                recorder.close()
                now[0] = 10**9 if boots else now[0] + 10**9
                recorder = begun(folder, moments, now, resume=True)
        assert check(folder)["problems"] == []
        recorder.close()
