"""Commit and dirty flag."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.revision import Revision, revision


def git(folder: Path, *arguments: str) -> str:
    settings = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "core.hooksPath=/dev/null"]
    done = subprocess.run(
        ["git", "-C", str(folder), *settings, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_revision(tmp_path: Path) -> None:
    assert revision(tmp_path / "missing") == Revision(None, None)
    git(tmp_path, "init", "-q")
    assert revision(tmp_path) == Revision(None, None)
    (tmp_path / "file").write_text("a")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-q", "-m", "one")
    assert revision(tmp_path) == Revision(git(tmp_path, "rev-parse", "HEAD"), False)
    (tmp_path / "other").write_text("untracked")
    assert revision(tmp_path).dirty is False
    (tmp_path / "file").write_text("b")
    assert revision(tmp_path).dirty is True


def test_no_git_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert revision(tmp_path) == Revision(None, None)
