"""`make` on a machine that lacks something: one message that names the package, exit code 2."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.build_engine import ROOT


def preflight(tools: Path, python: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the script with the programs in `tools` and no others."""
    shell = shutil.which("sh")
    assert shell is not None
    return subprocess.run(
        [shell, str(ROOT / "tools/preflight.sh"), python],
        env={"PATH": str(tools), **environment},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder with stand-ins for all that is needed."""
    for name in ("cc", "cmake", "good-python", "gcc-99"):
        program(tmp_path, name, "exit 0")
    return tmp_path


def program(folder: Path, name: str, body: str) -> None:
    """Write an executable shell script."""
    path = folder / name
    path.write_text(f"#!{shutil.which('sh')}\n{body}\n")
    path.chmod(0o755)


def test_complete_machine_passes_silently(machine: Path) -> None:
    done = preflight(machine, "good-python")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("missing", "package"),
    [("cc", "gcc libc6-dev"), ("cmake", "apt install cmake"), ("good-python", "python3")],
)
def test_missing_program_is_named_with_its_package(machine: Path, missing: str, package: str) -> None:
    (machine / missing).unlink()
    done = preflight(machine, "good-python")
    assert done.returncode == 2
    assert done.stderr.startswith("cflow: missing on this machine:")
    assert package in done.stderr
    assert len(done.stderr.strip().splitlines()) == 2


def test_everything_missing_is_one_message(tmp_path: Path) -> None:
    done = preflight(tmp_path, "python3")
    assert done.returncode == 2
    assert done.stderr.count("cflow:") == 1
    assert len(done.stderr.strip().splitlines()) == 4


def test_missing_venv_module(machine: Path) -> None:
    program(machine, "bare-python", 'case "$2" in *ensurepip*) exit 1;; esac')
    done = preflight(machine, "bare-python")
    assert done.returncode == 2
    assert "python3-venv" in done.stderr


def test_old_python_is_named_with_its_version(machine: Path) -> None:
    program(machine, "old-python", '[ "$1" != -V ] || { echo Python 3.9.1; exit 0; }; exit 1')
    done = preflight(machine, "old-python")
    assert done.returncode == 2
    assert "Python 3.9.1" in done.stderr and "3.11" in done.stderr


def test_missing_headers(machine: Path) -> None:
    program(machine, "cc", "exit 1")
    done = preflight(machine, "good-python")
    assert done.returncode == 2
    assert "libc6-dev" in done.stderr


def test_compiler_of_the_environment_is_the_one_looked_for(machine: Path) -> None:
    assert preflight(machine, "good-python", CC="gcc-99").returncode == 0
    done = preflight(machine, "good-python", CC="gcc-98")
    assert done.returncode == 2
    assert "'gcc-98'" in done.stderr


def test_this_interpreter_is_good_enough(machine: Path) -> None:
    assert preflight(machine, sys.executable).returncode == 0
