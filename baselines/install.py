"""Environments of the baselines: fetched once into a cache folder, complete or absent.

The folder is `~/.cache/cflow-claims/baselines/NAME`; the environment variable `CFLOW_BASELINES` names another
parent. What is fetched is a published build of an exact version; nothing of it is imported by this process.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from baselines.errors import BaselineError

ENVIRONMENT_VARIABLE = "CFLOW_BASELINES"
LLAMACPP = "llama.cpp"

_INSTALL_TIMEOUT_S = 600
_NO_NETWORK = (
    "EAI_AGAIN",
    "ECONNREFUSED",
    "ECONNRESET",
    "ENETUNREACH",
    "ENOTFOUND",
    "ERR_SOCKET_TIMEOUT",
    "ETIMEDOUT",
)


@dataclass(frozen=True)
class Recipe:
    """An npm package that carries a baseline's libraries. `libraries` is relative to the environment."""

    package: str
    version: str
    libraries: Path

    @property
    def specifier(self) -> str:
        """Package and version as npm wants them."""
        return f"{self.package}@{self.version}"

    @property
    def manifest(self) -> Path:
        """The package's own description, relative to the environment."""
        return Path("node_modules") / self.package / "package.json"


RECIPES = {
    LLAMACPP: Recipe(
        package="@node-llama-cpp/linux-x64",
        version="3.22.1",
        libraries=Path("node_modules/@node-llama-cpp/linux-x64/bins/linux-x64"),
    )
}


def recipe(name: str) -> Recipe:
    """How a baseline is installed. Raises BaselineError for a name that does not exist."""
    try:
        return RECIPES[name]
    except KeyError:
        raise BaselineError(f"unknown baseline {name!r}; allowed: {', '.join(RECIPES)}") from None


def folder() -> Path:
    """The folder that holds one environment per baseline; it need not exist."""
    given = os.environ.get(ENVIRONMENT_VARIABLE)
    return Path(given).absolute() if given else Path.home() / ".cache/cflow-claims/baselines"


def installed(name: str) -> Path | None:
    """The environment of a baseline, or None when the version that is needed is not there."""
    path = folder() / name
    return path if _is_complete(path, recipe(name)) else None


def libraries(name: str) -> Path:
    """The folder with a baseline's libraries. Raises BaselineError that says how to install it."""
    environment = installed(name)
    if environment is None:
        raise BaselineError(f"{name} is not installed: run `cflow baseline install {name}`")
    return environment / recipe(name).libraries


def install(name: str) -> tuple[Path, bool]:
    """Fetches a baseline unless it is there: its environment, and whether it was fetched now.

    The environment appears under its name only when it is complete. Raises BaselineError: no npm, no network,
    no space, another platform.
    """
    needed = recipe(name)
    parent = folder()
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with _lock(parent / f".{name}.lock"):
            present = installed(name)
            if present is not None:
                return present, False
            return _install_locked(name, needed, parent), True
    except OSError as error:
        raise BaselineError(
            f"{name} was not installed: {error.filename or parent}: {error.strerror or error}"
        ) from error


def _install_locked(name: str, needed: Recipe, parent: Path) -> Path:
    prefix = f".{name}."
    for left in parent.glob(f"{prefix}*.tmp"):  # of a try that was killed: we hold the lock
        shutil.rmtree(left)
    work = Path(tempfile.mkdtemp(prefix=prefix, suffix=".tmp", dir=parent))
    try:
        fresh = work / "new"
        fresh.mkdir()
        _npm(name, needed, fresh)
        if not _is_complete(fresh, needed):
            raise BaselineError(
                f"{name} was not installed: npm reported success, but {needed.specifier} is not complete"
            )
        target = parent / name
        if target.exists():
            target.rename(work / "old")
        fresh.rename(target)
        return target
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _is_complete(environment: Path, needed: Recipe) -> bool:
    try:
        description = json.loads((environment / needed.manifest).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    version = description.get("version") if isinstance(description, dict) else None
    return version == needed.version and any((environment / needed.libraries).glob("*.so"))


def _npm(name: str, needed: Recipe, prefix: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise BaselineError(
            f"{name} was not installed: npm, which fetches it, is missing (Debian: apt install npm)"
        )
    command = [npm, "i", "--prefix", str(prefix), "-E", "--no-audit", "--no-fund", "--ignore-scripts"]
    try:
        done = subprocess.run(
            [*command, needed.specifier],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_INSTALL_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise BaselineError(
            f"{name} was not installed: npm took longer than {_INSTALL_TIMEOUT_S} s"
        ) from None
    if done.returncode != 0:
        lines = tuple(line for line in done.stderr.splitlines() if line.strip())
        raise BaselineError(f"{name} was not installed: {_npm_reason(done.returncode, lines)}", lines)


def _npm_reason(status: int, lines: tuple[str, ...]) -> str:
    text = "\n".join(lines)
    code = next((code for code in _NO_NETWORK if code in text), None)
    if code is not None:
        return f"npm cannot reach its registry ({code}); a network is needed once"
    if "ENOSPC" in text:
        return "no space is left on the disk (ENOSPC)"
    if "EBADPLATFORM" in text:
        return "the build is for x86-64 Linux with glibc only (EBADPLATFORM)"
    return f"npm failed with status {status}: {lines[0] if lines else 'it printed nothing'}"


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Holds a lock against other installations of the same baseline; waits for them."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
