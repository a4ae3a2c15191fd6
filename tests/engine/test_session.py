"""Sessions: options, decode and generate, signals, accounting, schedule."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.enums import Counter, Isa, Layout, Option, PieceKind, Residency, Stream
from engine.errors import ArgumentError, CancelledError, ContextError, UnsupportedError
from engine.geometry import Geometry
from engine.kernels import isa_supported
from engine.model import Model
from engine.session import Sampler, Session
from engine.synth import synthesise
from tests.engine.models import write_random_model

GEOMETRY = Geometry.named("tiny_arch2_4_combined")
PROMPT = [3, 1, 4, 1, 5, 9]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    path = write_random_model(tmp_path_factory.mktemp("session") / "m.cflow", GEOMETRY, seed=2)
    with Model(path) as opened:
        yield opened


@pytest.fixture(scope="module")
def slow_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """Thousands of tokens take seconds on any machine, so that signals find the call in progress."""
    path = tmp_path_factory.mktemp("slow") / "m.cflow"
    synthesise(path, Geometry.parse("d=512,layers=4,vocab=8000,context=4096"))
    with Model(path) as opened:
        yield opened


def test_options_by_name_word_and_value(model: Model) -> None:
    with Session(
        model, threads=2, residency="copy", prefetch_hint="none", isa=Isa.SCALAR, pin=False
    ) as session:
        options = session.options
    assert list(options) == [option.name.lower() for option in Option]
    assert options["threads"] == 2
    assert options["residency"] == Residency.COPY
    assert options["prefetch_hint"] == 0
    assert options["isa"] == Isa.SCALAR
    assert options["pin"] == 0


def test_defaults_are_resolved(model: Model) -> None:
    with Session(model) as session:
        assert session.context == GEOMETRY.context
        assert session.option(Option.LAYOUT) == Layout.TILED
        assert session.threads >= 1
        assert isa_supported(session.isa)
        assert len(session.worker_cpus) == session.threads
        kv, total = session.memory_bytes()
        assert 0 < kv <= total


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"speed": 1}, "unknown session option 'speed'; allowed: isa, threads"),
        ({"isa": "mmx"}, "option isa: 'mmx' found, allowed: scalar, avx2"),
        ({"threads": "two"}, "option threads: an integer is needed, 'two' found"),
        ({"threads": 0}, "threads"),
        ({"context": GEOMETRY.context + 1}, "context"),
    ],
)
def test_wrong_options_are_named(model: Model, options: dict[str, int | str], fault: str) -> None:
    with pytest.raises(ArgumentError, match=fault):
        Session(model, **options)


def test_unsupported_instruction_set(model: Model) -> None:
    missing = [isa for isa in Isa if not isa_supported(isa)]
    if not missing:
        pytest.skip("this CPU runs every instruction set")
    with pytest.raises(UnsupportedError, match=missing[0].name.lower()):
        Session(model, isa=missing[0])


def test_tokens_at_once_or_one_by_one(model: Model) -> None:
    with Session(model) as whole, Session(model) as single:
        at_once = whole.decode(PROMPT)
        for token in PROMPT:
            last = single.decode([token])
        assert np.array_equal(at_once, last)
        assert np.array_equal(at_once, whole.logits())
        assert at_once.dtype == np.float32
        assert at_once.shape == (GEOMETRY.vocab,)
        assert whole.position == single.position == len(PROMPT)


def test_reset_starts_again(model: Model) -> None:
    with Session(model) as session:
        first = session.decode(PROMPT)
        session.decode([7])
        session.reset()
        assert session.position == 0
        assert np.array_equal(session.decode(PROMPT), first)


def test_generate_is_the_greedy_loop(model: Model) -> None:
    with Session(model) as session:
        token, expected = PROMPT[0], []
        for _ in range(12):
            token = int(np.argmax(session.decode([token])))
            expected.append(token)
        session.reset()
        tokens, elapsed = session.generate(PROMPT[0], 12)
        assert tokens.tolist() == expected
        assert elapsed.shape == (12,)
        assert (elapsed > 0).all()


@pytest.mark.parametrize("tokens", [[], [GEOMETRY.vocab], [-1], [1 << 40]])
def test_wrong_tokens_are_refused(model: Model, tokens: list[int]) -> None:
    with Session(model) as session, pytest.raises(ArgumentError):
        session.decode(tokens)


def test_too_many_tokens_change_nothing(model: Model) -> None:
    with Session(model, context=8) as session:
        session.decode([1, 2, 3])
        with pytest.raises(ContextError):
            session.decode([1] * 6)
        with pytest.raises(ContextError):
            session.generate(1, 6)
        assert session.position == 3
        session.decode([1] * 5)


@contextmanager
def alarm(handler: Callable[[], None], first_s: float, every_s: float = 0.0) -> Iterator[None]:
    """Runs `handler` on SIGALRM, once or again and again, inside the block."""
    before = signal.signal(signal.SIGALRM, lambda number, frame: handler())
    try:
        signal.setitimer(signal.ITIMER_REAL, first_s, every_s)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _interrupt() -> None:
    raise KeyboardInterrupt


def test_handlers_that_return_do_not_disturb_the_work(slow_model: Model) -> None:
    calls: list[int] = []
    with Session(slow_model, context=200) as session:
        expected, _ = session.generate(1, 150)
        session.reset()
        with alarm(lambda: calls.append(1), 0.002, 0.002):
            tokens, _ = session.generate(1, 150)
    assert calls
    assert np.array_equal(tokens, expected)


def test_ctrl_c_ends_the_call_and_leaves_a_usable_session(slow_model: Model) -> None:
    with Session(slow_model) as session:
        expected = session.decode(PROMPT)
        for _ in range(3):
            session.reset()
            with pytest.raises(KeyboardInterrupt), alarm(_interrupt, 0.02):
                session.generate(1, 4096)
            assert session.position < 4096
            session.reset()
            assert np.array_equal(session.decode(PROMPT), expected)


class Interrupting:
    """The library, with Ctrl-C before and after chosen functions, as often as the dictionaries say."""

    def __init__(self, library: Any, before: dict[str, int], after: dict[str, int]) -> None:
        self._library, self._before, self._after = library, before, after
        self.interruptions = 0

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._library, name)

        def call(*arguments: Any) -> Any:
            self._perhaps_interrupt(name, self._before)
            result = function(*arguments)
            self._perhaps_interrupt(name, self._after)
            return result

        return call

    def _perhaps_interrupt(self, name: str, left: dict[str, int]) -> None:
        if left.get(name, 0) > 0:
            left[name] -= 1
            self.interruptions += 1
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"cflow_session_wait": 1}, {}),
        ({"cflow_session_wait": 4}, {}),
        ({"cflow_session_wait": 1, "cflow_session_cancel": 3}, {}),
        ({"cflow_session_wait": 1}, {"cflow_session_cancel": 3}),
    ],
)
def test_more_ctrl_c_while_the_work_is_being_ended(
    slow_model: Model, monkeypatch: pytest.MonkeyPatch, before: dict[str, int], after: dict[str, int]
) -> None:
    wanted = sum(before.values()) + sum(after.values())
    with Session(slow_model) as session:
        expected = session.decode(PROMPT)
        library = Interrupting(session._library, dict(before), dict(after))
        monkeypatch.setattr(session, "_library", library)
        session.reset()
        # The handler returns; the first raise comes from the waiting that follows.
        with pytest.raises(KeyboardInterrupt), alarm(lambda: None, 0.02, 0.02):
            session.generate(1, 4096)
        assert library.interruptions == wanted
        session.reset()
        assert np.array_equal(session.decode(PROMPT), expected)


def test_work_that_was_left_behind_is_ended_by_the_next_call(
    slow_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Session(slow_model) as session:
        expected = session.decode(PROMPT)
        session.reset()
        with monkeypatch.context() as patched:
            patched.setattr(session, "_settle", lambda: None)
            with pytest.raises(KeyboardInterrupt), alarm(_interrupt, 0.02):
                session.generate(1, 4096)
        session.reset()
        assert np.array_equal(session.decode(PROMPT), expected)


def test_closing_ends_work_that_was_left_behind(slow_model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(slow_model)
    monkeypatch.setattr(session, "_settle", lambda: None)
    with pytest.raises(KeyboardInterrupt), alarm(_interrupt, 0.02):
        session.generate(1, 4096)
    session.close()
    session.cancel()
    with pytest.raises(ArgumentError, match="the session is closed"):
        session.reset()


def test_cancel_from_another_thread(slow_model: Model) -> None:
    with Session(slow_model) as session:
        canceller = threading.Timer(0.02, session.cancel)
        canceller.start()
        with pytest.raises(CancelledError):
            session.generate(1, 4096)
        canceller.join()
        assert session.position < 4096


def blocked_signals(threads: set[str]) -> list[set[int]]:
    """Numbers of the signals that each of these threads of this process blocks."""
    masks = []
    for thread in threads:
        status = Path(f"/proc/self/task/{thread}/status").read_text()
        mask = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigBlk:"))
        masks.append({bit + 1 for bit in range(64) if mask >> bit & 1})
    return masks


def test_its_threads_leave_signals_to_the_application_but_not_their_own_faults(model: Model) -> None:
    before = set(os.listdir("/proc/self/task"))
    with Session(model, threads=2, residency="direct", reader="threads", pin=False) as session:
        session.decode(PROMPT)
        masks = blocked_signals(set(os.listdir("/proc/self/task")) - before)
    assert len(masks) > 2  # workers, and readers beside them
    faults = {signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGSYS, signal.SIGTRAP}
    for mask in masks:
        assert {signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGUSR1} < mask
        assert not faults & mask


# One worker: of two that meet it at once, the second may end the process while the first is still telling.
CUT_FILE = """
import os, sys
from engine.model import Model
from engine.session import Session
with Model(sys.argv[1]) as model, Session(model, threads=1, residency="mmap") as session:
    os.truncate(sys.argv[1], os.sysconf("SC_PAGE_SIZE"))
    session.generate(1, 5)
