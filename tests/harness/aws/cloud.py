"""An AWS that is none: a cloud in a folder, with one machine and one bucket.

It does what `cloud.json` says and writes down how it was called. `Cloud` is the test's side of it, `FakeAws`
and the program that `install` writes are the CLI's.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.aws.command import Aws

_PROGRAM = """#!{python} -E
import sys
sys.path.insert(0, {root!r})
from tests.harness.aws.cloud import answer
done = answer({folder!r}, sys.argv[1:])
print(done.stdout, end="")
print(done.stderr, end="", file=sys.stderr)
sys.exit(done.returncode)
"""


def answer(folder: str, words: list[str]) -> subprocess.CompletedProcess[str]:
    """What the cloud in that folder says to a command line."""
    here = Path(folder)
    with (here / "calls").open("a") as calls:
        print(json.dumps(words), file=calls)
    state = json.loads((here / "cloud.json").read_text())
    operation = " ".join(words[:2])
    message, times = state["failures"].get(operation, ("", 0))
    said = state["answers"].get(operation)
    if times:
        state["failures"][operation] = (message, times - 1)
    elif operation == "ec2 run-instances":
        tags = option(words, "--tag-specifications")
        state["machine"] = {
            "state": "running",
            "run": tags.split("Value=")[1].split("}")[0],
            "type": option(words, "--instance-type"),
            "launched": state["now"],
        }
        said = "i-1"
    elif operation == "ec2 describe-instances":
        one = state["machine"]
        said = [["i-1", one["state"], one["type"], one["launched"], one["run"]]] if one else []
    elif operation == "ec2 terminate-instances":
        state["machine"]["state"] = "shutting-down"
    elif operation == "s3 sync":
        target = Path(words[words.index("--exact-timestamps") + 2])
        for name, text in state["sent"].items():
            (target / name).write_text(text)
    (here / "cloud.json").write_text(json.dumps(state))
    if times:
        return subprocess.CompletedProcess(words, 254, "", f"{message}\n")
    out = json.dumps(said) if "json" in words else said
    return subprocess.CompletedProcess(words, 0, "" if said is None else f"{out}\n", "")


class FakeAws(Aws):
    """Asks the cloud without starting a process."""

    folder = ""

    def _find(self) -> str:
        return "aws"

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return answer(self.folder, command[1:])


ACCOUNT = "111122223333"


@dataclass(frozen=True)
class Cloud:
    """The cloud behind the `aws` in `folder`."""

    folder: Path

    def put(self, **changes: Any) -> None:
        """Changes its state: machine, sent (files in the bucket), answers, failures, now."""
        path = self.folder / "cloud.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    def fails(self, operation: str, message: str, times: int = 99) -> None:
        """From now on the operation fails with this message, so many times."""
        state = self.state()
        self.put(failures=state["failures"] | {operation: (message, times)})

    def reports(self, state: str, exit_code: int | None = None, *, ended: bool = False, **files: str) -> None:
        """The machine of the run sends this state and these files, and may end."""
        machine = self.state()["machine"]
        status = {
            "run": machine["run"],
            "state": state,
            "exit_code": exit_code,
            "utc": "2026-01-01T00:00:00Z",
        }
        self.put(
            sent={"status.json": json.dumps(status), **files},
            machine=machine | {"state": "terminated" if ended else "running"},
        )

    def state(self) -> Mapping[str, Any]:
        """As it is now."""
        state: Mapping[str, Any] = json.loads((self.folder / "cloud.json").read_text())
        return state

    def calls(self) -> list[list[str]]:
        """The arguments of each call so far."""
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def operations(self) -> list[str]:
        """The first two words of each call so far."""
        return [" ".join(words[:2]) for words in self.calls()]


def make_cloud(folder: Path, now: str) -> Cloud:
    """An empty cloud at the time `now`, in a new folder."""
    folder.mkdir()
    answers = {
        "sts get-caller-identity": {"Account": ACCOUNT},
        "service-quotas get-service-quota": 64.0,
        "ec2 describe-instance-type-offerings": ["us-east-1"],
        "ec2 describe-images": ["ami-1", "/dev/xvda"],
        "ec2 get-console-output": "no network",
    }
    state = {"machine": None, "sent": {}, "answers": answers, "failures": {}, "now": now}
    (folder / "cloud.json").write_text(json.dumps(state))
    return Cloud(folder)


def install(cloud: Cloud, root: Path) -> None:
    """Writes an executable `aws` into the cloud's folder. root: of this checkout."""
    program = cloud.folder / "aws"
    program.write_text(_PROGRAM.format(python=sys.executable, root=str(root), folder=str(cloud.folder)))
    program.chmod(0o755)


@dataclass
class Clock:
    """What happens while somebody sleeps: one event per sleep; after the last a sleep is a fault."""

    events: list[Callable[[], None]] = field(default_factory=list)

    def sleep(self, _seconds: float) -> None:
        """The next event."""
        assert self.events, "it sleeps although nothing is going to happen"
        self.events.pop(0)()


@dataclass(frozen=True)
class Outcome:
    """What a command printed and its exit code."""

    code: int
    out: str
    err: str


Command = Callable[..., Outcome]


def nothing() -> None:
    """An event that changes nothing."""


def option(call: Sequence[str], name: str) -> str:
    """The value after an option of a call."""
    return call[call.index(name) + 1]
