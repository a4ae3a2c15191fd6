"""The check on another processor: what is missing is named and skipped, what fails is an error."""

import subprocess
import sys
from pathlib import Path

import pytest

from tools import foreign
from tools.build_engine import ROOT
from tools.foreign import AARCH64, run_foreign


@pytest.mark.no_sanitizer
def test_missing_programs_are_named_with_their_packages(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.variant", "aarch64", str(tmp_path)],
        env={"PATH": ""},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert "left out: not installed: aarch64-linux-gnu-gcc, qemu-aarch64 (" in done.stdout
    assert "apt install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user)" in done.stdout
    assert done.stdout.endswith("0 passed, 0 failed, 1 skipped\n"), "the total of .ci/run counts it"


@pytest.mark.parametrize("failing", [0, 1, 2, None])
def test_the_first_failure_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], failing: int | None
) -> None:
    """Native tests on two processors, then pytest: each must pass."""
    commands: list[list[str]] = []

    def run(command: list[str], **settings: object) -> subprocess.CompletedProcess[bytes]:
        commands.append(command)
        return subprocess.CompletedProcess(command, int(len(commands) - 1 == failing))

    monkeypatch.setattr(foreign, "build_engine", lambda *_, **__: tmp_path / "libcflow.so")
    monkeypatch.setattr(foreign.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(foreign.subprocess, "run", run)
    assert run_foreign(AARCH64, tmp_path, []) == (0 if failing is None else 1)
    assert len(commands) == (3 if failing is None else failing + 1)
    assert [command[0] for command in commands] == ["ctest", "ctest", sys.executable][: len(commands)]
    if failing is not None:
        assert "exited with 1" in capfd.readouterr().err