"""


@pytest.mark.no_sanitizer
def test_a_fault_of_a_worker_is_told_by_faulthandler(model: Model, tmp_path: Path) -> None:
    path = tmp_path / "cut.cflow"
    shutil.copyfile(model.path, path)
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", CUT_FILE, str(path)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGBUS, done.stderr
    assert "Bus error" in done.stderr and "in generate" in done.stderr


def test_cancel_before_a_call_ends_that_call_only(model: Model) -> None:
    with Session(model) as session:
        session.cancel()
        with pytest.raises(CancelledError):
            session.decode([1])
        assert session.position == 0
        session.decode([1])


def test_counters(model: Model) -> None:
    with Session(model, prompt_batch=1) as session:
        session.decode(PROMPT)
        counters = session.counters()
        assert list(counters) == [counter.name.lower() for counter in Counter]
        assert counters["tokens"] == len(PROMPT)
        # The head, a phase of its own, runs for the last token of a call only.
        assert counters["phases"] == len(PROMPT) * (session.phase_count - 1) + 1
        per_stream = dict.fromkeys(Stream, 0)
        for piece in session.schedule():
            per_stream[piece.stream] += piece.bytes
        for stream, size in per_stream.items():
            times = 1 if stream is Stream.HEAD else len(PROMPT)
            assert counters[f"{stream.name.lower()}_bytes"] == times * size
        session.reset_counters()
        assert session.counters()["tokens"] == 0


def test_schedule_is_a_graph_in_phase_order(model: Model) -> None:
    with Session(model) as session:
        pieces = session.schedule()
        assert [piece.index for piece in pieces] == list(range(len(pieces)))
        assert {piece.kind for piece in pieces} == set(PieceKind)
        for piece in pieces:
            assert 0 <= piece.phase < session.phase_count
            for needed in piece.dependencies:
                assert pieces[needed].phase < piece.phase
        heads = [piece for piece in pieces if piece.layer is None]
        assert [piece.kind for piece in heads] == [PieceKind.HEAD]
        active = GEOMETRY.active_weights()
        for stream in Stream:
            assert sum(piece.weights for piece in pieces if piece.stream is stream) == active[stream]


def test_routing_and_norms(model: Model) -> None:
    with Session(model) as session:
        session.decode(PROMPT)
        experts, weights = session.routing()
        assert experts.shape == weights.shape == (GEOMETRY.layers, GEOMETRY.experts_per_token)
        assert (np.diff(experts, axis=1) > 0).all()
        assert ((experts >= 0) & (experts < GEOMETRY.experts)).all()
        np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-5)
        norms = session.residual_norms()
        assert norms.shape == (GEOMETRY.layers,)
        assert (norms > 0).all()


def test_trace_lies_inside_the_tensors_and_sums_to_the_bytes(model: Model) -> None:
    with Session(model, threads=2) as session:
        session.trace(1 << 14)
        session.decode([1])
        records = np.concatenate([session.trace_records(thread) for thread in range(2)])
        counters = session.counters()
    names = ("attention", "dense", "expert", "router", "head")
    assert int(records[:, 1].sum()) == sum(counters[f"{name}_bytes"] for name in names)
    assert set(records[:, 2].tolist()) <= {0, 1}
    tensors = model.tensors
    for offset, size in records[:, :2].tolist():
        assert any(t.offset <= offset and offset + size <= t.offset + t.bytes for t in tensors)


def test_what_describes_a_token_needs_a_token(model: Model) -> None:
    with Session(model) as session:
        for read in (session.logits, session.residual_norms):
            with pytest.raises(ArgumentError, match="no token yet"):
                read()
        session.decode([1])
        assert np.isfinite(session.logits()).all()
        session.reset()
        with pytest.raises(ArgumentError, match="no token yet"):
            session.logits()


def test_logits_survive_what_is_not_a_token(model: Model) -> None:
    with Session(model) as session:
        expected = session.decode([1])
        with pytest.raises(ArgumentError):
            session.decode([model.vocab])
        np.testing.assert_array_equal(session.logits(), expected)


def test_options_are_reported_as_they_act(tmp_path: Path) -> None:
    path = write_random_model(tmp_path / "dense.cflow", Geometry.named("tiny_dense"), seed=1)
    with (
        Model(path) as dense,
        Session(dense, expert_delay=2, route="pre_dense", dense_delay=1, threads=64) as session,
    ):
        options = session.options
        assert (options["expert_delay"], options["route"], options["dense_delay"]) == (0, 0, 1)
        assert options["pin"] == int(all(cpu >= 0 for cpu in session.worker_cpus))


def test_sampler() -> None:
    logits = np.array([0.0, 3.0, 3.0, 1.0], dtype=np.float32)
    assert Sampler().sample(logits) == 1
    first = [Sampler(temperature=1.0, seed=5).sample(logits) for _ in range(3)]
    assert len(set(first)) == 1
    sampler = Sampler(temperature=1.0, seed=5)
    drawn = [sampler.sample(logits) for _ in range(400)]
    assert drawn[0] == first[0]
    assert set(drawn) == {0, 1, 2, 3}
    narrow = Sampler(temperature=1.0, top_k=2, seed=5)
    assert {narrow.sample(logits) for _ in range(100)} == {1, 2}
    nucleus = Sampler(temperature=1.0, top_p=0.5, seed=5)
    assert {nucleus.sample(logits) for _ in range(100)} == {1, 2}


@pytest.mark.parametrize("settings", [{"temperature": -1.0}, {"temperature": 1.0, "top_p": 1.5}])
def test_sampler_refuses_settings_out_of_range(settings: dict[str, float]) -> None:
    with pytest.raises(ArgumentError):
        Sampler(**settings).sample(np.zeros(4, dtype=np.float32))  # type: ignore[arg-type]
