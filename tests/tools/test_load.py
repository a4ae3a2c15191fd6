"""A leak of each kind is seen, a clean body is not blamed, and a stopped run goes on."""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import scipy.stats

from claims.run import SEED
from tools.load import smoke, watch
from tools.load.bodies import Body, decoding, sessions, small_model
from tools.load.command import main
from tools.load.loop import Limits, Turn, repeat
from tools.load.series import fitted, grown, judge
from tools.load.store import State, resumed
from tools.load.watch import Reading, left_groups, look

MIB = 1 << 20


def reading(at: float, rss: float, descriptors: int = 5) -> Reading:
    return Reading(at, round(rss), descriptors, 1, 0, 0)


# ---- slope and judgement ----


def test_the_slope_of_one_piece_is_that_of_scipy() -> None:
    rng = random.Random(1)
    x = [i / 10 for i in range(40)]
    y = [round(1e8 + 3000 * at + rng.gauss(0, 500)) for at in x]
    found = fitted([[reading(at, value) for at, value in zip(x, y, strict=True)]])
    expected = scipy.stats.linregress(x, y)
    reach = scipy.stats.t.ppf(0.975, 38) * expected.stderr
    assert found is not None
    assert found.value == pytest.approx(expected.slope)
    assert found.low == pytest.approx(expected.slope - reach)
    assert found.high == pytest.approx(expected.slope + reach)


def test_pieces_have_levels_of_their_own() -> None:
    """A second process that begins elsewhere is no growth."""
    pieces = [[reading(at, level + 100 * at) for at in range(10)] for level in (5_000_000, 9_000_000)]
    found = fitted(pieces)
    assert found is not None and found.value == pytest.approx(100)


def test_verdicts_of_a_slope() -> None:
    def piece(slope: float, noise: float) -> list[Reading]:
        rng = random.Random(2)
        return [reading(at, 1e7 + slope * at + rng.gauss(0, noise)) for at in range(30)]

    assert judge([piece(0, 10)], 100, 0).outcome == "CLEAN"
    assert judge([piece(200, 10)], 100, 0).outcome == "LEAK"
    assert judge([piece(100, 5000)], 100, 0).outcome == "UNDECIDED"
    assert judge([piece(0, 10)[:5]], 100, 0).outcome == "UNDECIDED"
    # What grows while it warms up is not judged.
    steep = [reading(at, 1e7 + 5000 * min(at, 10)) for at in range(40)]
    assert judge([steep], 100, 0).outcome == "LEAK"
    assert judge([steep], 100, 10).outcome == "CLEAN"


def test_a_count_that_grew_is_a_leak_whatever_memory_does() -> None:
    piece = [reading(at, 1e7, 5 + (at > 20)) for at in range(30)]
    assert grown([piece]) == ("piece 1: descriptors from 5 to 6",)
    assert judge([piece], 100, 0).outcome == "LEAK"
    back = [reading(at, 1e7, 5 + (at == 20)) for at in range(30)]
    assert grown([back]) == ("piece 1: descriptors from 5 to 5, 6 in between",)
    lost = [reading(at, 1e7, 5 - (at > 20)) for at in range(30)]
    assert grown([lost]) == ("piece 1: descriptors from 5 to 4",)


# ---- injected leaks ----


def run(tmp_path: Path, body: Body, runs: int = 200, leak: float = 256) -> State:
    state = State("sessions", {})
    temporary = tmp_path / "tmp"
    temporary.mkdir(exist_ok=True)
    repeat(state, tmp_path / "out.json", body, Limits(runs, 2, leak, 20), temporary, hours=False)
    return state


def turn(number: int) -> Turn:
    return Turn("same", "output", 1, 1000)


def test_nothing_kept_is_clean(tmp_path: Path) -> None:
    state = run(tmp_path, turn, leak=4096)
    assert state.summary["outcome"] == "CLEAN" and state.summary["runs"] == 200
    assert json.loads((tmp_path / "out.json").read_text())["summary"] == state.summary


@contextmanager
def leaking(kind: str, folder: Path) -> Iterator[Body]:
    """A body that keeps something each time."""
    kept: list[object] = []
    stop = threading.Event()

    def memory(number: int) -> None:
        pages = mmap.mmap(-1, 65_536)  # from the system: what the heap has free already would not show
        pages.write(b"x" * 65_536)
        kept.append(pages)

    def descriptors(number: int) -> None:
        kept.append((folder / "file").open("w"))

    def threads(number: int) -> None:
        if number % 20 == 0:
            thread = threading.Thread(target=stop.wait)
            thread.start()
            kept.append(thread)

    def files(number: int) -> None:
        if number % 50 == 0:
            (folder / "tmp" / f"left-{number}").write_text("")

    how: Callable[[int], None] = {
        "memory": memory,
        "descriptors": descriptors,
        "threads": threads,
        "files": files,
    }[kind]

    def body(number: int) -> Turn:
        how(number)
        return turn(number)

    try:
        yield body
    finally:
        stop.set()
        for one in kept:
            if isinstance(one, threading.Thread):
                one.join()
            elif hasattr(one, "close"):
                one.close()


