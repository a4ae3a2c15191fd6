"""The user data of a run: time limit first, then the variables that boot.sh needs, then boot.sh."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from harness.aws.plan import Plan

LIMIT_BYTES: Final = 16_384
"""Of EC2, before base64."""
_SETUP_MINUTES: Final = 60
_BOOT: Final = Path(__file__).with_name("boot.sh")


@dataclass(frozen=True)
class Places:
    """Where things lie on the machine. per_boot: the folder of what cloud-init runs at every boot."""

    log: Path = Path("/var/log/cflow-claims.log")
    source: Path = Path("/opt/cflow-claims")
    data: Path = Path("/data")
    scripts: Path = Path("/usr/local/sbin")
    per_boot: Path = Path("/var/lib/cloud/scripts/per-boot")


def user_data(plan: Plan, places: Places | None = None) -> str:
    """The script that cloud-init runs as root at the first boot.

    Its first command sets the end of the machine: should the scheduling service not answer, a sleep does it.
    """
    minutes = plan.hours * 60
    variables = {
        "run": plan.run,
        "region": plan.region,
        "bucket": plan.bucket,
        "store": plan.machine.store,
        "baselines": " ".join(plan.machine.baselines),
        "limit_minutes": str(minutes),
        "setup_minutes": str(min(_SETUP_MINUTES, minutes // 3)),
        **{name: str(path) for name, path in asdict(places or Places()).items()},
    }
    lines = [
        "#!/bin/bash",
        f"shutdown -P +{minutes} || {{ (sleep {minutes * 60}; poweroff -f) & }}",
        *(f"{name}={shlex.quote(value)}" for name, value in variables.items()),
        f"arguments=({shlex.join(plan.arguments)})",
        *(f"export {name}={shlex.quote(value)}" for name, value in plan.environment),
    ]
    return "\n".join(lines) + "\n" + _BOOT.read_text(encoding="utf-8")
