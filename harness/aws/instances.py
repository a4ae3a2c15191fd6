"""The machines of this project in a region, and how one is ended."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from harness.aws.command import Aws
from harness.aws.errors import AwsError
from harness.aws.plan import TAG

_GONE: Final = ("shutting-down", "terminated")
_FIELDS: Final = "[InstanceId, State.Name, InstanceType, LaunchTime, Tags[?Key==`cflow-claims`].Value | [0]]"


@dataclass(frozen=True)
class Instance:
    """A machine. state: pending, running, stopping, stopped, shutting-down or terminated."""

    id: str
    state: str
    instance_type: str
    launched: datetime
    run: str

    @property
    def gone(self) -> bool:
        """Whether it has ended, or is about to: nothing is paid any more."""
        return self.state in _GONE


def running(aws: Aws) -> list[Instance]:
    """All machines of this project in the region that have not ended. Raises AwsError."""
    return [one for one in _described(aws, f"Name=tag-key,Values={TAG}") if not one.gone]


def of_run(aws: Aws, run: str) -> list[Instance]:
    """The machines of a run, also those that ended within the last hour. Raises AwsError."""
    return _described(aws, f"Name=tag:{TAG},Values={run}")


def end(aws: Aws, run: str) -> list[str]:
    """Ends the machine of a run and its alarm; the ids of what was ended.

    A machine that was asked for a moment ago may not be listed yet: it is looked for a few times. Raises
    AwsError.
    """
    try:
        ids = [one.id for one in _listed(aws, run) if not one.gone]
        if ids:
            aws.call("ec2", "terminate-instances", "--instance-ids", *ids)
        remove_alarm(aws, run)
    except AwsError as error:
        raise AwsError(
            f"the machine of {run} could not be ended from here, it ends itself at its time limit; try"
            f" `python -m harness.aws down {run}`: {error}"
        ) from error
    return ids


def alarm_name(run: str) -> str:
    """The alarm that is to end the machine of a run."""
    return f"{TAG}-{run}"


def remove_alarm(aws: Aws, run: str) -> None:
    """Deletes the alarm of a run; one that is not there is no error. Raises AwsError."""
    aws.call("cloudwatch", "delete-alarms", "--alarm-names", alarm_name(run))


def runs_with_alarm(aws: Aws) -> list[str]:
    """Runs whose alarm is still there. Raises AwsError."""
    names = aws.json(
        "cloudwatch",
        "describe-alarms",
        "--alarm-name-prefix",
        alarm_name(""),
        "--query",
        "MetricAlarms[].AlarmName",
    )
    return [name.removeprefix(alarm_name("")) for name in names or []]


def _listed(aws: Aws, run: str) -> list[Instance]:
    for _ in range(4):
        found = of_run(aws, run)
        if found:
            return found
        time.sleep(3)
    return of_run(aws, run)


def _described(aws: Aws, condition: str) -> list[Instance]:
    rows = aws.json(
        "ec2",
        "describe-instances",
        "--filters",
        condition,
        "--query",
        f"Reservations[].Instances[].{_FIELDS}",
    )
    return [
        Instance(
            id=row[0],
            state=row[1],
            instance_type=row[2],
            launched=datetime.fromisoformat(row[3].replace("Z", "+00:00")).astimezone(UTC),
            run=row[4] or "",
        )
        for row in rows or []
    ]
