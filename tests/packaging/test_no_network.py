"""What a command does is watched by the interpreter itself: it neither waits for a network nor asks one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.build_engine import ROOT

#: Audit events that no command may raise which only reads and writes files.
WATCH = """
import sys
SEEN = []
NETWORK_AND_CODE = {"socket", "pickle", "subprocess", "ftplib", "urllib", "smtplib"}
STARTS = {"os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "pty.spawn"}
def watch(event, arguments):
    if event.split(".")[0] in NETWORK_AND_CODE or event in STARTS:
        if event not in ("socket.gethostname",):
            SEEN.append(event)
sys.addaudithook(watch)
"""


def watched(code: str) -> list[str]:
    """The events that a piece of code raises in an interpreter of its own."""
    done = subprocess.run(
        [sys.executable, "-c", f"{WATCH}\n{code}\nprint('seen:', *SEEN)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1].split()[1:]


@pytest.mark.parametrize("command", ["check", "report", "compare"])
def test_commands_that_read_a_run_touch_no_network_and_start_nothing(command: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    shutil.copy(ROOT / "tests/reports/golden/results.json", folder)
    arguments = [command, str(folder)]
    if command == "compare":
        arguments += [str(ROOT / "tests/data/results_sample"), "--out", str(tmp_path / "page.html")]
    assert watched(f"from cli.main import run\nrun({arguments!r})") == []


@pytest.mark.parametrize(
    "code",
    [
        "import socket; socket.socket().bind(('127.0.0.1', 0))",
        "import socket; socket.getaddrinfo('127.0.0.1', 1)",
        "import subprocess; subprocess.run(['true'])",
        "import os; os.system('true')",
        "import os; os.waitpid(os.posix_spawn('/bin/sh', ['sh', '-c', 'true'], {}), 0)",
        "import os; os.waitpid(os.fork() or os._exit(0), 0)",
        "import pickle; pickle.loads(pickle.dumps(print))",
    ],
)
def test_the_watch_sees_what_it_is_for(code: str) -> None:
    assert watched(code)
