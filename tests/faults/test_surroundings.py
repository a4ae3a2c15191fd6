"""Machines that lack something or take it away: the same tokens and verdicts, or a sentence and code 2."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import harness
from engine.geometry import Geometry
from engine.synth import synthesise
from harness.check import check
from tests.faults import surroundings
from tests.faults.surroundings import ROOT, python, run

pytestmark = pytest.mark.no_sanitizer
SAMPLE = ROOT / "tests/data/results_sample/results.json"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthesise(tmp_path_factory.mktemp("model") / "m.cflow", Geometry.named("tiny_moe"), 1).path


@pytest.fixture(scope="module")
def expected(model: Path) -> dict[str, Any]:
    return decoded([], model)


def decoded(before: list[str], model: Path, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    done = run([*before, *python("-m", "tests.faults.decode", str(model))], environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["mmap"] == found["copy"] == found["direct"]
    return found


def cflow(*arguments: object) -> list[str]:
    return python("-m", "cli.main", *map(str, arguments))


def sentence(words: list[str], environment: Mapping[str, str] | None = None) -> str:
    """The one line that a command ends with when it cannot do what was asked."""
    done = run(words, environment)
    assert (done.returncode, done.stdout) == (2, ""), done.stdout + done.stderr
    assert done.stderr.startswith("cflow: ") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


# ---- the same tokens ----


def test_without_proc_and_sys(model: Path, expected: dict[str, Any]) -> None:
    found = decoded(surroundings.empty("/proc", "/sys"), model)
    assert found["mmap"] == expected["mmap"]
    assert found["quota"] is None


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOSYS])
def test_without_io_uring_and_perf_events(model: Path, expected: dict[str, Any], code: int) -> None:
    assert decoded(surroundings.forbidden_calls(code), model) == expected


def test_on_one_core(model: Path, expected: dict[str, Any]) -> None:
    found = decoded(surroundings.one_core(), model)
    assert (found["mmap"], found["threads"]) == (expected["mmap"], 1)


def test_more_threads_than_cores_are_cut_with_a_warning(model: Path) -> None:
    words = cflow("generate", "-m", model, "--token-ids", "1,2", "-n", 2, "--threads", 4)
    done = run([*surroundings.one_core(), *words])
    assert done.returncode == 0, done.stderr
    assert "--threads 4 is more than the 1 cores allowed here; using 1" in done.stderr


def test_with_half_a_cpu(model: Path, expected: dict[str, Any]) -> None:
    with surroundings.half_a_cpu() as before:
        found = decoded(before, model)
    assert (found["mmap"], found["threads"], found["quota"]) == (expected["mmap"], 1, 0.5)


@pytest.mark.parametrize(("name", "point"), [("tr_TR.UTF-8", ","), ("de_DE.UTF-8", ","), ("C", ".")])
def test_in_other_locales(
    model: Path, expected: dict[str, Any], tmp_path: Path, name: str, point: str
) -> None:
    environment = {"LC_ALL": "C"} if name == "C" else surroundings.locale_folder(tmp_path, name)
    found = decoded([], model, environment)
    assert found.pop("point") == point  # the locale is really in force
    assert found == {key: value for key, value in expected.items() if key != "point"}


# ---- the same verdicts ----


def test_claims_in_a_place_that_lacks_everything(tmp_path: Path) -> None:
    """No /proc, no /sys, a home and a checkout that cannot be written, filtered calls, Turkish, a clock that
    jumps: the counted verdict, a report, and results that check out.
    """
    home, out = tmp_path / "home", tmp_path / "out"
    for folder in (home, out):
        folder.mkdir()
    environment = {
        **surroundings.locale_folder(tmp_path / "home", "tr_TR.UTF-8"),
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
    }
    before = [
        *surroundings.forbidden_calls(errno.EPERM),
        *surroundings.read_only(home, ROOT),
        *surroundings.empty("/proc", "/sys"),
    ]
    words = python("-m", "pytest", "claims/", "--profile", "smoke", "-q", "-p", "tests.faults.clock")
    done = run([*before, *words, "--only", "7.traffic", "--out", str(out / "run")], environment)
    assert done.returncode == 0, done.stdout + done.stderr
    found = harness.load(out / "run")
    assert found.verdict("7.traffic")[0] == "SUPPORTED"
    created, finished = (datetime.fromisoformat(found.run[name]) for name in ("created_utc", "finished_utc"))
    assert abs(finished - created) > timedelta(hours=12)  # the clock did jump
    assert check(out / "run")["problems"] == []
    assert (out / "run/report.html").exists()


# ---- one sentence ----


def test_doctor_says_what_is_missing() -> None:
    before = [*surroundings.forbidden_calls(errno.EPERM), *surroundings.empty("/proc", "/sys")]
    done = run([*before, *cflow("doctor", "--profile", "smoke", "--no-measure", "--json")])
    assert done.returncode in (0, 2), done.stderr
    states = {one["id"]: one["state"] for one in json.loads(done.stdout)["findings"]}
    assert (states["device_bytes"], states["run_delay"], states["pmu"]) == ("no", "no", "no")
    assert states["quota"] == states["huge_pages"] == "unknown"


def test_a_home_that_cannot_be_written(tmp_path: Path) -> None:
    words = [*surroundings.read_only(tmp_path), *cflow("data", "get", "andersen")]
    said = sentence(words, {"HOME": str(tmp_path), "CFLOW_DATA": ""})
    assert str(tmp_path) in said and "Read-only file system" in said


@pytest.mark.parametrize("words", [("data", "get", "andersen"), ("baseline", "install", "llama.cpp")])
def test_a_user_without_a_home(words: tuple[str, ...]) -> None:
    """As in a container with a number for a user."""
    other = surroundings.no_home()
    environment = {"CFLOW_DATA": "", "CFLOW_BASELINES": ""}
    assert "this user has no home; name a folder in CFLOW_" in sentence([*other, *cflow(*words)], environment)
    assert run([*other, *cflow(words[0], "list")], environment).returncode == 0


LIMITED = """
import resource, sys
from cli.main import run
held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (held + (24 << 20), resource.RLIM_INFINITY))
sys.exit(run(sys.argv[1:]))
"""


def test_a_limit_of_memory(tmp_path: Path) -> None:
    path = synthesise(tmp_path / "m.cflow", Geometry.parse("dense_246m,layers=2,vocab=8192"), 1).path
    words = python("-c", LIMITED, "generate", "-m", str(path), "--token-ids", "1,2", "-n", "2")
    assert "memory" in sentence(words).lower()


def test_a_limit_of_a_cgroup_is_seen_before_memory_is_taken(
    model: Path, expected: dict[str, Any], tmp_path: Path
) -> None:
    """What fits in it gives the same tokens; what does not is refused, and nobody is killed."""
    limit_bytes, positions = 512 << 20, 1 << 22
    wide = synthesise(tmp_path / "wide.cflow", Geometry.parse(f"tiny_moe,context={positions}"), 1).path
    words = cflow("generate", "-m", wide, "--token-ids", "1", "-n", positions)
    with surroundings.memory_of(limit_bytes) as before:
        assert decoded(before, model)["mmap"] == expected["mmap"]
        said = sentence([*before, *words])
    assert f"this process may take {limit_bytes}: option context takes fewer positions" in said


def test_the_parts_of_a_session_count_together(tmp_path: Path) -> None:
    """Keys and values fit, a copy of the weights fits, both do not."""
    limit_bytes, positions = 256 << 20, 10_000
    path = synthesise(tmp_path / "m.cflow", Geometry.parse("dense_246m,context=10001"), 1).path
    kv_bytes = 2 * 16 * 4 * 64 * 2 * positions  # both, layers, heads, values of a head, bytes of one
    assert max(kv_bytes, path.stat().st_size) < limit_bytes < kv_bytes + path.stat().st_size
    words = cflow("generate", "-m", path, "--token-ids", "1", "-n", positions, "--residency", "copy")
    with surroundings.memory_of(limit_bytes) as before:
        said = sentence([*before, *words])
    held = re.search(
        r"copy of the weights: needs (\d+) bytes of memory beside (\d+) of the same session", said
    )
    assert held and int(held[1]) + int(held[2]) > limit_bytes > int(held[1])
    assert int(held[2]) >= kv_bytes and f"this process may take {limit_bytes}" in said


@pytest.mark.parametrize("words", [(), ("--export", "csv")])
def test_a_report_on_a_full_disk(tmp_path: Path, words: tuple[str, ...]) -> None:
    with surroundings.small_disk(tmp_path / "disk", SAMPLE.stat().st_size + (16 << 10)) as disk:
        shutil.copy(SAMPLE, disk)
        said = sentence(cflow("report", disk, *words))
        assert "No space left on device" in said and str(disk) in said
        assert not [name for name in os.listdir(disk) if name.startswith(".")]
        assert (disk / SAMPLE.name).read_bytes() == SAMPLE.read_bytes()


def test_claims_whose_results_cannot_be_written(tmp_path: Path) -> None:
    words = python("-m", "pytest", "claims/", "--profile", "smoke", "-q", "--only", "7.path")
    done = run([*surroundings.files_of(64 << 10), *words, "--out", str(tmp_path / "run")])
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"{tmp_path}/run/results.json: cannot be written: File too large" in done.stdout + done.stderr
    assert os.listdir(tmp_path / "run") == [".results.lock"]
