"""What runs share in an account, made once and kept: the bucket of results, and the role of the machines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from harness.aws.command import Aws
from harness.aws.errors import CommandError
from harness.aws.plan import TAG, Plan, bucket_name

ROLE: Final = f"{TAG}-machine"
"""Name of the role, of its only policy, and of the instance profile."""
EXPIRY_DAYS: Final = 30
_TRUST: Final = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
    ],
}
_LIFECYCLE: Final = {
    "Rules": [
        {
            "ID": "forgotten runs",
            "Status": "Enabled",
            "Filter": {"Prefix": ""},
            "Expiration": {"Days": EXPIRY_DAYS},
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
        }
    ]
}


def _policy(account: str) -> str:
    """Objects of this project's buckets of that account, and nothing else."""
    buckets = f"arn:aws:s3:::{bucket_name(account, '*')}"
    return json.dumps(
        {
            "Version": "2012-10-17",
            "Statement": [
                {"Effect": "Allow", "Action": ["s3:GetObject", "s3:PutObject"], "Resource": f"{buckets}/*"},
                {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": buckets},
            ],
        }
    )


def make_bucket(aws: Aws, plan: Plan) -> None:
    """The bucket of results, unless it is there. What is forgotten in it expires. Raises CommandError."""
    try:
        aws.call("s3api", "head-bucket", "--bucket", plan.bucket)
    except CommandError as error:
        if error.code not in ("404", "NoSuchBucket"):
            raise
        aws.call("s3", "mb", f"s3://{plan.bucket}")
    rules = json.dumps(_LIFECYCLE)
    aws.call(
        "s3api",
        "put-bucket-lifecycle-configuration",
        "--bucket",
        plan.bucket,
        "--lifecycle-configuration",
        rules,
    )


def runs_with_results(aws: Aws, bucket: str) -> list[str]:
    """Runs that have something in the bucket; none without a bucket. Raises AwsError."""
    with _tolerating("NoSuchBucket"):
        prefixes = aws.json(
            "s3api",
            "list-objects-v2",
            "--bucket",
            bucket,
            "--delimiter",
            "/",
            "--query",
            "CommonPrefixes[].Prefix",
        )
        return [prefix.rstrip("/") for prefix in prefixes or []]
    return []


def make_role(aws: Aws, account: str) -> None:
    """The role and its instance profile, unless they are there. Raises CommandError."""
    with _tolerating("EntityAlreadyExists"):
        aws.call(
            "iam", "create-role", "--role-name", ROLE, "--assume-role-policy-document", json.dumps(_TRUST)
        )
    aws.call(
        "iam",
        "put-role-policy",
        "--role-name",
        ROLE,
        "--policy-name",
        ROLE,
        "--policy-document",
        _policy(account),
    )
    with _tolerating("EntityAlreadyExists"):
        aws.call("iam", "create-instance-profile", "--instance-profile-name", ROLE)
    with _tolerating("LimitExceeded"):  # it has its role
        aws.call("iam", "add-role-to-instance-profile", "--instance-profile-name", ROLE, "--role-name", ROLE)


def remove(aws: Aws, bucket: str) -> None:
    """Removes bucket, results in it, and role; what is not there is no error. Raises CommandError."""
    with _tolerating("NoSuchBucket"):
        aws.call("s3", "rb", f"s3://{bucket}", "--force")
    with _tolerating("NoSuchEntity"):
        aws.call(
            "iam", "remove-role-from-instance-profile", "--instance-profile-name", ROLE, "--role-name", ROLE
        )
    with _tolerating("NoSuchEntity"):
        aws.call("iam", "delete-instance-profile", "--instance-profile-name", ROLE)
    with _tolerating("NoSuchEntity"):
        aws.call("iam", "delete-role-policy", "--role-name", ROLE, "--policy-name", ROLE)
    with _tolerating("NoSuchEntity"):
        aws.call("iam", "delete-role", "--role-name", ROLE)


@contextmanager
def _tolerating(code: str) -> Iterator[None]:
    try:
        yield
    except CommandError as error:
        if error.code != code:
            raise
