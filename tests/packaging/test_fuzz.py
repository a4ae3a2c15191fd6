"""The fuzzing tool with programs that only talk like a fuzz target, and the inputs that are kept."""

from __future__ import annotations

import json
import re
import signal
import time
from contextlib import suppress
from pathlib import Path
from threading import Event, Timer

import pytest

from engine.errors import CflowError
from engine.format import read_file
from engine.model import Model
from tools.build_engine import ROOT, BuildError
from tools.fuzz import __main__ as tool
from tools.fuzz import run as run_module
from tools.fuzz.merge import MOST_CORPUS_BYTES, merge_corpus
from tools.fuzz.run import MOST_CRASHES, Crash, Runner, Summary, read_summary, write_summary
from tools.fuzz.seeds import SEEDS, TAIL_BYTES, write_seeds
from tools.fuzz.targets import TARGETS, Target, find_clang

KEPT = sorted((ROOT / "fuzz/corpus").rglob("*.*"))

HEALTHY = """#!/bin/sh
echo "#70 NEW cov: 12 ft: 30 corp: 3/9Kb lim: 65536 exec/s: 9 rss: 30Mb"
echo "#90 DONE cov: 15 ft: 44 corp: 4/9Kb lim: 65536 exec/s: 9 rss: 30Mb"
echo "stat::number_of_executed_units: 90"
date +%N > "$1/found-$$"
sleep 1
"""

CRASHING = """#!/bin/sh
case "$1" in
-minimize_crash=1)
    for one; do case $one in -exact_artifact_path=*) echo x > "${one#*=}";; esac; done
    exit 0;;
esac
for one; do case $one in -artifact_prefix=*) prefix=${one#*=};; esac; done
echo "==7==ERROR: AddressSanitizer: SEGV on unknown address"
echo "Test unit written to ${prefix}crash-$$"
echo xyz > "${prefix}crash-$$"
sleep 0.2
exit 77
"""

# An input is the last argument; a run has none, but a prefix for what it finds.
PICKY = HEALTHY.replace(
    "#!/bin/sh",
    """#!/bin/sh
for last; do :; done
case "$last" in -artifact_prefix=*);; *) grep -q bad "$last"; exit $((1 - $?));; esac""",
)


def runner(folder: Path, script: str, target: Target = TARGETS["cflow"]) -> Runner:
    program = folder / "program"
    program.write_text(script)
    program.chmod(0o700)
    made = Runner(target, program, folder / "work")
    made.prepare()
    return made


def test_seeds_are_those_of_the_repository(tmp_path: Path) -> None:
    for path in write_seeds(tmp_path):
        kept = ROOT / "fuzz/corpus" / path.relative_to(tmp_path)
        assert kept.read_bytes() == path.read_bytes(), f"python -m tools.fuzz seeds would change {kept.name}"


def test_seeds_are_whole_models_of_every_kind(tmp_path: Path) -> None:
    orders, architectures = set(), set()
    for path in KEPT:
        if path.suffix == ".seed":
            copy = tmp_path / "model.cflow"
            data = path.read_bytes()
            copy.write_bytes(data[:-TAIL_BYTES] if path.parent.name == "vflow" else data)
            with Model(copy) as model:
                model.verify()
                orders.add(model.order)
                architectures.add(model.params["architecture"])
            read_file(copy).verify()
    assert len(orders) == 3 and len(architectures) == 3
    assert len({seed.name for seed in SEEDS}) == len(SEEDS)


@pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name}-{path.stem[:24]}")
def test_kept_inputs_open_or_are_refused(tmp_path: Path, path: Path) -> None:
    copy = tmp_path / "input.cflow"
    data = path.read_bytes()
    copy.write_bytes(data[:-TAIL_BYTES] if path.parent.name == "vflow" else data)
    with suppress(CflowError), Model(copy) as model:
        assert model.tensors
        model.verify()
    with suppress(CflowError):
        read_file(copy).verify()


def test_kept_inputs_are_small() -> None:
    for target in TARGETS.values():
        assert 0 < sum(path.stat().st_size for path in target.corpus.iterdir()) <= MOST_CORPUS_BYTES


def test_runs_add_up(tmp_path: Path) -> None:
    own = runner(tmp_path, HEALTHY)
    said: list[str] = []
    for _ in range(2):
        summary = read_summary(own.summary_path, "cflow")
        own.run(summary, 1, 2, said.append)
    summary = read_summary(own.summary_path, "cflow")
    assert (summary.executions, summary.edges, summary.features, summary.pieces) == (360, 15, 44, 2)
    assert summary.corpus_inputs == 4 and summary.crashes == []
    assert "360 executions" in said[-1]


