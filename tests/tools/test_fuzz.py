"""The tool that runs the C fuzzers: that they see a fault, and its counts, with programs that stand in."""

from __future__ import annotations

import re
import signal
import threading
import time
from pathlib import Path

import pytest

from tools.build_engine import BuildError
from tools.fuzz import run
from tools.fuzz.__main__ import main
from tools.fuzz.run import Runner, Summary, read_summary, write_summary
from tools.fuzz.targets import TARGETS, find_clang


def test_both_fuzzers_find_a_reader_that_does_not_look(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        find_clang()
    except BuildError as error:
        pytest.skip(str(error))
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    code = main(["all", "--blind", "--seconds", "120", "--work", str(tmp_path)])
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    output = capsys.readouterr().out
    assert code == 0, output
    for target in TARGETS:
        said = rf"^{target}: the fault of unchecked_regions was found by [\d,]+ executions .*(broken|ERROR): "
        assert re.search(said, output, re.MULTILINE), output


def standing_in(folder: Path, script: str) -> Runner:
    """A runner whose program is this script of the shell; `$*` are the arguments of libFuzzer."""
    program = folder / "program"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    runner = Runner(TARGETS["cflow"], program, folder / "work")
    runner.prepare()
    return runner


ENDS = """echo '#7\tNEW    cov: 31 ft: 52 corp: 4/60b'
echo 'stat::number_of_executed_units: 9'"""
FINDS = f"""for word; do case $word in -minimize_crash=1) sleep 60;; esac; done
echo x > crashes/crash-1
{ENDS}
echo 'ERROR: AddressSanitizer: SEGV crash-1'
exit 77"""


def test_a_run_adds_up_what_the_program_says(tmp_path: Path) -> None:
    runner, summary, said = standing_in(tmp_path, ENDS), Summary("cflow"), []
    runner.run(summary, 60, 2, said.append, lambda: summary.pieces > 0)
    assert (summary.executions, summary.edges, summary.features, summary.crashes) == (18, 31, 52, [])
    assert read_summary(runner.summary_path, "cflow") == summary
    assert said[0].startswith("cflow: 18 executions")


def test_a_program_that_runs_no_input_is_a_finding(tmp_path: Path) -> None:
    runner, summary = standing_in(tmp_path, "exit 3"), Summary("cflow")
    runner.run(summary, 60, 1, lambda _: None, lambda: bool(summary.crashes))
    assert summary.crashes[0].cause == "exit code 3, no input was run"


def test_a_finding_keeps_its_input_when_reducing_is_stopped(tmp_path: Path) -> None:
    runner, summary, stop = standing_in(tmp_path, FINDS), Summary("cflow"), threading.Event()
    threading.Timer(1.0, stop.set).start()
    started_s = time.monotonic()
    runner.run(summary, 60, 1, lambda _: None, stop.is_set)
    assert time.monotonic() - started_s < 50, "reducing went on"
    (crash,) = summary.crashes
    assert Path(crash.input).read_text() == "x\n"
    assert crash.reduced == crash.input
    assert crash.cause == "ERROR: AddressSanitizer: SEGV crash-1"
    assert runner.still_found(summary) == [crash]
    assert runner.still_found(summary, lambda: True) == []


WAITS = f"""case "$*" in *max_total_time*)
  echo x > crashes/timeout-1
  {ENDS}
  echo 'ERROR: libFuzzer: timeout after 20 seconds'
  echo 'artifact_prefix=crashes/; Test unit written to crashes/timeout-1'
  exit 70;; esac
"""


@pytest.mark.parametrize(("then", "is_slow"), [("exit 0", False), ("while :; do :; done", True)])
def test_what_only_waited_for_a_core_is_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str, is_slow: bool
) -> None:
    monkeypatch.setattr(run, "MOST_S", 1)
    runner, summary = standing_in(tmp_path, WAITS + then), Summary("cflow")
    # Twice: the second time the file may be there already.
    for _ in range(2):
        pieces = summary.pieces
        runner.run(summary, 60, 1, lambda _: None, lambda then=pieces: summary.pieces > then)
    assert [crash.cause for crash in summary.crashes] == 2 * is_slow * [
        "ERROR: libFuzzer: timeout after 20 seconds"
    ]
    assert summary.waited == (0 if is_slow else 2)
    assert (runner.crashes / "timeout-1").exists() is is_slow
    assert len(runner.still_found(summary)) == len(summary.crashes)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"target": "cflow", "crashes": [], "more": 1}'])
def test_a_summary_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "summary.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="summary.json: not a summary of this tool"):
        read_summary(path, "cflow")


def test_a_summary_comes_back_as_it_was_written(tmp_path: Path) -> None:
    path, summary = tmp_path / "summary.json", Summary("cflow", executions=5, cpu_s=1.5)
    write_summary(path, summary)
    assert read_summary(path, "cflow") == summary
    assert read_summary(tmp_path / "none.json", "vflow") == Summary("vflow")


@pytest.mark.parametrize("arguments", [["none"], ["cflow", "--seconds", "0"], ["cflow", "--jobs", "x"]])
def test_bad_arguments_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2


def test_a_compiler_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cflow", "--compiler", "no-such-clang", "--work", str(tmp_path)]) == 2
    assert "no-such-clang" in capsys.readouterr().err
