"""What can be found out before anything is made or paid for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from harness.aws.command import Aws
from harness.aws.errors import AwsError, CommandError
from harness.aws.instances import running
from harness.aws.machines import VCPUS
from harness.aws.plan import Plan

_DEBIAN: Final = "136693071363"
"""Debian's own account."""
_IMAGES: Final = "debian-12-amd64-*"
_QUOTA: Final = "L-1216C47A"
"""Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances, in vCPUs."""


@dataclass(frozen=True)
class Found:
    """root_device: the image's name of the root volume."""

    account: str
    image: str
    root_device: str
    notes: tuple[str, ...]


def look(aws: Aws, plan: Plan) -> Found:
    """Account, quota, region and image. Raises AwsError where a run cannot work; changes nothing."""
    account = aws.json("sts", "get-caller-identity")["Account"]
    present = [one for one in running(aws) if one.instance_type == plan.machine.instance_type]
    if present:
        raise AwsError(
            f"{present[0].run} is up already: `python -m harness.aws watch {present[0].run}` follows it,"
            " `down` ends it"
        )
    notes = _quota_notes(aws)
    offered = aws.json(
        "ec2",
        "describe-instance-type-offerings",
        "--filters",
        f"Name=instance-type,Values={plan.machine.instance_type}",
        "--query",
        "InstanceTypeOfferings[].Location",
    )
    if not offered:
        raise AwsError(f"--region {plan.region}: {plan.machine.instance_type} is not offered there")
    image = aws.json(
        "ec2",
        "describe-images",
        "--owners",
        _DEBIAN,
        "--filters",
        f"Name=name,Values={_IMAGES}",
        "Name=state,Values=available",
        "--query",
        "sort_by(Images, &CreationDate)[-1].[ImageId, RootDeviceName]",
    )
    if not image:
        raise AwsError(f"--region {plan.region}: no image {_IMAGES} of Debian's account {_DEBIAN} there")
    return Found(account=account, image=image[0], root_device=image[1], notes=notes)


def _quota_notes(aws: Aws) -> tuple[str, ...]:
    """Raises AwsError when the quota is too small; a note when it cannot be read."""
    try:
        quota = aws.json(
            "service-quotas",
            "get-service-quota",
            "--service-code",
            "ec2",
            "--quota-code",
            _QUOTA,
            "--query",
            "Quota.Value",
        )
    except CommandError as error:
        return (f"the quota of vCPUs is not known: {error}",)
    if quota < VCPUS:
        raise AwsError(
            f"the account may run {quota:.0f} vCPUs of On-Demand Standard instances in {aws.region},"
            f" {VCPUS} are needed: ask for more with `aws service-quotas request-service-quota-increase"
            f" --service-code ec2 --quota-code {_QUOTA} --desired-value {VCPUS} --region {aws.region}`, or"
            " use another --region"
        )
    return ()
