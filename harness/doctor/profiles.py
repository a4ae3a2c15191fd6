"""Which profiles fit a machine, all of them side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.doctor.finding import Finding
from harness.profiles import PROFILES, Profile, fit
from harness.registry import Registry


@dataclass(frozen=True)
class ProfileRow:
    """A profile on this machine. budget_s: of its checks together. missing: one sentence per shortage."""

    profile: Profile
    budget_s: float
    missing: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether nothing is missing."""
        return not self.missing


def profile_rows(registry: Registry, state: Mapping[str, Any]) -> tuple[ProfileRow, ...]:
    """Every profile, smallest first. state: harness.machine.machine_state."""
    return tuple(
        ProfileRow(one, registry.budget_s(one.name), fit(one.name, state).missing) for one in PROFILES
    )


def profile_finding(name: str, state: Mapping[str, Any]) -> Finding:
    """Whether the profile that was asked for fits. Raises ProfileError for a name that does not exist."""
    found = fit(name, state)
    if found.fits:
        return Finding("profile", f"profile {name}", "yes", "fits", required=True)
    smaller = f"use --profile {found.smaller.name}" if found.smaller else "no smaller profile fits either"
    return Finding("profile", f"profile {name}", "no", "; ".join(found.missing), smaller, required=True)