@pytest.mark.parametrize("kind", ["memory", "descriptors", "threads", "files"])
def test_an_injected_leak_is_caught(kind: str, tmp_path: Path) -> None:
    with leaking(kind, tmp_path) as body:
        state = run(tmp_path, body, leak=4096)
    assert state.summary["outcome"] == "LEAK"
    if kind == "memory":
        assert state.summary["slope"]["low"] > 10_000 and state.summary["grown"] == []
    else:
        assert [kind in text for text in state.summary["grown"]] == [True]


def test_an_output_that_changes_is_told(tmp_path: Path) -> None:
    state = run(tmp_path, lambda number: Turn("same", "other" if number == 150 else "output", 1, 1000))
    assert state.summary["outputs_changed"] == 1


# ---- stopping and going on ----


def test_a_stopped_run_goes_on_with_what_it_has(tmp_path: Path) -> None:
    def stops(number: int) -> Turn:
        if number == 60:
            raise KeyboardInterrupt
        return turn(number)

    path = tmp_path / "out.json"
    limits = Limits(200, 2, 1e9, 20)
    with pytest.raises(KeyboardInterrupt):
        repeat(resumed(path, "sessions", {"threads": 1}), path, stops, limits, tmp_path, hours=False)
    state = resumed(path, "sessions", {"threads": 1})
    assert state.summary["runs"] == 60
    repeat(state, path, turn, limits, tmp_path, hours=False)
    assert state.summary["runs"] == 200 and len(state.pieces) == 2
    repeat(state, path, stops, limits, tmp_path, hours=False)  # nothing is left to do
    assert state.summary["runs"] == 200


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("", "not a file"),
        ("{}", "not a file"),
        ('{"form": 2, "what": "sessions", "settings": {}, "pieces": [], "summary": {}}', "form is 2"),
        ('{"form": 1, "what": "decode", "settings": {}, "pieces": [], "summary": {}}', "what is 'decode'"),
        (
            '{"form": 1, "what": "sessions", "settings": {"threads": 9}, "pieces": [], "summary": {}}',
            "threads is 9",
        ),
    ],
)
def test_a_file_of_another_run_is_refused_by_name(content: str, word: str, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=word) as refused:
        resumed(path, "sessions", {"threads": 1})
    assert str(path) in str(refused.value)


