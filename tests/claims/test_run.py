"""`pytest claims/` as a program: options, exit codes, interruption and resumption, what stays on disk."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import termios
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

import harness
from claims.conftest import refuse_xdist, resuming
from claims.run import REGISTRY_PATH, new_run_folder
from harness.check import check
from harness.profiles import PROFILES
from harness.registry import load_registry
from tests.claims.running import ROOT, command, environment, run_claims

pytestmark = pytest.mark.no_sanitizer
QUICK_CHECKS = ("--only", "7.law", "--only", "7.path")


def test_a_run_records_judges_and_reports(tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = run_claims("--out", str(out), *QUICK_CHECKS)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "7.path REFUTED: exact value" in done.stdout
    assert f"report: {out / 'report.html'}" in done.stdout
    assert (out / "report.html").read_text().lower().startswith("<!doctype html>")
    results = harness.load(out)
    assert results.verdict("7.law")[0] == "SUPPORTED"
    assert results.verdict("7.path")[0] == "REFUTED"
    assert check(out)["problems"] == []


def test_record_only_never_fails_and_strict_fails_on_skips(tmp_path: Path) -> None:
    assert run_claims("--out", str(tmp_path / "a"), "--record-only", *QUICK_CHECKS).returncode == 0
    assert run_claims("--out", str(tmp_path / "b"), "--only", "7.law").returncode == 0
    # No valgrind on the path: NOT MEASURABLE HERE, a skip, which --strict turns into a failure.
    bare = {"PATH": str(tmp_path)}
    lax = run_claims("--out", str(tmp_path / "c"), "--only", "2.l1.cachegrind", env=bare)
    strict = run_claims("--out", str(tmp_path / "d"), "--only", "2.l1.cachegrind", "--strict", env=bare)
    assert (lax.returncode, strict.returncode) == (0, 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--only", "9.nothing"), "no such check or claim"),
        (("--resume",), "--resume needs --out"),
        (("--strict", "--record-only"), "contradict each other"),
        (("--out", "claims/claims.toml/run", "--only", "7.law"), "claims/claims.toml/run: cannot be created"),
    ],
)
def test_usage_and_environment_errors_end_with_2(arguments: tuple[str, ...], words: str) -> None:
    done = run_claims(*arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert words in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_a_folder_with_results_is_not_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(ROOT / "tests/data/results_sample", out)
    before = (out / "results.json").read_bytes()
    done = run_claims("--out", str(out), "--only", "7.law")
    assert done.returncode == 2
    assert "--resume" in done.stdout + done.stderr
    assert (out / "results.json").read_bytes() == before


def test_ctrl_c_keeps_what_was_measured_and_resume_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "run"
    selection = ("--only", "7.law", "--only", "3.speed", "--out", str(out), "--record-only")
    process = subprocess.Popen(
        command(*selection),
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    results = out / "results.json"
    deadline = time.monotonic() + 120
    while not results.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert "Traceback (most recent call last)" not in output
    kept = json.loads(results.read_text())
    measured = {record["id"] for record in kept["checks"]}
    done = run_claims(*selection, "--resume")
    assert done.returncode == 0, done.stdout + done.stderr
    resumed = json.loads(results.read_text())
    assert {record["id"] for record in resumed["checks"]} == {"7.law", "3.speed"}
    assert measured <= {"7.law", "3.speed"}
    assert check(out)["problems"] == []


def test_on_a_terminal_the_display_comes_and_goes(tmp_path: Path) -> None:
    out = tmp_path / "run"
    main, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (40, 120))
    process = subprocess.Popen(
        command("--out", str(out), "--only", "7.law"),
        cwd=ROOT,
        env={**environment(), "TERM": "xterm", "COLUMNS": "120"},
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    printed = b""
    with contextlib.suppress(OSError):  # the terminal is closed when the process has ended
        while chunk := os.read(main, 65536):
            printed += chunk
    os.close(main)
    assert process.wait(timeout=120) == 0
    assert b"\x1b[?25" not in printed  # a killed run leaves a terminal that works: the cursor is never hidden
    text = re.sub(r"\x1b\[[\d;]*m", "", printed.decode())
    begun = text.index("claim 7, Delay-aware schedule: ")
    assert "(1 of 1), about " in text[begun:]
    assert text.index("\x1b[J", begun) < text.index("report: ")


def test_the_command_that_goes_on_names_its_folder_once() -> None:
    given = ["claims/", "--profile", "smoke", "--out=a", "-x", "--out", "b c", "--resume", "-k", "law"]
    config = SimpleNamespace(invocation_params=SimpleNamespace(args=given))
    assert resuming(cast(pytest.Config, config), Path("b c")) == (
        "pytest claims/ --profile smoke -k law --resume --out 'b c'"
    )


@pytest.mark.parametrize("options", [{"numprocesses": 2}, {"numprocesses": "auto"}, {"tx": ["2*popen"]}])
def test_xdist_is_refused_with_the_reason(options: dict[str, object]) -> None:
    with pytest.raises(pytest.exit.Exception, match="cannot share the machine") as refused:
        refuse_xdist(argparse.Namespace(**options))
    assert refused.value.returncode == 2


@pytest.mark.parametrize("options", [{}, {"numprocesses": 0, "tx": []}, {"numprocesses": None}])
def test_xdist_that_is_installed_or_switched_off_is_no_matter(options: dict[str, object]) -> None:
    refuse_xdist(argparse.Namespace(**options))


def test_more_threads_than_cpus_are_cut_with_a_warning(tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = run_claims("--out", str(out), "--threads", "200", "--only", "7.traffic")
    assert done.returncode == 0, done.stdout + done.stderr
    allowed = len(os.sched_getaffinity(0))
    assert f"--threads 200: {allowed} CPUs are allowed here" in done.stdout
    assert harness.load(out).run["options"]["threads"] == allowed


def test_a_full_disk_ends_with_2_and_keeps_the_results(tmp_path: Path) -> None:
    out = tmp_path / "run"
    # No file may grow beyond 1 MB: the model of 7.traffic cannot be written, results.json can.
    limited = "import resource, sys, pytest; resource.setrlimit(resource.RLIMIT_FSIZE, (10**6, 10**6)); "
    limited += (
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); sys.exit(pytest.main(sys.argv[1:]))"
    )
    words = command("--out", str(out), "--only", "3.agree_q8", "--only", "7.traffic")
    done = subprocess.run(
        [words[0], "-c", limited, *words[3:]],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "cflow: 7.traffic: " in done.stdout + done.stderr
    assert harness.load(out).verdict("3.agree_q8")[0] == "SUPPORTED"
    assert harness.load(out).record("7.traffic") is None
    assert not [path.name for path in (tmp_path / "models").iterdir()]


def test_budgets_fit_the_profiles() -> None:
    registry = load_registry(REGISTRY_PATH)
    for profile in PROFILES:
        assert registry.budget_s(profile.name) <= profile.time_s, profile.name


def test_every_built_check_has_a_test() -> None:
    source = "".join(path.read_text() for path in REGISTRY_PATH.parent.glob("test_*.py"))
    for one in load_registry(REGISTRY_PATH).checks:
        assert f'@pytest.mark.check("{one.id}")' in source


def test_the_name_of_a_run_holds_time_and_host() -> None:
    name = new_run_folder(host="a b/c").name
    assert name.endswith("Z-a-b-c")
    assert len(name.split("-")[0]) == len("20260824T000000Z")
