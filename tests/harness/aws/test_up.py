"""`up`: what is asked of AWS, in which order, and that a machine is ended whatever fails."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.aws.command import Aws
from harness.aws.launch import ROOT
from harness.aws.shared import ROLE
from tests.harness.aws.cloud import ACCOUNT, Clock, Cloud, Command, install, nothing, option

BUCKET = f"cflow-claims-{ACCOUNT}-us-east-1"


def call_of(cloud: Cloud, operation: str) -> list[str]:
    """The only call of that operation."""
    (found,) = [words for words in cloud.calls() if " ".join(words[:2]) == operation]
    return found


def measured(cloud: Cloud, code: int) -> list[Callable[[], None]]:
    """A run that reports twice and ends."""
    return [
        lambda: cloud.reports("running"),
        lambda: cloud.reports("measured", code, ended=True, **{"results.json": "{}"}),
    ]


@pytest.mark.parametrize("code", [0, 1])
def test_a_run_from_start_to_end(
    cloud: Cloud, clock: Clock, command: Command, tmp_path: Path, code: int
) -> None:
    clock.events = measured(cloud, code)
    done = command("up", "r6i.8xlarge", "--yes", "--out", tmp_path / "out")
    assert done.code == code
    assert (tmp_path / "out/results.json").read_text() == "{}"
    assert cloud.operations()[:12] == [
        "sts get-caller-identity",
        "ec2 describe-instances",
        "service-quotas get-service-quota",
        "ec2 describe-instance-type-offerings",
        "ec2 describe-images",
        "s3api head-bucket",
        "s3api put-bucket-lifecycle-configuration",
        "iam create-role",
        "iam put-role-policy",
        "iam create-instance-profile",
        "iam add-role-to-instance-profile",
        "s3 cp",
    ]
    assert cloud.operations()[-2:] == ["cloudwatch delete-alarms", "s3 rm"], "something is left behind"
    assert {option(words, "--region") for words in cloud.calls()} == {"us-east-1"}


def test_the_machine_ends_itself(cloud: Cloud, clock: Clock, command: Command, tmp_path: Path) -> None:
    clock.events = measured(cloud, 0)
    command("up", "r6id.8xlarge", "--yes", "--hours", "3", "--out", tmp_path / "out")
    asked = call_of(cloud, "ec2 run-instances")
    run = cloud.state()["machine"]["run"]
    assert option(asked, "--instance-initiated-shutdown-behavior") == "terminate"
    assert option(asked, "--client-token") == run
    assert option(asked, "--iam-instance-profile") == f"Name={ROLE}"
    (volume,) = json.loads(option(asked, "--block-device-mappings"))
    assert volume["DeviceName"] == "/dev/xvda"
    assert volume["Ebs"]["DeleteOnTermination"] is True
    alarm = call_of(cloud, "cloudwatch put-metric-alarm")
    assert option(alarm, "--alarm-actions") == "arn:aws:automate:us-east-1:ec2:terminate"
    assert option(alarm, "--dimensions") == "Name=InstanceId,Value=i-1"
    # It goes off after this many hours, an hour later than the machine itself.
    assert (option(alarm, "--period"), option(alarm, "--evaluation-periods")) == ("3600", "4")
    assert option(alarm, "--datapoints-to-alarm") == "4"
    assert option(alarm, "--threshold") == "0"


def test_role_reaches_nothing_but_the_buckets(
    cloud: Cloud, clock: Clock, command: Command, tmp_path: Path
) -> None:
    clock.events = measured(cloud, 0)
    command("up", "r6i.8xlarge", "--yes", "--out", tmp_path / "out")
    policy = json.loads(option(call_of(cloud, "iam put-role-policy"), "--policy-document"))
    resources = {statement["Resource"] for statement in policy["Statement"]}
    assert resources == {f"arn:aws:s3:::cflow-claims-{ACCOUNT}-*", f"arn:aws:s3:::cflow-claims-{ACCOUNT}-*/*"}


def test_what_is_there_is_used_again(cloud: Cloud, clock: Clock, command: Command, tmp_path: Path) -> None:
    there = "An error occurred ({}) when calling the operation: it is there"
    cloud.fails("iam create-role", there.format("EntityAlreadyExists"))
    cloud.fails("iam create-instance-profile", there.format("EntityAlreadyExists"))
    cloud.fails("iam add-role-to-instance-profile", there.format("LimitExceeded"))
    clock.events = measured(cloud, 0)
    assert command("up", "r6i.8xlarge", "--yes", "--out", tmp_path / "out").code == 0


def test_bucket_is_made_when_it_is_missing(
    cloud: Cloud, clock: Clock, command: Command, tmp_path: Path
) -> None:
    cloud.fails(
        "s3api head-bucket", "An error occurred (404) when calling the HeadBucket operation: Not Found"
    )
    clock.events = measured(cloud, 0)
    command("up", "r6i.8xlarge", "--yes", "--out", tmp_path / "out")
    assert call_of(cloud, "s3 mb")[2] == f"s3://{BUCKET}"


def test_a_given_instance_profile_needs_no_iam(
    cloud: Cloud, clock: Clock, command: Command, tmp_path: Path
) -> None:
    clock.events = measured(cloud, 0)
    command(
        *("up", "r6i.8xlarge", "--yes", "--out", tmp_path / "out"),
        *("--instance-profile", "ours", "--subnet", "subnet-1"),
    )
    assert not [name for name in cloud.operations() if name.startswith("iam")]
    asked = call_of(cloud, "ec2 run-instances")
    assert option(asked, "--iam-instance-profile") == "Name=ours"
    assert option(asked, "--subnet-id") == "subnet-1"


def test_a_new_instance_profile_is_waited_for(
    cloud: Cloud, clock: Clock, command: Command, tmp_path: Path
) -> None:
    cloud.fails(
        "ec2 run-instances",
        "An error occurred (InvalidParameterValue) when calling the RunInstances operation: Value (x) for "
        "parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name",
        times=2,
    )
    clock.events = [nothing, nothing, *measured(cloud, 0)]
    assert command("up", "r6i.8xlarge", "--yes", "--out", tmp_path / "out").code == 0
    assert cloud.operations().count("ec2 run-instances") == 3


def test_without_the_alarm_the_machine_is_ended(
    cloud: Cloud, clock: Clock, command: Command, tmp_path: Path
) -> None:
    cloud.fails("cloudwatch put-metric-alarm", "An error occurred (AccessDenied) when calling: no")
    done = command("up", "r6i.8xlarge", "--yes", "--out", tmp_path / "out")
    assert done.code == 2
    assert cloud.state()["machine"]["state"] == "shutting-down"
    assert "outer time limit cannot be set" in done.err and "docs/aws.md" in done.err


@pytest.mark.parametrize(
    ("operation", "message", "hint"),
    [
        ("sts get-caller-identity", "Unable to locate credentials. You can configure them.", "aws configure"),
        ("sts get-caller-identity", "An error occurred (ExpiredToken) when calling: old", "renew them"),
        ("sts get-caller-identity", 'Could not connect to the endpoint URL: "https://x"', "no such region"),
        ("ec2 run-instances", "An error occurred (VcpuLimitExceeded) when calling: more", "Service Quotas"),
        ("ec2 run-instances", "An error occurred (InsufficientInstanceCapacity) when calling: x", "later"),
        ("ec2 run-instances", "An error occurred (UnauthorizedOperation) when calling: x", "docs/aws.md"),
        ("ec2 run-instances", "An error occurred (VPCIdNotSpecified) when calling: x", "--subnet"),
        ("ec2 describe-images", "An error occurred (OptInRequired) when calling: x", "enable it"),
        ("iam create-role", "An error occurred (AccessDenied) when calling CreateRole: x", "docs/aws.md"),
        ("s3api head-bucket", "An error occurred (403) when calling the HeadBucket operation: no", "(403)"),
    ],
)
def test_a_refusal_says_what_to_do(
    cloud: Cloud, clock: Clock, command: Command, tmp_path: Path, operation: str, message: str, hint: str
) -> None:
    cloud.fails(operation, message)
    clock.events = [nothing] * 4  # of looking for a machine that was never made
    done = command("up", "r6i.8xlarge", "--yes", "--out", tmp_path / "out")
    assert done.code == 2
    assert done.err.strip().splitlines()[-1].startswith(f"aws: aws {operation}: ")
    assert hint in done.err
    assert cloud.state()["machine"] is None


def test_ctrl_c_while_it_starts_ends_the_machine(
    cloud: Cloud, clock: Clock, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("harness.aws.launch._set_alarm", interrupted)
    assert command("up", "r6i.8xlarge", "--yes", "--out", tmp_path / "out").code == 130
    assert cloud.state()["machine"]["state"] == "shutting-down"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"service-quotas get-service-quota": 5.0}, "may run 5 vCPUs"),
        ({"ec2 describe-instance-type-offerings": []}, "r6i.8xlarge is not offered there"),
        ({"ec2 describe-images": None}, "no image debian-12-amd64-*"),
    ],
)
def test_a_place_that_cannot_take_it_is_refused_before_anything_is_made(
    cloud: Cloud, command: Command, changes: dict[str, object], message: str
) -> None:
    cloud.put(answers={**cloud.state()["answers"], **changes})
    done = command("up", "r6i.8xlarge", "--yes")
    assert (done.code, message in done.err) == (2, True)
    assert not [name for name in cloud.operations() if name.startswith(("s3", "iam", "ec2 run"))]


def test_an_unreadable_quota_is_a_note(cloud: Cloud, clock: Clock, command: Command, tmp_path: Path) -> None:
    cloud.fails("service-quotas get-service-quota", "An error occurred (AccessDeniedException): no")
    clock.events = measured(cloud, 0)
    done = command("up", "r6i.8xlarge", "--yes", "--out", tmp_path / "out")
    assert (done.code, "the quota of vCPUs is not known" in done.err) == (0, True)


def test_a_second_machine_of_the_type_is_refused(cloud: Cloud, command: Command) -> None:
    cloud.put(
        machine={"state": "running", "run": "R", "type": "r6i.8xlarge", "launched": cloud.state()["now"]}
    )
    done = command("up", "r6i.8xlarge", "--yes")
    assert done.code == 2
    assert "R is up already" in done.err
    assert "ec2 run-instances" not in cloud.operations()


def test_nothing_is_spent_without_consent(
    cloud: Cloud, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = command("up", "r6i.8xlarge")  # nobody at the terminal
    assert (done.code, "--yes" in done.err) == (2, True)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda _prompt: "no")
    done = command("up", "r6i.8xlarge")
    assert (done.code, "not started" in done.err) == (2, True)
    assert not [name for name in cloud.operations() if name.startswith(("s3", "iam", "ec2 run"))]
    assert "at most $18.77" in done.out and "NVMe: it has no local disk" in done.out


def test_dry_run_calls_nothing_and_shows_everything(cloud: Cloud, command: Command) -> None:
    done = command("up", "r6i.8xlarge", "--dry-run")
    assert done.code == 0
    assert cloud.calls() == []
    for part in ("aws ec2 run-instances", "aws s3 mb", "put-metric-alarm", "#!/bin/bash\nshutdown -P +540"):
        assert part in done.out


@pytest.mark.no_sanitizer
def test_it_needs_no_package() -> None:
    """The computer that starts a run need not be one that can build the engine."""
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-m", "harness.aws", "up", "r6id.8xlarge", "--dry-run"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "aws ec2 run-instances" in done.stdout


@pytest.mark.no_sanitizer
def test_through_a_real_process(
    cloud: Cloud, clock: Clock, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(cloud, ROOT)
    monkeypatch.setenv("PATH", str(cloud.folder), prepend=os.pathsep)
    monkeypatch.setattr("harness.aws.__main__.Aws", Aws)
    cloud.fails("service-quotas get-service-quota", "An error occurred (AccessDeniedException): no")
    clock.events = measured(cloud, 1)
    done = command("up", "r6i.8xlarge", "--yes", "--out", tmp_path / "out")
    assert (done.code, "(AccessDeniedException)" in done.err) == (1, True)
    assert cloud.operations()[-2:] == ["cloudwatch delete-alarms", "s3 rm"]


def test_without_the_cli_it_says_how_to_get_it(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    done = command("up", "r6i.8xlarge", "--yes")
    assert (done.code, "AWS CLI is not installed" in done.err) == (2, True)
    assert command("up", "r6i.8xlarge", "--dry-run").code == 0
