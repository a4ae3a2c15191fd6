"""The frame of the command: help, usage errors, and how failures become exit codes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli import main
from cli.console import UsageError, one_line, print_json, progress_bar
from engine import native
from engine.enums import Param
from engine.errors import CflowError
from engine.geometry import Geometry
from engine.model import Model
from engine.synth import synthesise
from harness.errors import HarnessError
from tests.cli.conftest import Cflow
from tests.engine.experts import blobs

COMMANDS = [
    "doctor",
    "bench",
    "generate",
    "synth",
    "convert",
    "inspect",
    "baseline",
    "check",
    "report",
    "explain",
]
ROOT = Path(main.__file__).resolve().parent.parent


def test_no_arguments_print_the_help(cflow: Cflow) -> None:
    outcome = cflow()
    assert outcome.code == 2
    for command in COMMANDS:
        assert command in outcome.out


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_an_example(cflow: Cflow, command: str) -> None:
    outcome = cflow(command, "--help")
    assert outcome.code == 0
    assert f"Example: cflow {command}" in outcome.out


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["bench"], ["bench", "--nonsense"], ["generate", "-m", "x", "-n", "many"]]
)
def test_usage_errors_are_one_line(cflow: Cflow, arguments: list[str]) -> None:
    outcome = cflow(*arguments)
    assert outcome.code == 2
    assert outcome.err.startswith("cflow: ")
    assert outcome.err.count("\n") == 1
    assert outcome.out == ""


@pytest.mark.parametrize(
    ("raised", "code", "text"),
    [
        (KeyboardInterrupt(), 130, "cflow: interrupted\n"),
        (OSError(28, "No space left on device", "out.bin"), 2, "cflow: out.bin: No space left on device\n"),
        (UsageError("wrong"), 2, "cflow: wrong\n"),
        (CflowError("broken"), 2, "cflow: broken\n"),
        (HarnessError("broken"), 2, "cflow: broken\n"),
    ],
)
def test_failures_become_a_line_and_a_code(
    cflow: Cflow, monkeypatch: pytest.MonkeyPatch, raised: BaseException, code: int, text: str
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise raised

    monkeypatch.setattr(main, "_invoke", fail)
    outcome = cflow("doctor")
    assert (outcome.code, outcome.err) == (code, text)


def test_text_from_a_file_cannot_command_the_terminal_or_forge_a_line() -> None:
    shown = one_line("x.gguf: tensor \x1b[31mred\ncflow: done\u202e\x9b is missing \u00e9")
    assert shown == "x.gguf: tensor \\x1b[31mred\\ncflow: done\\u202e\\x9b is missing \u00e9"
    long = one_line("x.gguf: " + 10**6 * "n" + " is missing")
    assert len(long) < 2100 and long.startswith("x.gguf: ") and long.endswith(" is missing")


def test_json_holds_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"a\x1b": "b\x7f\x9b2J\u00e9 \\ \n"}
    print_json(value)
    shown = capsys.readouterr().out
    assert json.loads(shown) == value and "\u00e9" in shown
    assert all(sign.isprintable() or sign == "\n" for sign in shown)


def test_the_name_of_a_file_is_no_markup(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    with progress_bar("converting [/bold][link=x].gguf") as progress:
        progress(1, 2)
    assert "[/bold][link=x].gguf" in capsys.readouterr().err


def test_a_defect_of_ours_is_not_hidden(cflow: Cflow, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(main, "_invoke", fail)
    with pytest.raises(ZeroDivisionError):
        cflow("doctor")


def start(*arguments: object) -> subprocess.Popen[str]:
    """The command in a process of its own, as a shell starts it."""
    return subprocess.Popen(
        [sys.executable, "-m", "cli.main", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def test_missing_library_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.ENVIRONMENT_VARIABLE, str(tmp_path / "absent.so"))
    process = start("inspect", tmp_path / "m.cflow")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert out == ""
    assert err.startswith("cflow: ")
    assert err.count("\n") == 1
    assert "absent.so" in err


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that takes minutes to fill its context."""
    path = tmp_path_factory.mktemp("endless") / "m.cflow"
    synthesise(path, Geometry.parse("d=512,layers=4,vocab=8000,context=100000"))
    return path


def test_ctrl_c_ends_generation_with_130(endless: Path) -> None:
    process = start("generate", "-m", endless, "--token-ids", "1", "-n", "100000")
    assert process.stdout is not None
    process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    memory, message = err.splitlines()
    assert " of keys and values for 100000 positions" in memory
    assert message == "cflow: interrupted"


@pytest.mark.parametrize("reader", ["auto", "threads"])
def test_ctrl_c_in_the_middle_of_a_token_that_waits_for_its_experts(moe: Path, reader: str) -> None:
    with Model(moe) as model:
        uses = model.param(Param.LAYERS) * model.param(Param.EXPERTS_PER_TOKEN)
        bytes_per_token = uses * max(size for _, size in blobs(model).values())
    # Half a second for each token, next to all of it waiting.
    options = [f"read_rate={2 * bytes_per_token}", f"reader={reader}"]
    arguments = [word for option in options for word in ("--option", option)]
    process = start(
        "generate", "-m", moe, "--residency", "direct", *arguments, "--token-ids", "1", "-n", "100"
    )
    assert process.stdout is not None
    process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.endswith("cflow: interrupted\n")
    assert "Traceback" not in err


def test_ctrl_c_inside_one_call_ends_with_130(cflow: Cflow, endless: Path) -> None:
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        outcome = cflow("bench", "-m", endless, "-n", "90000")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert (outcome.code, outcome.out, outcome.err) == (130, "", "cflow: interrupted\n")


def test_a_closed_pipe_is_no_error_message(endless: Path) -> None:
    process = start("generate", "-m", endless, "--token-ids", "1", "-n", "100000")
    assert process.stdout is not None
    process.stdout.read(1)
    process.stdout.close()
    assert process.stderr is not None
    err = process.stderr.read()
    assert process.wait(timeout=60) == 128 + signal.SIGPIPE
    (memory,) = err.splitlines()
    assert " of keys and values for 100000 positions" in memory
