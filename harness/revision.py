"""Which source this is: commit and dirty flag, from git."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Revision:
    """commit: full hexadecimal id; dirty: tracked files differ from it. Both None outside a git checkout."""

    commit: str | None
    dirty: bool | None


def revision(folder: Path) -> Revision:
    """The revision of the checkout that holds `folder`. Never raises."""
    commit = _git(folder, "rev-parse", "--verify", "HEAD")
    status = _git(folder, "status", "--porcelain", "--untracked-files=no")
    if commit is None or status is None:
        return Revision(None, None)
    return Revision(commit, status != "")


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
