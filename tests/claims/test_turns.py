"""Turns of the engines: what is fed, what is timed, what is checked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from claims.against import warm_up_arms
from claims.models import from_gguf
from claims.turns import STREAMS, Course, Turn, engine_arm, greedy_course, llamacpp_arm
from engine.model import Model
from engine.session import Session
from harness.paired import Arm
from harness.rounds import IDLE_CPU_COUNTER, Sample
from tests.claims.fake_llamacpp import NO_PROCESS, FakeLlamaCpp
from tests.engine.gguf_files import LlamaGguf

PROMPT = (3, 14, 15, 9)
TOKENS = 5


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return LlamaGguf(seed=3, experts=4).write(tmp_path_factory.mktemp("turns") / "m.gguf")


@pytest.fixture
def session(gguf: Path) -> Iterator[Session]:
    with Model(from_gguf(gguf.parent, gguf)) as model, Session(model, threads=1, context=9) as opened:
        yield opened


@pytest.fixture
def course(session: Session) -> Course:
    return greedy_course(session, PROMPT, TOKENS)


def turn(arm: Arm) -> Turn:
    sample = arm.run()
    assert isinstance(sample, Turn)
    return sample


def test_the_course_is_greedy(session: Session, course: Course) -> None:
    session.reset()
    logits = session.decode(PROMPT)
    for token, chosen in zip(course.tokens, course.chosen, strict=True):
        assert token == np.argmax(logits)
        logits = session.decode([token])
        assert chosen == np.argmax(logits)
    assert (len(course.tokens), course.context) == (TOKENS, len(PROMPT) + TOKENS)


def test_a_turn_of_ours(session: Session, course: Course) -> None:
    arm = engine_arm("ours", session, course, [NO_PROCESS])
    found, again = turn(arm), turn(arm)
    assert found.digest == again.digest == arm.expected_digest
    assert session.position == course.context
    assert (len(found.token_ns), sum(found.token_ns), found.work) == (TOKENS, found.ns, TOKENS)
    assert found.bytes == again.bytes > 0
    assert {f"{name}_ns" for name in STREAMS} <= found.counters.keys()
    assert found.counters[IDLE_CPU_COUNTER] == 0
    assert found.prompt is not None
    assert (found.prompt.work, found.prompt.digest) == (len(PROMPT), found.digest)
    assert found.prompt.ns > 0
    assert found.prompt.bytes > 0
    assert arm.resident == (1.0, 1.0) and found.resident == 1.0


def test_a_kernel_that_counts_no_waiting(
    session: Session, course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "run_delays_ns", lambda: None)
    found = turn(engine_arm("ours", session, course))
    assert found.prompt is not None
    assert (found.run_delay_ns, found.prompt.run_delay_ns) == (None, None)


def test_copied_weights_need_no_page_cache(gguf: Path, course: Course) -> None:
    with (
        Model(from_gguf(gguf.parent, gguf)) as model,
        Session(model, threads=1, context=9, residency="copy") as copied,
    ):
        arm = engine_arm("ours", copied, course)
        assert (arm.resident, turn(arm).resident) == (None, None)


def test_an_engine_that_does_not_sleep_is_seen(session: Session, course: Course) -> None:
    busy = engine_arm("ours", session, course, [os.getpid()])  # this very process works
    assert turn(busy).counters[IDLE_CPU_COUNTER] > 0


@pytest.mark.parametrize("mmap", [True, False])
def test_a_turn_of_another_engine_takes_our_tokens(gguf: Path, course: Course, mmap: bool) -> None:
    kind = type("Fresh", (FakeLlamaCpp,), {"loads": []})
    with kind() as baseline:
        settings = {"context": 9, "cpus": [0], "flash_attention": True, "poll": 0, "repack": True}
        baseline.load(gguf, 1, mmap=mmap, **settings)
        arm = llamacpp_arm("theirs", baseline, gguf, course, 100.5)
        found = turn(arm)
        assert (arm.resident, found.resident) == (((1.0, 1.0), 1.0) if mmap else (None, None))
        assert found.digest == arm.expected_digest
        assert (found.bytes, found.work, len(found.token_ns)) == (502, TOKENS, TOKENS)
        assert found.prompt is not None and found.prompt.work == len(PROMPT)
        assert kind.slept == 2
        other = Course(PROMPT, tuple(reversed(course.tokens)), course.chosen)
        assert llamacpp_arm("theirs", baseline, gguf, other, 100.5).expected_digest != arm.expected_digest


@pytest.mark.parametrize(
    ("times", "runs", "steady"),
    [([100, 102], 2, True), ([200, 100, 101], 3, True), ([100, 104, 100, 104], 4, False)],
)
def test_the_warm_up_ends_when_two_runs_agree(times: list[int], runs: int, steady: bool) -> None:
    left = iter(times)
    arm = Arm("a", lambda: Sample(next(left), 0, ""), "")
    found = warm_up_arms([arm])
    assert (found["runs"], found["steady"]) == (runs, steady)
    assert not list(left)
