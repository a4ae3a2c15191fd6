"""Errors of runs on AWS.

HarnessError
└── AwsError         one sentence that says what to do
    └── CommandError a call of the AWS CLI failed; has AWS's own code
"""

from __future__ import annotations

import re
from typing import Final

from harness.errors import HarnessError


class AwsError(HarnessError):
    """A run on AWS cannot be started, watched or ended."""


class CommandError(AwsError):
    """A call of the AWS CLI failed. code: AWS's name of the error, empty when there is none."""

    def __init__(self, command: str, output: str) -> None:
        found = _CODE.search(output)
        self.code = found.group(1) if found else ""
        last = next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "no message")
        hint = next((text for pattern, text in _HINTS if pattern.search(output)), "")
        super().__init__(f"{command}: {last}{f' -> {hint}' if hint else ''}")


_CODE: Final = re.compile(r"An error occurred \(([\w.]+)\)")
_HINTS: Final = tuple(
    (re.compile(pattern), hint)
    for pattern, hint in (
        (
            r"Unable to locate credentials|config profile .* could not be found",
            "there are no credentials: run `aws configure` or `aws sso login`, or set AWS_PROFILE",
        ),
        (
            r"InvalidClientTokenId|UnrecognizedClientException|AuthFailure|SignatureDoesNotMatch|ExpiredToken"
            r"|RequestExpired|Token has expired|SSO session",
            "the credentials are wrong or have expired: renew them (`aws sso login`, `aws configure`)",
        ),
        (
            r"VcpuLimitExceeded",
            "the quota `Running On-Demand Standard instances` is below 32 vCPUs in this region: ask for more"
            " in the Service Quotas console, or use another --region",
        ),
        (
            r"InsufficientInstanceCapacity",
            "AWS has none free there now: try again later, another --region, or a --subnet in another zone",
        ),
        (r"PendingVerification", "AWS still verifies the account; it writes an e-mail when it is done"),
        (
            r"OptInRequired",
            "the account is not signed up for this region: enable it, or use another --region",
        ),
        (
            r"VPCIdNotSpecified|DefaultVpcDoesNotExist|MissingInput.*subnet|No default VPC",
            "the account has no default network in this region: give --subnet, a public one",
        ),
        (
            r"UnauthorizedOperation|AccessDenied|not authorized to perform",
            "the user may not do this; docs/aws.md lists the permissions",
        ),
        (
            r"Could not connect to the endpoint URL|Invalid endpoint|Could not resolve",
            "no network, or no such region",
        ),
        (
            r"Unsupported",
            "this zone does not have the type: try a --subnet in another zone, or another --region",
        ),
    )
)