@pytest.mark.parametrize(
    "arguments",
    [["sessions", "--count", "0"], ["smoke", "--times", "-1"], ["decode", "--minutes", "0"]],
)
def test_usage_errors_name_the_option(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--out", str(tmp_path / "out.json")])
    assert ended.value.code == 2 and arguments[1] in capsys.readouterr().err


# ---- the engine ----


def test_sessions_come_and_go(tmp_path: Path) -> None:
    path = small_model(tmp_path / "models")
    with sessions(path, 2, SEED) as body:
        state = run(tmp_path, body, runs=120, leak=64 * 1024)
    assert state.summary["grown"] == [] and state.summary["outputs_changed"] == 0
    assert state.summary["outcome"] != "LEAK"


def test_too_few_to_tell_is_not_clean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = tempfile.tempdir
    places = ["--out", str(tmp_path / "out.json"), "--models", str(tmp_path / "models")]
    with pytest.raises(SystemExit) as ended:
        main(["sessions", "--count", "3", *places])
    assert ended.value.code == 1 and "outcome: UNDECIDED" in capsys.readouterr().out
    assert tempfile.tempdir == before, "the command counts the files of a folder of its own"


def test_help_needs_no_library(tmp_path: Path) -> None:
    missing = str(tmp_path / "libcflow.so")
    done = subprocess.run(
        [sys.executable, "-m", "tools.load", "decode", "--help"],
        env={**os.environ, "CFLOW_LIBRARY": missing},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "") and "--way" in done.stdout


@pytest.mark.parametrize("way", ["memory", "direct"])
def test_decoding_holds_what_it_holds(way: str, tmp_path: Path) -> None:
    path = small_model(tmp_path / "models")
    with decoding(path, way, 2, 8) as body:
        state = run(tmp_path, body, runs=120, leak=64 * 1024)
    assert state.summary["grown"] == [] and state.summary["outputs_changed"] == 0
    assert state.summary["outcome"] != "LEAK"
    assert len({text for piece in state.pieces for text in piece["outputs"].values()}) == 1


def test_what_is_looked_at_is_this_process(tmp_path: Path) -> None:
    before = look(0, tmp_path)
    with (tmp_path / "one").open("w"):
        after = look(1, tmp_path)
    assert (after.descriptors, after.files) == (before.descriptors + 1, before.files + 1)
    assert before.threads == threading.active_count() or before.threads > 1


def test_memory_cgroups_of_others_are_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_PARENTS", (tmp_path, tmp_path / "memory"))
    groups = tmp_path / "memory"
    for name in (f"cflow-{os.getpid()}-0", "cflow-1-0", "cflow-1-1", "other"):
        (groups / name).mkdir(parents=True)
    with held_folder(groups / "cflow-1-0"):
        assert look(0, tmp_path).groups == 1
        assert {left.name for left in left_groups()} == {f"cflow-{os.getpid()}-0", "cflow-1-1"}


@contextmanager
def held_folder(folder: Path) -> Iterator[None]:
    """As its maker holds it while it is at work."""
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


# ---- runs of the claims in a row ----

FAKE = """
import json, pathlib, subprocess, sys, tempfile
out = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
number = int(out.name.split("-")[1])
out.mkdir(parents=True)
(out.parent / "models").mkdir(exist_ok=True)
(out.parent / "models" / "model").write_text("kept")
value = 2 if "{what}" == "value" and number == 1 else 1
shown = "SUPPORTED" if "{what}" == "verdict" and number == 1 else None
checks = [{{"id": "1.a", "kind": "counted", "verdict": "SUPPORTED", "value": value, "unit": "bytes"}},
          {{"id": "1.r", "kind": "derived", "verdict": shown, "value": number, "unit": "ms"}},
          {{"id": "1.t", "kind": "timed", "verdict": "SUPPORTED", "value": number, "unit": "ratio"}}]
text = json.dumps({{"checks": checks}})
(out / "results.json").write_text(text[:10] if "{what}" == "torn" and number == 1 else text)
if "{what}" == "file" and number == 1:
    tempfile.mkdtemp()
if "{what}" == "beside" and number == 1:
    (out.parent / "models" / "more").write_text("")
if "{what}" == "process" and number == 1:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(20)"])
sys.exit(3 if "{what}" == "code" and number == 1 else 0)
"""


@pytest.mark.parametrize(
    ("what", "fault"),
    [
        ("nothing", None),
        ("value", "run 1: 1.a: SUPPORTED 2, in the first run SUPPORTED 1"),
        ("verdict", "run 1: 1.r: SUPPORTED, in the first run None"),
        ("torn", "results.json cannot be read"),
        ("file", "temporary file"),
        ("beside", "left behind: file models/more"),
        ("process", "left behind: process"),
        ("code", "run 1: exit code 3"),
    ],
)
def test_what_a_run_leaves_behind_is_told(
    what: str, fault: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smoke, "SETTLE_S", 0.5)
    script = tmp_path / "fake.py"
    script.write_text(FAKE.format(what=what))
    state, path = State("smoke", {}), tmp_path / "out.json"
    command = (sys.executable, str(script))
    smoke.run_smoke(state, path, tmp_path / "runs", 2, command)
    faults = state.summary["faults"]
    if fault is None:
        assert faults == [] and state.summary["outcome"] == "CLEAN"
        smoke.run_smoke(state, path, tmp_path / "runs", 3, command)
        assert state.summary["runs"] == 3
    else:
        assert any(fault in text for text in faults), faults
        assert state.summary["outcome"] == "LEAK"


def test_a_run_that_is_stopped_ends(tmp_path: Path) -> None:
    """It is in a session of its own: what goes on would share the folder with the next run."""
    number = tmp_path / "pid"
    code = (
        "import os, sys, time; print(os.getpid(), file=open(sys.argv[1], 'w'), flush=True); time.sleep(600)"
    )

    def interrupt() -> None:
        while not (number.exists() and number.read_text()):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    stop = threading.Thread(target=interrupt)
    stop.start()
    with pytest.raises(KeyboardInterrupt):
        smoke.one_run(tmp_path / "runs", (sys.executable, "-c", code, str(number)), 0)
    stop.join()
    assert smoke.session_processes(int(number.read_text())) == []


def test_the_claims_themselves_leave_nothing_behind(tmp_path: Path) -> None:
    """A deterministic check, as a process of its own."""
    state = State("smoke", {})
    command = (*smoke.COMMAND, "--only", "1.bytes")
    smoke.run_smoke(state, tmp_path / "out.json", tmp_path / "runs", 1, command)
    assert state.summary == {"outcome": "CLEAN", "runs": 1, "faults": []}
    assert state.pieces[0]["verdicts"]["1.bytes"].startswith("SUPPORTED")


def test_the_commands_show_their_help() -> None:
    for tool in ("tools.load", "tools.alarms"):
        shown = subprocess.run(
            [sys.executable, "-m", tool, "--help"], capture_output=True, text=True, check=False
        )
        assert shown.returncode == 0 and f"python -m {tool}" in shown.stdout
