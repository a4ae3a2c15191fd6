"""Baselines that are Python packages: an environment of their own, every package at an exact version."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from baselines.recipes import Outcome, Recipe, Say, run

TIMEOUT_S = 3600
CHECK_TIMEOUT_S = 600

_MARKER = "cflow-complete.json"
_NO_NETWORK = (
    "Temporary failure in name resolution",
    "Name or service not known",
    "Network is unreachable",
    "Connection refused",
    "NewConnectionError",
    "ConnectTimeoutError",
    "ProxyError",
    "Read timed out",
)
_NO_SPACE = ("No space left on device", "[Errno 28]")


@dataclass(frozen=True)
class VenvRecipe(Recipe):
    """Packages from a Python package index.

    `extras` go with the package, `constraints` pins all that it draws in, `removed` are uninstalled again.
    `probe` is a program that proves that the package runs here; `hint` says what is likely missing when it
    does not. `needed_bytes`: free space wanted before anything starts. `pythons`: versions that fit. `torch`:
    the CPU build that pip may not find; the message then says where it is.
    """

    name: str
    package: str
    version: str
    extras: str
    constraints: Path
    removed: tuple[str, ...]
    probe: str
    hint: str
    needed_bytes: int
    pythons: tuple[tuple[int, int], ...]
    torch: str
    movable: bool = False

    @property
    def specifier(self) -> str:
        """Package, extras and version as pip wants them."""
        return f"{self.package}{self.extras}=={self.version}"

    def python(self, environment: Path) -> Path:
        """The environment's interpreter."""
        return environment / "bin/python"

    def is_complete(self, environment: Path) -> bool:
        """Whether the marker, written last, says that this very recipe ran to its end."""
        try:
            marker = json.loads((environment / _MARKER).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        return bool(marker == self._marker()) and os.access(self.python(environment), os.X_OK)

    def check(self, parent: Path) -> None:
        """Raises BaselineError without a fitting Python or enough space for this user."""
        find_python(self)
        state = os.statvfs(parent)
        free_bytes = state.f_bavail * state.f_frsize
        if free_bytes < self.needed_bytes:
            raise self.failure(
                f"{parent} has {free_bytes / 1e9:.1f} GB free, {self.needed_bytes / 1e9:.1f} GB are needed; "
                "the environment variable CFLOW_BASELINES names another folder"
            )

    def fetch(self, environment: Path, say: Say) -> None:
        """Makes the environment, installs, uninstalls what breaks it, proves that it runs.

        Raises BaselineError: no network, no space, no CPU build of PyTorch, pip failed, or it does not run.
        """
        python = str(self.python(environment))
        temporary = environment / "tmp"  # here, where space was checked, and where it goes with the rest
        pip = [python, "-m", "pip", "--disable-pip-version-check", "--no-input"]
        self._step([find_python(self), "-m", "venv", str(environment)], "venv", say)
        temporary.mkdir()
        settings = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": "", "PYTHONNOUSERSITE": "1"}
        options = ["--no-cache-dir", "--progress-bar", "off", "-c", str(self.constraints)]
        self._step([*pip, "install", *options, self.specifier], "pip", say, settings)
        self._step([*pip, "uninstall", "-y", *self.removed], "pip", say, settings)
        say("starting it once")
        done = run([python, "-c", self.probe], CHECK_TIMEOUT_S, say, settings)
        if done.status != 0:
            last = done.lines[-1] if done.lines else "it printed nothing"
            raise self.failure(f"it does not run here: {last}; {self.hint}", done.lines)
        shutil.rmtree(temporary)
        self.mark_complete(environment)

    def mark_complete(self, environment: Path) -> None:
        """Says that this recipe ran to its end there; what `is_complete` looks for."""
        marker = environment / f".{_MARKER}"
        marker.write_text(json.dumps(self._marker()), encoding="utf-8")
        marker.replace(environment / _MARKER)

    def _marker(self) -> dict[str, object]:
        return {"specifier": self.specifier, "removed": list(self.removed)}

    def _step(self, command: list[str], what: str, say: Say, settings: dict[str, str] | None = None) -> None:
        done = run(command, TIMEOUT_S, say, settings)
        if done.status is None:
            raise self.failure(f"{what} took longer than {TIMEOUT_S} s", done.lines)
        if done.status != 0:
            raise self.failure(self._reason(what, done), done.lines)

    def _reason(self, what: str, done: Outcome) -> str:
        if any(sign in done.text for sign in _NO_SPACE):
            return "no space is left on the disk"
        if any(sign in done.text for sign in _NO_NETWORK):
            return f"{what} cannot reach its package index; a network is needed once"
        if f"No matching distribution found for {self.torch}" in done.text:
            return (
                f"pip does not find {self.torch}, the CPU build of PyTorch: give PyTorch's own index for CPU "
                "builds in the environment variable PIP_EXTRA_INDEX_URL (or PIP_INDEX_URL)"
            )
        if what == "venv" and "ensurepip" in done.text:
            return "this Python lacks ensurepip, which makes environments (Debian: apt install python3-venv)"
        errors = [line for line in done.lines if line.startswith("ERROR")]
        said = errors or list(done.lines[-1:]) or ["it printed nothing"]
        return f"{what} failed with status {done.status}: {said[0]}"


def find_python(recipe: VenvRecipe) -> str:
    """An interpreter of a version that fits: this one, else the newest on PATH. Raises BaselineError."""
    if sys.version_info[:2] in recipe.pythons:
        return sys.executable
    for major, minor in sorted(recipe.pythons, reverse=True):
        found = shutil.which(f"python{major}.{minor}")
        if found is not None:
            return found
    versions = ", ".join(f"{major}.{minor}" for major, minor in recipe.pythons)
    raise recipe.failure(f"it needs Python {versions}, none of which is on PATH")
