"""The reference of a run: its options, from the pytest plugin that declares them, and its profiles."""

from __future__ import annotations

from typing import Any

from claims.conftest import pytest_addoption
from harness.profiles import PROFILES
from tools.docs.markdown import code, escaped, table

GB = 10**9


class _Recorder:
    """Stands for pytest's parser and its group, and keeps what is declared."""

    def __init__(self) -> None:
        self.options: list[tuple[str, dict[str, Any]]] = []

    def getgroup(self, _name: str, _description: str) -> _Recorder:
        return self

    def addoption(self, name: str, **declared: Any) -> None:
        self.options.append((name, declared))


def options_table() -> str:
    """Options of `pytest claims/`."""
    recorder: Any = _Recorder()
    pytest_addoption(recorder)
    return table(("Option", "Meaning"), (_option(name, declared) for name, declared in recorder.options))


def _option(name: str, declared: dict[str, Any]) -> tuple[str, str]:
    value = declared.get("metavar", "|".join(declared.get("choices", ())))
    notes = [declared["help"]]
    if declared.get("action") == "append":
        notes.append("may be given several times")
    if declared.get("choices"):
        notes.append(f"default {declared['default']}")
    return code(f"{name} {value}".strip()), escaped("; ".join(notes))


def profiles_table() -> str:
    """Profiles with what they are for and what must be free."""
    head = ("Profile", "For", "Time on two cores", "Free RAM", "Free disk", "Cores")
    return table(
        head,
        (
            (
                code(one.name),
                escaped(one.purpose),
                f"{one.time_s / 60:g} min" if one.time_s < 3600 else f"{one.time_s / 3600:g} h",
                f"{one.ram_bytes / GB:g} GB",
                f"{one.disk_bytes / GB:g} GB",
                str(one.cores),
            )
            for one in PROFILES
        ),
    )
