"""The linter counts right, and a missing tool is a note and no stack trace."""

import subprocess
import sys
from pathlib import Path

import pytest

from tools import lint
from tools.build_engine import ROOT


def fail() -> None:
    raise lint.StepError("a fault\nin two lines")


def skip() -> None:
    raise lint.MissingToolError("frobnicate is not installed")


def test_summary_counts_every_step(capsys: pytest.CaptureFixture[str]) -> None:
    steps = (
        lint.Step("a", lambda: None),
        lint.Step("b", fail),
        lint.Step("c", skip),
        lint.Step("d", lambda: None),
    )
    assert lint.run_steps(steps) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[-1] == "2 passed, 1 failed, 1 skipped"
    assert "c: skipped: frobnicate is not installed" in out
    assert "a fault" in out


def test_skips_do_not_fail(capsys: pytest.CaptureFixture[str]) -> None:
    assert lint.run_steps((lint.Step("c", skip),)) == 0
    assert capsys.readouterr().out.endswith("0 passed, 0 failed, 1 skipped\n")


def test_missing_tools_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(lint.MissingToolError, match="clang-format is not installed"):
        lint.check_c_format()
    with pytest.raises(lint.MissingToolError, match="shellcheck is not installed"):
        lint.check_shell()
    with pytest.raises(lint.MissingToolError, match="gcc is not installed"):
        lint.check_warnings(("gcc",))
    with pytest.raises(lint.MissingToolError, match="no_such_tool is not installed"):
        lint.run_module("no_such_tool", "check")


def test_faults_of_a_tool_are_shown() -> None:
    with pytest.raises(lint.StepError, match="no_such_file"):
        lint.run_module("json.tool", "no_such_file")


def test_shell_scripts_are_found() -> None:
    found = {path.relative_to(ROOT).as_posix() for path in lint.shell_scripts()}
    assert {".ci/run", "tools/preflight.sh", "harness/aws/boot.sh", "harness/aws/setup.sh"} <= found


def test_c_files_are_found() -> None:
    assert ROOT / "engine/include/cflow.h" in lint.c_files()


@pytest.mark.no_sanitizer
@pytest.mark.parametrize("module", ["tools.build_engine", "tools.variant"])
def test_tools_without_cmake_say_so_in_one_line(module: str, tmp_path: Path) -> None:
    arguments = ["simde", str(tmp_path)] if module == "tools.variant" else [str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], env={"PATH": ""}, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "cmake is not installed" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_steps_are_chosen_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = (lint.Step("a", lambda: None), lint.Step("b c", fail), lint.Step("d", skip))
    monkeypatch.setattr(lint, "STEPS", steps)
    assert lint.main(["d", "a"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 0 failed, 1 skipped"
    assert lint.main(["b c"]) == 1
    assert lint.main([]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 1 failed, 1 skipped"


def test_unknown_steps_are_usage_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert lint.main(["ruff check", "ruff"]) == 2
    found = capsys.readouterr()
    assert "no step 'ruff'; steps are ruff check, ruff format" in found.err and found.out == ""