def test_a_finding_is_kept_and_reduced(tmp_path: Path) -> None:
    own = runner(tmp_path, CRASHING)
    summary = Summary("cflow")
    own.run(summary, 1, 1, lambda text: None)
    assert 1 <= len(summary.crashes) <= MOST_CRASHES
    first = summary.crashes[0]
    assert first.cause.endswith("SEGV on unknown address")
    assert Path(first.input).read_text() == "xyz\n" and Path(first.reduced).read_text() == "x\n"
    assert read_summary(own.summary_path, "cflow").crashes == summary.crashes


def test_old_findings_do_not_keep_a_run_from_running(tmp_path: Path) -> None:
    own = runner(tmp_path, CRASHING)
    old = [Crash(f"old-{i}", "", "fixed since") for i in range(MOST_CRASHES)]
    summary = Summary("cflow", crashes=list(old))
    own.run(summary, 1, 1, lambda text: None)
    assert summary.pieces > 0 and summary.crashes[: len(old)] == old
    assert summary.crashes[len(old)].cause.endswith("SEGV on unknown address")


def test_what_was_found_earlier_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tool, "find_clang", lambda: "clang")
    monkeypatch.setattr(tool, "build_targets", lambda folder, compiler, mutant: tmp_path)
    one = tmp_path / "crash-one"
    one.write_text("bad")
    program = tmp_path / "fuzz_cflow"
    program.write_text(PICKY)
    program.chmod(0o700)
    work = tmp_path / "w"
    (work / "cflow").mkdir(parents=True)
    write_summary(
        work / "cflow/summary.json", Summary("cflow", crashes=[Crash(str(one), str(one), "a fault")])
    )
    assert tool.main(["cflow", "--seconds", "1", "--work", str(work)]) == 1
    assert "found earlier and still there: a fault" in capsys.readouterr().out
    one.write_text("fixed since")
    assert tool.main(["cflow", "--seconds", "1", "--work", str(work)]) == 0


def test_a_program_that_fails_without_an_input_is_a_finding(tmp_path: Path) -> None:
    own = runner(tmp_path, "#!/bin/sh\nsleep 1\nexit 3\n")
    summary = Summary("cflow")
    own.run(summary, 1, 1, lambda text: None)
    assert summary.crashes[0].cause == "exit code 3 after 0 executions, no input was kept"
    idle = runner(tmp_path, "#!/bin/sh\nsleep 1\n")
    summary = Summary("cflow")
    idle.run(summary, 1, 1, lambda text: None)
    assert summary.crashes[0].cause == "exit code 0 after 0 executions, no input was kept"


def test_summary_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    for text in ("", "{", "[]", '{"crashes": [{}]}', '{"crashes": [], "bogus": 1}'):
        path.write_text(text)
        with pytest.raises(ValueError, match="summary.json: not a summary"):
            read_summary(path, "cflow")
    write_summary(path, Summary("cflow"))
    assert json.loads(path.read_text())["target"] == "cflow"


def test_merge_takes_the_smallest_while_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.fuzz.targets.ROOT", tmp_path)
    target = TARGETS["cflow"]
    target.corpus.mkdir(parents=True)
    (target.corpus / "old.seed").write_bytes(bytes(MOST_CORPUS_BYTES - 50))
    own = runner(
        tmp_path, '#!/bin/sh\nhead -c 40 /dev/zero > "$2/b"\nhead -c 30 /dev/zero > "$2/a"\n', target
    )
    added, left_out = merge_corpus(own)
    assert [path.name for path in added] == ["a"] and left_out == 1
    assert sorted(path.name for path in target.corpus.iterdir()) == ["a", "old.seed"]
    with pytest.raises(BuildError, match="exited with 5"):
        merge_corpus(runner(tmp_path, "#!/bin/sh\nexit 5\n", target))


