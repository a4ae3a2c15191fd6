"""The small file that a load run writes, so that it can be stopped and gone on with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from harness.results import write_atomically

FORM: Final = 1


@dataclass
class State:
    """settings: must be the same whenever the run goes on. pieces: what each process did. summary: of all."""

    what: str
    settings: dict[str, Any]
    pieces: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Written whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps({"form": FORM, **vars(self)}, indent=1) + "\n")


def resumed(path: Path, what: str, settings: Mapping[str, Any]) -> State:
    """The state in the file, or a new one. Raises ValueError when the file is of another run."""
    if not path.exists():
        return State(what, dict(settings))
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        state = State(str(data["what"]), dict(data["settings"]), list(data["pieces"]), dict(data["summary"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: not a file of a load run: {error!r}") from error
    if data.get("form") != FORM:
        raise ValueError(f"{path}: form is {data.get('form')!r}, allowed: {FORM}")
    wanted = {"what": what, **settings}
    found = {"what": state.what, **state.settings}
    for name in {**wanted, **found}:
        if wanted.get(name) != found.get(name):
            raise ValueError(
                f"{path}: {name} is {found.get(name)!r} there and {wanted.get(name)!r} here; "
                "go on with the same, or name another file"
            )
    return state
