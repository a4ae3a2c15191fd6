"""Baselines that come as an npm package with libraries in it: nothing of it runs in Node."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from baselines.recipes import Outcome, Recipe, Say, run

TIMEOUT_S = 600
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
class NpmRecipe(Recipe):
    """An npm package that carries a baseline's libraries. `libraries` is relative to the environment."""

    name: str
    package: str
    version: str
    libraries: Path
    movable: bool = True

    @property
    def specifier(self) -> str:
        """Package and version as npm wants them."""
        return f"{self.package}@{self.version}"

    @property
    def manifest(self) -> Path:
        """The package's own description, relative to the environment."""
        return Path("node_modules") / self.package / "package.json"

    def is_complete(self, environment: Path) -> bool:
        """Whether the package's description and its libraries are there."""
        try:
            description = json.loads((environment / self.manifest).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        version = description.get("version") if isinstance(description, dict) else None
        return version == self.version and any((environment / self.libraries).glob("*.so"))

    def check(self, parent: Path) -> None:
        """Raises BaselineError without npm."""
        if shutil.which("npm") is None:
            raise self.failure("npm, which fetches it, is missing (Debian: apt install npm)")

    def fetch(self, environment: Path, say: Say) -> None:
        """Installs the package. Raises BaselineError: no network, no space, another platform."""
        npm = shutil.which("npm") or "npm"
        options = ["-E", "--no-audit", "--no-fund", "--ignore-scripts"]
        command = [npm, "i", "--prefix", str(environment), *options, self.specifier]
        say(f"npm fetches {self.specifier}")
        done = run(command, TIMEOUT_S, say)
        if done.status is None:
            raise self.failure(f"npm took longer than {TIMEOUT_S} s", done.lines)
        if done.status != 0:
            raise self.failure(_reason(done), done.lines)


def _reason(done: Outcome) -> str:
    code = next((code for code in _NO_NETWORK if code in done.text), None)
    if code is not None:
        return f"npm cannot reach its registry ({code}); a network is needed once"
    if "ENOSPC" in done.text:
        return "no space is left on the disk (ENOSPC)"
    if "EBADPLATFORM" in done.text:
        return "the build is for x86-64 Linux with glibc only (EBADPLATFORM)"
    return f"npm failed with status {done.status}: {done.lines[0] if done.lines else 'it printed nothing'}"
