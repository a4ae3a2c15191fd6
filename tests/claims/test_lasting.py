"""Engines that die in the middle of a run: the round is void, the log stays, and there is an end to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from baselines.errors import BaselineError
from claims.lasting import MOST_FAILURES, Lasting, Logs, Started
from harness.paired import Arm, Probes, run_pairs
from harness.rounds import FAILED_COUNTER, Figure, Sample, Side
from harness.statistics import summarise

FAILURE = BaselineError("engine: follow: the worker died (Killed)", ("loading", "cannot allocate"))


class FakeProcess:
    """A process that is only counted."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


class FakeEngine:
    """Fails in the turns whose numbers are given; `refused`: starts that fail, by number."""

    def __init__(self, failing: set[int], refused: set[int] | None = None) -> None:
        self.failing = failing
        self.refused = refused or set()
        self.turns = 0
        self.processes: list[FakeProcess] = []

    def run(self) -> Sample:
        self.turns += 1
        if self.turns in self.failing:
            raise FAILURE
        return Sample(1000, 10, "right")

    def start(self) -> Started:
        self.processes.append(FakeProcess(100 + len(self.processes)))
        if len(self.processes) in self.refused:
            raise FAILURE
        return Started(self.processes[-1], Arm("theirs", self.run, "right"))


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path / "run" / "logs")


def clock() -> Callable[[], int]:
    now = iter(range(0, 10**12, 10**6))
    return lambda: next(now)


def test_a_turn_that_is_lost_voids_its_round_and_the_run_goes_on(logs: Logs) -> None:
    engine = FakeEngine({9})
    theirs = Lasting("Theirs, int4", engine.start, logs)
    ours = Arm("ours", lambda: Sample(1000, 10, "ours"), "ours")
    probes = Probes(lambda: 1.0, lambda: (0, 0), lambda: 0, clock())
    figure = Figure(Side("theirs", "time"), Side("ours", "time"))
    timed = run_pairs([ours, theirs.arm], figure, probes, control_of="ours", seed=1, rounds=18, warmups=0)
    void = [one for one in timed.rounds if one.void]
    (causes,) = (one.void for one in void)
    assert [(cause.rule, cause.arm) for cause in causes] == [("engine_failed", "theirs")]
    assert summarise(timed, 0.95, 0.03).valid >= 18
    assert theirs.pid == 101
    assert [process.closed for process in engine.processes] == [1, 0]
    (kept,) = logs.folder.iterdir()
    assert kept.name == "theirs-int4-1.log"
    assert kept.read_text() == f"{FAILURE}\nloading\ncannot allocate\n"


def test_a_failed_sample_says_so(logs: Logs) -> None:
    sample = Lasting("theirs", FakeEngine({1}).start, logs).arm.run()
    assert (sample.counters, sample.digest, sample.bytes) == ({FAILED_COUNTER: 1}, "", 0)
    assert sample.ns > 0


def test_an_engine_that_fails_again_and_again_is_given_up(logs: Logs) -> None:
    engine = FakeEngine({2, 3, 5})
    arm = Lasting("theirs", engine.start, logs).arm
    assert [arm.run().digest for _ in range(4)] == ["right", "", "", "right"]
    message = rf"^theirs failed {MOST_FAILURES} times: .*out of memory"
    with pytest.raises(BaselineError, match=message) as caught:
        arm.run()
    assert caught.value.log == FAILURE.log
    assert len(list(logs.folder.iterdir())) == MOST_FAILURES
    assert all(str(path) in str(caught.value) for path in logs.folder.iterdir())
    assert engine.processes[-1].closed == 1


@pytest.mark.parametrize("refused", [{1}, {2}])
def test_an_engine_that_does_not_start_is_named(logs: Logs, refused: set[int]) -> None:
    engine = FakeEngine({1}, refused)
    with pytest.raises(BaselineError, match="theirs failed"):
        Lasting("theirs", engine.start, logs).arm.run()
    assert list(logs.folder.iterdir())


def test_logs_of_one_name_do_not_replace_each_other(logs: Logs) -> None:
    paths = [logs.keep("llama.cpp, dense", FAILURE) for _ in range(2)]
    assert [path.name for path in paths] == ["llama.cpp-dense-1.log", "llama.cpp-dense-2.log"]


def test_close_ends_the_process(logs: Logs) -> None:
    engine = FakeEngine(set())
    Lasting("theirs", engine.start, logs).close()
    assert engine.processes[0].closed == 1
