"""What this machine can show, with reason and remedy, and what follows for the checks of claims.toml."""

from harness.doctor.effects import Effect, effects
from harness.doctor.finding import Finding, State
from harness.doctor.machine import machine_findings
from harness.doctor.profiles import ProfileRow, profile_finding, profile_rows

__all__ = [
    "Effect",
    "Finding",
    "ProfileRow",
    "State",
    "effects",
    "machine_findings",
    "profile_finding",
    "profile_rows",
]
