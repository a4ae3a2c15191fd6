"""Our engine in a process of its own, which `tools.beyond_ram_turns` starts inside a memory cgroup.

Usage: python -m tools.beyond_ram_worker MODEL.cflow
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from baselines.errors import BaselineError
from baselines.worker_serve import Handler, serve, take_protocol
from engine.errors import CflowError
from engine.model import Model
from engine.session import OptionValue, Session


class Engine:
    """The open model and, after `load`, its session. The methods are the operations of the protocol."""

    def __init__(self, path: Path) -> None:
        self._model = Model(path)
        self._session: Session | None = None

    def handlers(self) -> Mapping[str, Handler]:
        """The operations by name."""
        return {
            "load": _told(self.load),
            "feed": _told(self.feed),
            "generate": _told(self.generate),
        }

    def load(self, options: dict[str, OptionValue]) -> dict[str, Any]:
        """Makes the session: its options as resolved, and the bytes that it holds."""
        self._session = Session(self._model, **options)
        return {"options": self._session.options, "memory_bytes": self._session.memory_bytes()[1]}

    def feed(self, tokens: list[int]) -> None:
        """Decodes tokens that are not timed."""
        self._loaded().decode(tokens)

    def generate(self, token: int, n: int) -> dict[str, Any]:
        """Greedy continuation of `token`: ids, nanoseconds of each, and the counters of these tokens."""
        session = self._loaded()
        session.reset_counters()
        tokens, ns = session.generate(token, n)
        return {"tokens": tokens.tolist(), "ns": ns.tolist(), "counters": session.counters()}

    def _loaded(self) -> Session:
        if self._session is None:
            raise BaselineError("no session was loaded")
        return self._session


def _told(operation: Callable[..., Any]) -> Handler:
    """The operation, with the engine's errors as those that the protocol hands on."""

    def run(**arguments: Any) -> Any:
        try:
            return operation(**arguments)
        except CflowError as error:
            raise BaselineError(str(error)) from error

    return run


def main() -> None:
    """Serves the protocol until stdin ends."""
    requests, answers = take_protocol()
    serve(requests, answers, lambda: _told(Engine)(path=Path(sys.argv[1])).handlers())


if __name__ == "__main__":
    main()