@pytest.mark.parametrize("wrong", [["nothing"], ["cflow", "--seconds", "0"], ["cflow", "--jobs", "x"], []])
def test_a_wrong_command_line_exits_with_two(wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        tool.parse(wrong)
    assert caught.value.code == 2


def test_a_compiler_that_is_none_exits_with_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main(["cflow", "--work", str(tmp_path), "--compiler", "no-such-clang"]) == 2
    assert "no-such-clang" in capsys.readouterr().err


def test_exit_codes_and_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tool, "find_clang", lambda: "clang")
    monkeypatch.setattr(tool, "build_targets", lambda folder, compiler, mutant: tmp_path)
    for name, script in (("fuzz_cflow", HEALTHY), ("fuzz_vflow", CRASHING)):
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o700)
    assert tool.main(["all", "--seconds", "1", "--work", str(tmp_path / "w")]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 1 failed"
    assert tool.main(["cflow", "--seconds", "1", "--work", str(tmp_path / "w")]) == 0


def test_a_stop_ends_the_processes_and_keeps_the_counts(tmp_path: Path) -> None:
    script = """#!/bin/sh
trap 'echo "#5 NEW cov: 2 ft: 3 corp: 1/1b"; echo "stat::number_of_executed_units: 5"; exit 72' INT
touch "$1/started"
while :; do sleep 0.05; done
"""
    own = runner(tmp_path, script)
    summary = Summary("cflow")
    own.run(summary, 600, 1, lambda text: None, (own.corpus / "started").exists)
    assert read_summary(own.summary_path, "cflow") == summary
    assert summary.executions == 5 and summary.crashes == [] and summary.pieces == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_stop_a_run(number: signal.Signals) -> None:
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    with tool._stop_on_signals() as stop:
        signal.raise_signal(number)
        assert stop.is_set()
    # The process of a caller, or of these tests, hears Ctrl-C again.
    assert {one: signal.getsignal(one) for one in before} == before


def test_work_is_cut_into_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "PIECE_S", 1)
    own = runner(tmp_path, HEALTHY + 'echo "$*" > "$1/arguments"; sleep 1\n')
    own.run(Summary("cflow"), 2, 1, lambda text: None)
    arguments = (own.corpus / "arguments").read_text()
    assert "-max_total_time=1 " in arguments
    # Else what takes long under load would be taken for a crash.
    assert "-report_slow_units=10000 " in arguments


SLOW_TO_REDUCE = CRASHING.replace(
    "    for one; do case $one in -exact", "    sleep 60\n    for one; do case $one in -exact"
)


def test_a_finding_keeps_its_input_when_reducing_is_stopped(tmp_path: Path) -> None:
    own, summary, stop = runner(tmp_path, SLOW_TO_REDUCE), Summary("cflow"), Event()
    Timer(1.0, stop.set).start()
    started_s = time.monotonic()
    own.run(summary, 60, 1, lambda _: None, stop.is_set)
    assert time.monotonic() - started_s < 50, "reducing went on"
    (crash,) = summary.crashes
    assert Path(crash.input).read_text() == "xyz\n"
    assert crash.reduced == crash.input
    assert "AddressSanitizer: SEGV" in crash.cause
    assert own.still_found(summary) == [crash]
    assert own.still_found(summary, lambda: True) == []


WAITS = """#!/bin/sh
case "$*" in *max_total_time*)
  echo x > crashes/timeout-1
  echo 'stat::number_of_executed_units: 9'
  echo 'ERROR: libFuzzer: timeout after 20 seconds'
  echo 'artifact_prefix=crashes/; Test unit written to crashes/timeout-1'
  exit 70;; esac
"""


@pytest.mark.parametrize(("then", "is_slow"), [("exit 0", False), ("while :; do :; done", True)])
def test_what_only_waited_for_a_core_is_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str, is_slow: bool
) -> None:
    monkeypatch.setattr(run_module, "MOST_S", 1)
    own, summary = runner(tmp_path, WAITS + then), Summary("cflow")
    # Twice: the second time the file may be there already.
    for _ in range(2):
        pieces = summary.pieces
        own.run(summary, 60, 1, lambda _: None, lambda then=pieces: summary.pieces > then)
    assert [crash.cause for crash in summary.crashes] == 2 * is_slow * [
        "ERROR: libFuzzer: timeout after 20 seconds"
    ]
    assert summary.waited == (0 if is_slow else 2)
    assert (own.crashes / "timeout-1").exists() is is_slow
    assert len(own.still_found(summary)) == len(summary.crashes)


def test_both_fuzzers_find_a_reader_that_does_not_look(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        find_clang()
    except BuildError as error:
        pytest.skip(str(error))
    code = tool.main(["all", "--blind", "--seconds", "120", "--work", str(tmp_path)])
    output = capsys.readouterr().out
    assert code == 0, output
    for target in TARGETS:
        said = rf"^{target}: the fault of unchecked_regions was found by [\d,]+ executions .*(broken|ERROR): "
        assert re.search(said, output, re.MULTILINE), output
