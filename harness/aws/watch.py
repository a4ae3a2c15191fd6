"""Following a run: results come back while it goes on, and once more when its machine has ended."""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from harness.aws.command import Aws
from harness.aws.errors import AwsError
from harness.aws.instances import Instance, end, of_run, remove_alarm

POLL_S: Final = 60.0
SILENCE: Final = timedelta(minutes=20)
"""A machine that has reported nothing for so long after its start never will: no network, or no access."""
_LOOKS: Final = 3
MEASURED: Final = "measured"


@dataclass(frozen=True)
class Status:
    """What the machine said last. state: see boot.sh; exit_code: pytest's, None while it runs."""

    state: str
    exit_code: int | None
    utc: str


@dataclass(frozen=True)
class Outcome:
    """How a run ended. status: None when the machine never reported."""

    status: Status | None
    complete: bool
    """All that the machine has sent was fetched."""

    @property
    def exit_code(self) -> int:
        """0 or 1 when it was measured to the end: nothing or something refuted; else 2."""
        measured = self.status is not None and self.status.state == MEASURED and self.complete
        return self.status.exit_code or 0 if measured and self.status is not None else 2


def read_status(folder: Path, run: str) -> Status | None:
    """The status in a results folder; None without one of this run that can be read."""
    try:
        found = json.loads((folder / "status.json").read_text(encoding="utf-8"))
        if found["run"] != run:
            return None
        return Status(str(found["state"]), found["exit_code"], str(found["utc"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def fetch(aws: Aws, bucket: str, run: str, folder: Path) -> None:
    """Brings what the machine has sent so far into a folder. Raises AwsError."""
    # Without exact timestamps a file that changed and kept its size would not come again.
    aws.call(
        "s3",
        "sync",
        "--only-show-errors",
        "--exact-timestamps",
        f"s3://{bucket}/{run}/out",
        str(folder),
    )


def clear(aws: Aws, bucket: str, run: str) -> None:
    """Removes the alarm of a run and what it has in the bucket. Raises AwsError."""
    remove_alarm(aws, run)
    aws.call("s3", "rm", "--only-show-errors", "--recursive", f"s3://{bucket}/{run}/")


def watch(aws: Aws, bucket: str, run: str, folder: Path) -> Outcome:
    """Follows a run to its end, brings its results, and clears away what it left.

    A call that fails is told and tried again: the machine does not depend on this process. Ctrl-C brings what
    is there and ends the machine. Raises KeyboardInterrupt then, and AwsError for a run that never was.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        _follow(aws, bucket, run, folder)
    except KeyboardInterrupt:
        say(f"interrupted: ending the machine of {run}")
        with suppress(AwsError):
            fetch(aws, bucket, run, folder)
        end(aws, run)
        raise
    return _close(aws, bucket, run, folder)


def _follow(aws: Aws, bucket: str, run: str, folder: Path) -> None:
    told, missed = "", 0
    while True:
        try:
            found = of_run(aws, run)
            fetch(aws, bucket, run, folder)
        except AwsError as error:
            say(f"{error}; the run goes on without it, trying again")
            time.sleep(POLL_S)
            continue
        status = read_status(folder, run)
        if not found and status is None:
            # A machine is not listed in the moment after it was asked for.
            missed += 1
            if missed == _LOOKS:
                raise AwsError(f"{run}: no machine and no results of such a run in {aws.region}")
        elif all(one.gone for one in found):
            return
        elif status is None and _silent(found):
            say(f"nothing was heard from it in {SILENCE.seconds // 60} minutes: it is ended")
            _keep_console(aws, found[0], folder)
            end(aws, run)
            return
        else:
            line = _line(found, status)
            if line != told:
                say(line)
                told = line
        time.sleep(POLL_S)


def _close(aws: Aws, bucket: str, run: str, folder: Path) -> Outcome:
    for attempt in range(5):
        try:
            fetch(aws, bucket, run, folder)
            if read_status(folder, run) is None and not (folder / "console.log").exists():
                for one in of_run(aws, run):
                    _keep_console(aws, one, folder)
            clear(aws, bucket, run)
            return Outcome(read_status(folder, run), complete=True)
        except AwsError as error:
            say(f"{error}; trying again")
            if attempt < 4:
                time.sleep(15)
    say(
        "the machine has ended, its results are still in the bucket:"
        f" `python -m harness.aws watch {run}` brings them"
    )
    return Outcome(read_status(folder, run), complete=False)


def _keep_console(aws: Aws, instance: Instance, folder: Path) -> None:
    """The machine's console, for a machine that never reported; that it cannot be had is no error."""
    with suppress(AwsError):
        text = aws.call("ec2", "get-console-output", "--instance-id", instance.id, "--output", "text")
        (folder / "console.log").write_text(text + "\n", encoding="utf-8")
        say(f"its console is in {folder / 'console.log'}")


def _line(found: list[Instance], status: Status | None) -> str:
    machine = next(one for one in found if not one.gone)
    heard = f"{status.state} since {status.utc}" if status else "no report yet"
    return f"{machine.id} {machine.state} since {machine.launched:%Y-%m-%dT%H:%M:%SZ}: {heard}"


def _silent(found: list[Instance]) -> bool:
    started = max(one.launched for one in found)
    return datetime.now(UTC) - started > SILENCE


def say(text: str) -> None:
    """One line on stderr."""
    print(f"aws: {text}", file=sys.stderr, flush=True)
