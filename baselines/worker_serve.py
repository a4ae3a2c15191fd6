"""The worker's end of the protocol: one JSON object a line, a request in, an answer out.

Requests are {"op": NAME, ...arguments}; answers {"ok": VALUE} or {"error": SENTENCE}. The first answer comes
unasked, when the worker is ready. The end of stdin ends the worker.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from baselines.errors import BaselineError

Handler = Callable[..., Any]


def take_protocol() -> tuple[TextIO, TextIO]:
    """Takes stdin and stdout for the protocol. From then on fd 0 is empty and fd 1 is the log (fd 2).

    Native libraries print to fd 1 as they like: behind this call that lands in the log, never in an answer.
    """
    requests = os.fdopen(os.dup(0), "r", encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    sys.stdout.flush()
    os.dup2(2, 1)
    return requests, answers


def serve(requests: TextIO, answers: TextIO, start: Callable[[], Mapping[str, Handler]]) -> None:
    """Answers requests until they end. `start` makes the handlers, by operation.

    A BaselineError of it or of a handler becomes an error answer; everything else is a defect and ends the
    worker.
    """
    try:
        handlers = start()
    except BaselineError as error:
        _answer(answers, "error", str(error))
        return
    _answer(answers, "ok", None)
    for line in requests:
        request = json.loads(line)
        operation = request.pop("op")
        try:
            _answer(answers, "ok", handlers[operation](**request))
        except BaselineError as error:
            _answer(answers, "error", str(error))


def _answer(answers: TextIO, key: str, value: Any) -> None:
    answers.write(json.dumps({key: value}) + "\n")
