"""Making the machine of a run, and the outer time limit that AWS itself keeps."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Final

from harness.aws import shared
from harness.aws.command import Aws
from harness.aws.errors import AwsError, CommandError
from harness.aws.instances import alarm_name, end
from harness.aws.plan import TAG, Plan
from harness.aws.preflight import Found
from harness.aws.userdata import LIMIT_BYTES, user_data

ROOT: Final = Path(__file__).resolve().parents[2]
_PROFILE_TRIES: Final = 12  # a new instance profile is known to EC2 after some seconds


def write_bundle(path: Path) -> None:
    """The checkout's last commit with its history, as one file. Raises AwsError: git, no checkout."""
    command = ["git", "-C", str(ROOT), "bundle", "create", str(path), "HEAD"]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise AwsError("git is not installed; the machine gets this checkout as a git bundle") from None
    except subprocess.CalledProcessError as error:
        raise AwsError(f"{ROOT} is no git checkout that can be bundled: {error.stderr.strip()}") from None


def write_user_data(plan: Plan, path: Path) -> None:
    """Raises AwsError when it is larger than EC2 takes."""
    text = user_data(plan)
    if len(text.encode()) > LIMIT_BYTES:
        raise AwsError(f"user data has {len(text.encode())} bytes, EC2 takes {LIMIT_BYTES}")
    path.write_text(text, encoding="utf-8")


def start(aws: Aws, plan: Plan, found: Found, folder: Path) -> str:
    """Makes what a run needs and its machine; the instance id.

    folder: has `source.bundle` and `user-data.sh`. Whatever fails or interrupts after the machine was asked
    for ends it. Raises AwsError.
    """
    shared.make_bucket(aws, plan)
    if plan.instance_profile is None:
        shared.make_role(aws, found.account)
    aws.call(
        "s3",
        "cp",
        "--only-show-errors",
        str(folder / "source.bundle"),
        f"s3://{plan.bucket}/{plan.run}/source.bundle",
    )
    try:
        instance = _run_instance(aws, plan, found, folder / "user-data.sh")
        _set_alarm(aws, plan, instance)
        return instance
    except BaseException:
        end(aws, plan.run)
        raise


def _run_instance(aws: Aws, plan: Plan, found: Found, user_data_file: Path) -> str:
    disk = plan.machine.disk
    volume = {
        "VolumeType": "gp3",
        "VolumeSize": disk.gb,
        "Throughput": disk.mb_per_s,
        "Iops": disk.iops,
        "DeleteOnTermination": True,
        "Encrypted": True,
    }
    tags = f"Tags=[{{Key={TAG},Value={plan.run}}},{{Key=Name,Value={plan.run}}}]"
    arguments = [
        "ec2",
        "run-instances",
        "--client-token",  # asked twice, it is made once
        plan.run,
        "--image-id",
        found.image,
        "--instance-type",
        plan.machine.instance_type,
        "--count",
        "1",
        "--instance-initiated-shutdown-behavior",
        "terminate",
        "--iam-instance-profile",
        f"Name={plan.instance_profile or shared.ROLE}",
        "--metadata-options",
        "HttpTokens=required,HttpPutResponseHopLimit=1",
        "--block-device-mappings",
        json.dumps([{"DeviceName": found.root_device, "Ebs": volume}]),
        "--tag-specifications",
        f"ResourceType=instance,{tags}",
        f"ResourceType=volume,{tags}",
        "--user-data",
        f"file://{user_data_file}",
        "--query",
        "Instances[0].InstanceId",
        *(["--subnet-id", plan.subnet] if plan.subnet else []),
    ]
    tries = 0
    while True:
        try:
            return str(aws.json(*arguments))
        except CommandError as error:
            tries += 1
            if "nvalid IAM Instance Profile" not in str(error) or tries == _PROFILE_TRIES:
                raise
        time.sleep(5)


def _set_alarm(aws: Aws, plan: Plan, instance: str) -> None:
    """An alarm of CloudWatch that ends the machine from outside, should the machine itself not do it.

    StatusCheckFailed has a value as long as a machine runs, and every value is at least 0: after so many
    hours with a value each the alarm goes off, whatever the machine and the user's computer do.

    Raises AwsError.
    """
    hours = plan.hours + 1
    try:
        aws.call(
            "cloudwatch",
            "put-metric-alarm",
            "--alarm-name",
            alarm_name(plan.run),
            "--alarm-description",
            f"ends the machine of {plan.run} when it is still there after {hours} hours",
            "--namespace",
            "AWS/EC2",
            "--metric-name",
            "StatusCheckFailed",
            "--dimensions",
            f"Name=InstanceId,Value={instance}",
            "--statistic",
            "Maximum",
            "--period",
            "3600",
            "--evaluation-periods",
            str(hours),
            "--datapoints-to-alarm",
            str(hours),
            "--threshold",
            "0",
            "--comparison-operator",
            "GreaterThanOrEqualToThreshold",
            "--treat-missing-data",
            "notBreaching",
            "--alarm-actions",
            f"arn:aws:automate:{plan.region}:ec2:terminate",
        )
    except AwsError as error:
        raise AwsError(
            f"the outer time limit cannot be set, so that the machine was ended: {error}"
        ) from error
