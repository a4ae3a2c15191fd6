"""boot.sh: however the run ends, results are sent and the machine is shut down."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.aws.plan import Plan, make_plan
from harness.aws.userdata import Places, user_data

pytestmark = [
    pytest.mark.no_sanitizer,
    pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed"),
]

_AWS = """#!/bin/sh
echo "aws $*" >>"{log}"
case "$1 $2" in
"s3 cp") test -e "{here}/bundle" && echo bundle >"${{7}}" ;;
"s3 sync")
    for folder in "$@"; do case $folder in {data}/*) cp -r "$folder/." "{here}/sent" ;; esac; done ;;
esac
"""
_GIT = """#!/bin/sh
for target in "$@"; do :; done
mkdir -p "$target/harness/aws" "$target/.venv/bin" "$target/.tox/claims/bin"
cp "{here}/setup.sh" "$target/harness/aws/setup.sh"
cp "{here}/tox" "$target/.venv/bin/tox"
cp "{here}/cflow" "$target/.tox/claims/bin/cflow"
"""


@dataclass(frozen=True)
class Box:
    """A machine in a folder. Its programs write what they were called with into `log`."""

    folder: Path
    plan: Plan

    def program(self, name: str, body: str, folder: str = "bin") -> None:
        """An executable shell script."""
        path = self.folder / folder / name
        path.write_text(f"#!/bin/sh\n{body}\n" if not body.startswith("#!") else body)
        path.chmod(0o755)

    def boot(self) -> None:
        """Runs the user data to its end."""
        places = Places(
            log=self.folder / "machine.log",
            source=self.folder / "source",
            data=self.folder / "data",
            scripts=self.folder / "bin",
            per_boot=self.folder / "per-boot",
        )
        script = self.folder / "user-data.sh"
        script.write_text(user_data(self.plan, places))
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        subprocess.run(
            ["bash", str(script)],
            env={"PATH": path, "HOME": str(self.folder)},
            capture_output=True,
            text=True,
        )

    @property
    def log(self) -> list[str]:
        """Calls so far."""
        path = self.folder / "log"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def shutdowns(self) -> list[str]:
        """The shutdowns among them, each with the state that had been sent by then."""
        return [line for line in self.log if line.startswith("shutdown")]

    @property
    def status(self) -> dict[str, object]:
        """What was sent last."""
        found: dict[str, object] = json.loads((self.folder / "sent/status.json").read_text())
        return found


@pytest.fixture
def box(tmp_path: Path) -> Box:
    """A machine on which everything works, and the claims are measured without a refutation."""
    for name in ("bin", "sent"):
        (tmp_path / name).mkdir()
    (tmp_path / "bundle").touch()
    names = {"here": tmp_path, "log": tmp_path / "log", "data": tmp_path / "data"}
    plan = make_plan("r6i.8xlarge", region="us-east-1", only=["7"], environment={}).of("111122223333")
    made = Box(tmp_path, plan)
    log = tmp_path / "log"
    state = f'$(sed "s/.*state.: .//; s/\\".*//" "{tmp_path}/sent/status.json" 2>/dev/null)'
    made.program("shutdown", f'echo "shutdown $* [{state}]" >>"{log}"')
    made.program("apt-get", "exit 0")
    made.program("systemctl", "exit 0")
    made.program("sleep", f'[ "$1" != 600 ] || exec {shutil.which("sleep")} 600')  # only uploads are apart
    made.program("aws", _AWS.format(**names))
    made.program("git", _GIT.format(**names))
    made.program("setup.sh", f'echo "setup $*" >>"{log}"', folder=".")
    measured = (
        f'for out in "$@"; do case $out in {tmp_path}/data/*) echo "{{}}" >"$out/results.json" ;; esac; done'
    )
    made.program("tox", f'echo "tox $*" >>"{log}"\n{measured}\nexit "$(cat "{tmp_path}/code")"', folder=".")
    made.program("cflow", f'echo "cflow $*" >>"{log}"', folder=".")
    (tmp_path / "code").write_text("0")
    return made


LIMIT = "shutdown -P +540 []"


@pytest.mark.parametrize("code", [0, 1])
def test_a_measured_run(box: Box, code: int) -> None:
    (box.folder / "code").write_text(str(code))
    box.boot()
    assert box.status["state"] == "measured"
    assert (box.status["run"], box.status["exit_code"]) == (box.plan.run, code)
    assert box.shutdowns == [LIMIT, "shutdown -P now [measured]"]
    out = box.folder / "data/runs" / box.plan.run
    assert f"setup {box.folder / 'data'} ebs llama.cpp vllm" in box.log
    expected = f"tox run --skip-pkg-install -e claims -- --out {out} --profile paper --only 7"
    assert expected in box.log
    assert (box.folder / "sent/results.json").exists() and (box.folder / "sent/machine.log").exists()
    assert not [line for line in box.log if line.startswith("cflow report")]


def test_failed_setup_sends_the_log(box: Box) -> None:
    box.program("setup.sh", "echo no space is left; exit 1", folder=".")
    box.boot()
    assert (box.status["state"], box.status["exit_code"]) == ("setup_failed", 2)
    assert "no space is left" in (box.folder / "sent/machine.log").read_text()
    assert box.shutdowns == [LIMIT, "shutdown -P now [setup_failed]"]


@pytest.mark.parametrize(("code", "state"), [(2, "run_failed"), (124, "time_limit"), (137, "time_limit")])
def test_a_run_cut_short_sends_what_there_is(box: Box, code: int, state: str) -> None:
    (box.folder / "code").write_text(str(code))
    box.boot()
    assert (box.status["state"], box.status["exit_code"]) == (state, 2)
    assert (box.folder / "sent/results.json").exists()
    assert any(line.startswith("cflow report") for line in box.log), "its page was not made"
    assert box.shutdowns == [LIMIT, f"shutdown -P now [{state}]"]


def test_an_environment_that_breaks_is_no_refutation(box: Box) -> None:
    """tox exits with 1, too, when it cannot start pytest; then there are no results."""
    box.program("tox", "exit 1", folder=".")
    box.boot()
    assert (box.status["state"], box.status["exit_code"]) == ("run_failed", 2)


@pytest.mark.parametrize("broken", ["apt-get", "git"])
def test_without_the_source_the_machine_ends(box: Box, broken: str) -> None:
    box.program(broken, "exit 1")
    box.boot()
    assert box.shutdowns[0] == LIMIT
    assert box.shutdowns[-1].startswith("shutdown -P now")
    assert not [line for line in box.log if line.startswith(("setup", "tox"))]


def test_a_lock_of_another_update_is_waited_for(box: Box) -> None:
    box.program("apt-get", f'test -e "{box.folder}/free" || {{ touch "{box.folder}/free"; exit 100; }}')
    box.boot()
    assert box.status["state"] == "measured"


def test_without_the_bucket_the_machine_ends(box: Box) -> None:
    box.program("aws", "exit 1")
    box.boot()
    assert box.shutdowns == [LIMIT, "shutdown -P now []"]


def test_a_second_boot_ends_the_machine(box: Box) -> None:
    box.boot()
    path = f"{box.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    before = len(box.log)
    subprocess.run([box.folder / "per-boot/cflow-end"], env={"PATH": path}, check=True)
    again = box.log[before:]
    assert again[0].startswith("aws s3 sync") and again[-1].startswith("shutdown -P now")
