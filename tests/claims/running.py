"""Runs `pytest claims/` as a user does, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "claims/", "--profile", "smoke", "-q", *arguments]


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    return {**os.environ, "PYTEST_ADDOPTS": "", **(extra or {})}


def run_claims(*arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        cwd=ROOT,
        env=environment(env),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
