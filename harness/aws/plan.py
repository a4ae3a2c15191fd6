"""What one run will be: names, arguments, limits."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from harness.aws.errors import AwsError
from harness.aws.machines import MACHINES, PRICE_REGIONS, Machine, Price
from harness.kinds import PROFILE_NAMES

TAG: Final = "cflow-claims"
"""Key of the tag on everything of a run, whose value is the run; begins the names of what runs share."""
MAX_HOURS: Final = 22
"""So that the alarm, an hour later, looks back less than the day that CloudWatch allows."""
_PASSED_ON: Final = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL")


@dataclass(frozen=True)
class Plan:
    """One run. account: empty until AWS has said it. environment: variables of the machine."""

    run: str
    machine: Machine
    region: str
    hours: int
    price: Price
    arguments: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    subnet: str | None
    instance_profile: str | None
    account: str = ""

    @property
    def bucket(self) -> str:
        """The bucket that results pass through; one per account and region."""
        return bucket_name(self.account, self.region)

    def of(self, account: str) -> Plan:
        """The same in that account."""
        return replace(self, account=account)


def bucket_name(account: str, region: str) -> str:
    """The bucket of an account in a region."""
    return f"{TAG}-{account}-{region}"


def make_plan(
    instance_type: str,
    *,
    region: str,
    profile: str | None = None,
    only: Sequence[str] = (),
    hours: int | None = None,
    usd_per_h: float | None = None,
    subnet: str | None = None,
    instance_profile: str | None = None,
    now: datetime | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Plan:
    """A checked plan. Raises AwsError naming the option, what was found and what is allowed."""
    if instance_type not in MACHINES:
        raise AwsError(f"no machine {instance_type!r}; allowed: {', '.join(MACHINES)}")
    machine = MACHINES[instance_type]
    chosen = profile or machine.profile
    if chosen not in PROFILE_NAMES:
        raise AwsError(f"--profile {chosen}: no such profile; allowed: {', '.join(PROFILE_NAMES)}")
    limit = machine.hours if hours is None else hours
    if not 1 <= limit <= MAX_HOURS:
        raise AwsError(f"--hours {limit}: allowed are 1 to {MAX_HOURS}")
    if usd_per_h is None and region not in PRICE_REGIONS:
        raise AwsError(
            f"--region {region}: its price is not known here, only that of {', '.join(PRICE_REGIONS)}; give"
            " --price, dollars per hour"
        )
    if usd_per_h is not None and not 0 < usd_per_h < 1000:
        raise AwsError(f"--price {usd_per_h}: allowed are dollars per hour above 0 and below 1000")
    stamp = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
    claims = [word for name in only or machine.only for word in ("--only", name)]
    return Plan(
        run=f"{stamp}-{instance_type}",
        machine=machine,
        region=region,
        hours=limit,
        price=Price(
            usd_per_h=machine.usd_per_h if usd_per_h is None else usd_per_h,
            disk_usd_per_h=machine.disk.usd_per_h,
            hours=limit,
            declared=usd_per_h is None,
        ),
        arguments=("--profile", chosen, *claims),
        environment=tuple((name, environment[name]) for name in _PASSED_ON if environment.get(name)),
        subnet=subnet,
        instance_profile=instance_profile,
    )
