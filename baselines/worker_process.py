"""The client's end of the protocol: a worker in a process of its own, with timeouts and a kept log."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from baselines.errors import BaselineError

_LOG_LINES = 20
_LOG_LINES_IN_MESSAGE = 3
_LOG_TAIL_BYTES = 16_384
_MAX_ANSWER_BYTES = 1 << 24
_CHUNK_BYTES = 1 << 16
_EXIT_TIMEOUT_S = 5.0


def python_environment() -> dict[str, str]:
    """This process's environment for a worker in Python: it finds this project, and NumPy has no threads."""
    root = str(Path(__file__).resolve().parent.parent)
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        # NumPy's own threads would sit beside the engine's.
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }


class WorkerProcess:
    """A worker that speaks the protocol of `worker_serve`. Use as a context manager, or call `close()`.

    `name` stands in messages. `enter` is called in the new process before it runs the command, e.g. to put it
    into a cgroup, whose limit then counts all that it takes. After a death, a timeout, an answer that is
    none, or an interrupted call the worker is gone, and every further call raises BaselineError. An error
    that the worker reports leaves it as it was.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        start_timeout_s: float,
        enter: Callable[[], None] | None = None,
    ) -> None:
        self._name = name
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._pending = bytearray()
        try:
            # A session of its own: Ctrl-C reaches this process alone, which then ends the worker.
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=dict(environment),
                start_new_session=True,
                preexec_fn=enter,
                bufsize=0,
            )
        except OSError as error:
            self._log.close()
            raise BaselineError(f"{name} cannot be started: {command[0]}: {error.strerror}") from error
        except subprocess.SubprocessError as error:  # all that is left of an exception of `enter`
            self._log.close()
            raise BaselineError(f"{name} cannot be started: its process could not be prepared") from error
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        os.set_blocking(self._in.fileno(), False)
        os.set_blocking(self._out.fileno(), False)
        try:
            self._receive("start", time.monotonic() + start_timeout_s, start_timeout_s)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        """Whether calls can still be answered."""
        return not self._in.closed and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._process.pid

    def call(self, operation: str, timeout_s: float, **arguments: Any) -> Any:
        """Sends a request and waits for its answer; arguments and answer are JSON values."""
        if self._in.closed:
            raise BaselineError(f"{self._name}: {operation}: the worker is closed")
        deadline = time.monotonic() + timeout_s
        try:
            self._send(operation, {"op": operation, **arguments}, deadline, timeout_s)
            answer = self._receive(operation, deadline, timeout_s)
        except BaseException:
            # Interrupted between request and answer, it would answer the next call with this one's answer.
            self.close()
            raise
        if "error" in answer:
            raise BaselineError(f"{self._name}: {operation}: {answer['error']}", self.log_tail())
        return answer["ok"]

    def log_tail(self) -> tuple[str, ...]:
        """The last lines that the worker and its libraries logged."""
        if self._log.closed:
            return ()
        end = os.fstat(self._log.fileno()).st_size
        # pread: the worker writes through the same open file, whose position must stay.
        tail = os.pread(self._log.fileno(), _LOG_TAIL_BYTES, max(0, end - _LOG_TAIL_BYTES))
        lines = [line.rstrip() for line in tail.decode("utf-8", "replace").splitlines()]
        return tuple(line for line in lines if line)[-_LOG_LINES:]

    def close(self) -> None:
        """Ends the worker and waits for it. May be called again."""
        if self._log.closed:
            return
        self._in.close()
        if self._process.poll() is None:
            # Not asked to leave: it may hang, and it holds nothing that a clean exit would save.
            self._process.kill()
        self._process.wait()
        self._out.close()
        self._log.close()

    def _send(self, operation: str, request: dict[str, Any], deadline: float, timeout_s: float) -> None:
        data = json.dumps(request).encode() + b"\n"
        while data:
            self._wait(operation, self._in, selectors.EVENT_WRITE, deadline, timeout_s)
            try:
                data = data[os.write(self._in.fileno(), data) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                raise self._death(operation) from None

    def _receive(self, operation: str, deadline: float, timeout_s: float) -> dict[str, Any]:
        searched = 0
        while (end := self._pending.find(b"\n", searched)) < 0:
            searched = len(self._pending)
            self._wait(operation, self._out, selectors.EVENT_READ, deadline, timeout_s)
            chunk = os.read(self._out.fileno(), _CHUNK_BYTES)
            if not chunk:
                raise self._death(operation)
            self._pending += chunk
            if len(self._pending) > _MAX_ANSWER_BYTES:
                raise self._failure(operation, "the answer does not end")
        line = bytes(self._pending[:end])
        del self._pending[: end + 1]
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or len(answer) != 1 or not {"ok", "error"} & set(answer):
            raise self._failure(operation, f"the answer is none: {line[:80].decode(errors='replace')!r}")
        if operation == "start" and "error" in answer:
            raise BaselineError(f"{self._name}: {answer['error']}", self.log_tail())
        return answer

    def _wait(self, operation: str, stream: Any, event: int, deadline: float, timeout_s: float) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(stream, event)
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise self._failure(operation, f"no answer within {timeout_s:g} s")

    def _death(self, operation: str) -> BaselineError:
        try:
            status = self._process.wait(_EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return self._failure(operation, "the worker closed its end without an answer")
        how = f"exit code {status}" if status >= 0 else signal.strsignal(-status) or f"signal {-status}"
        return self._failure(operation, f"the worker died ({how})")

    def _failure(self, operation: str, what: str) -> BaselineError:
        log = self.log_tail()
        last = f"; its log ends: {' | '.join(log[-_LOG_LINES_IN_MESSAGE:])}" if log else ""
        return BaselineError(f"{self._name}: {operation}: {what}{last}", log)
