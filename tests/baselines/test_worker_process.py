"""The protocol between client and worker, with workers that behave and workers that do not."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from baselines.errors import BaselineError
from baselines.worker_process import WorkerProcess

ROOT = Path(__file__).resolve().parents[2]
START_TIMEOUT_S = 60.0
TIMEOUT_S = 60.0
SHORT_S = 0.2

HONEST = """
import os, time
from baselines.errors import BaselineError
from baselines.worker_serve import serve, take_protocol

def refuse():
    raise BaselineError("refused")

def shout():
    print("from Python")
    os.write(1, b"from a library\\n")

def die():
    os.write(2, b"last words\\n")
    os.abort()

handlers = {
    "echo": lambda value: value,
    "refuse": refuse,
    "shout": shout,
    "die": die,
    "leave": lambda: os._exit(3),
    "hang": lambda: time.sleep(3600),
    "stdin": lambda: os.read(0, 1).decode(),
    "defect": lambda: 1 // 0,
}
serve(*take_protocol(), lambda: handlers)
"""


@contextmanager
def worker(code: str) -> Iterator[WorkerProcess]:
    """A worker that runs `code`, and is gone afterwards."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with WorkerProcess("fake", [sys.executable, "-c", code], environment, START_TIMEOUT_S) as process:
        yield process
    assert not process.alive


def test_the_new_process_is_entered_before_its_command(tmp_path: Path) -> None:
    note = tmp_path / "entered"

    def enter() -> None:
        note.write_text(str(os.getpid()))

    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with WorkerProcess(
        "fake",
        [sys.executable, "-c", HONEST],
        environment,
        START_TIMEOUT_S,
        enter=enter,
    ) as process:
        assert note.read_text() == str(process.pid)


def test_a_process_that_cannot_be_entered_is_not_started() -> None:
    def enter() -> None:
        raise PermissionError

    with pytest.raises(BaselineError, match="fake cannot be started: its process could not be prepared"):
        WorkerProcess("fake", [sys.executable, "-c", HONEST], os.environ, START_TIMEOUT_S, enter=enter)


def test_values_go_there_and_back() -> None:
    with worker(HONEST) as process:
        for value in (None, 1, [1.5, "x\ny"], {"a": ["ü"]}):
            assert process.call("echo", TIMEOUT_S, value=value) == value


def test_requests_and_answers_may_be_larger_than_a_pipe() -> None:
    value = list(range(200_000))
    with worker(HONEST) as process:
        assert process.call("echo", TIMEOUT_S, value=value) == value


def test_what_is_printed_lands_in_the_log() -> None:
    with worker(HONEST) as process:
        process.call("shout", TIMEOUT_S)
        assert process.call("echo", TIMEOUT_S, value=1) == 1
        assert "from a library" in process.log_tail()


def test_the_library_cannot_read_requests() -> None:
    with worker(HONEST) as process:
        assert process.call("stdin", TIMEOUT_S) == ""


def test_an_error_answer_leaves_the_worker_alive() -> None:
    with worker(HONEST) as process:
        with pytest.raises(BaselineError, match=r"^fake: refuse: refused$"):
            process.call("refuse", TIMEOUT_S)
        assert process.alive
        assert process.call("echo", TIMEOUT_S, value=1) == 1


@pytest.mark.parametrize(
    ("operation", "sentence"),
    [
        ("die", r"die: the worker died \(Aborted\); its log ends: .*last words"),
        ("leave", r"leave: the worker died \(exit code 3\)"),
        ("defect", r"defect: the worker died \(exit code 1\); its log ends: .*ZeroDivisionError"),
    ],
)
def test_a_death_is_an_error_with_the_end_of_the_log(operation: str, sentence: str) -> None:
    with worker(HONEST) as process:
        with pytest.raises(BaselineError, match=sentence) as raised:
            process.call(operation, TIMEOUT_S)
        assert "\n" not in str(raised.value)
        assert not process.alive
        with pytest.raises(BaselineError, match="the worker is closed"):
            process.call("echo", TIMEOUT_S, value=1)


def test_a_worker_killed_between_calls_is_an_error() -> None:
    with worker(HONEST) as process:
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(BaselineError, match=r"echo: the worker died \(Killed\)"):
            process.call("echo", TIMEOUT_S, value=1)


def test_a_hanging_worker_is_killed() -> None:
    with worker(HONEST) as process:
        with pytest.raises(BaselineError, match=r"hang: no answer within 0\.2 s"):
            process.call("hang", SHORT_S)
        assert not process.alive
        with pytest.raises(ProcessLookupError):
            os.kill(process.pid, 0)


def test_a_worker_that_does_not_read_is_killed() -> None:
    with (
        worker("print('{\"ok\": null}', flush=True); import time; time.sleep(3600)") as process,
        pytest.raises(BaselineError, match=r"echo: no answer within 0\.2 s"),
    ):
        process.call("echo", SHORT_S, value="x" * 1_000_000)


def test_ctrl_c_ends_the_worker() -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with worker(HONEST) as process:
            signal.setitimer(signal.ITIMER_REAL, SHORT_S)
            with pytest.raises(KeyboardInterrupt):
                process.call("hang", TIMEOUT_S)
            assert not process.alive
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(
    "line", ["hello", "{", "[]", "1", '{"okay": 1}', '{"ok": 1, "error": "x"}', "{}", ""]
)
def test_garbage_is_an_error(line: str) -> None:
    code = f"print('{{\"ok\": null}}', flush=True); input(); print({line!r}, flush=True); input()"
    with worker(code) as process:
        with pytest.raises(BaselineError, match="echo: the answer is none"):
            process.call("echo", TIMEOUT_S, value=1)
        assert not process.alive


def test_an_endless_answer_is_an_error() -> None:
    code = "import os\nos.write(1, b'{\"ok\": null}\\n')\nwhile True: os.write(1, b'x' * 65536)"
    with worker(code) as process, pytest.raises(BaselineError, match="the answer does not end"):
        process.call("echo", TIMEOUT_S, value=1)


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("print('hello')", "start: the answer is none: 'hello'"),
        ("import sys; sys.exit('no library')", r"start: the worker died \(exit code 1\); .*no library"),
        ('print(\'{"error": "another version"}\')', "^fake: another version$"),
    ],
)
def test_a_worker_that_does_not_start_is_an_error(code: str, sentence: str) -> None:
    with pytest.raises(BaselineError, match=sentence), worker(code):
        pass


def test_a_start_that_hangs_is_an_error() -> None:
    command = [sys.executable, "-c", "import time; time.sleep(3600)"]
    with pytest.raises(BaselineError, match=r"start: no answer within 0\.2 s"):
        WorkerProcess("fake", command, os.environ, SHORT_S)


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    with pytest.raises(BaselineError, match=r"cannot be started: .*absent: No such file"):
        WorkerProcess("fake", [str(tmp_path / "absent")], os.environ, START_TIMEOUT_S)


def test_closing_twice_is_allowed() -> None:
    with worker(HONEST) as process:
        process.close()
        process.close()


def test_the_worker_ends_with_its_stdin() -> None:
    process = subprocess.run(
        [sys.executable, "-c", HONEST],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        input=b"",
        capture_output=True,
        timeout=TIMEOUT_S,
    )
    assert (process.returncode, process.stdout) == (0, b'{"ok": null}\n')
