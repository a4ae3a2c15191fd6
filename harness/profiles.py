"""The four sizes of a run, and whether a machine can hold one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from harness.errors import ProfileError
from harness.machine import usable_cpus, usable_memory_bytes

GB: Final = 10**9


@dataclass(frozen=True)
class Profile:
    """A size of run. time_s: limit on two cores for the sum of budget_s. ram_bytes, disk_bytes: what must be
    free.
    """

    name: str
    purpose: str
    time_s: float
    ram_bytes: int
    disk_bytes: int
    cores: int


PROFILES: Final = (
    Profile("smoke", "continuous integration", 120.0, 1 * GB, 1 * GB, 1),
    Profile("quick", "a laptop, a first look", 900.0, 6 * GB, 8 * GB, 1),
    Profile("full", "a workstation", 7_200.0, 12 * GB, 44 * GB, 2),
    Profile("paper", "r6i.8xlarge, r6id.8xlarge or better", 28_800.0, 64 * GB, 120 * GB, 8),
)
"""Smallest first. RAM and disk of smoke and paper and the disk of full follow from the models that they
build.
"""

DEFAULT_PROFILE: Final = "quick"


@dataclass(frozen=True)
class Fit:
    """Whether a profile fits. missing: one sentence per shortage. smaller: the largest smaller profile that
    fits.
    """

    profile: Profile
    missing: tuple[str, ...]
    smaller: Profile | None

    @property
    def fits(self) -> bool:
        """Whether nothing is missing."""
        return not self.missing

    def message(self) -> str:
        """What to tell the user; empty when it fits."""
        if self.fits:
            return ""
        advice = f"use --profile {self.smaller.name}" if self.smaller else "no smaller profile fits either"
        return f"profile {self.profile.name} does not fit: {'; '.join(self.missing)}; {advice}"


def profile(name: str) -> Profile:
    """The profile of that name. Raises ProfileError naming those that exist."""
    for one in PROFILES:
        if one.name == name:
            return one
    raise ProfileError(f"no profile {name!r}; profiles are {', '.join(one.name for one in PROFILES)}")


def fit(name: str, state: Mapping[str, Any]) -> Fit:
    """Compares a profile with a machine state (harness.machine.machine_state). What is not known counts as
    enough.
    """
    wanted = profile(name)
    smaller = [one for one in PROFILES[: PROFILES.index(wanted)] if not _missing(one, state)]
    return Fit(wanted, _missing(wanted, state), smaller[-1] if smaller else None)


def _missing(wanted: Profile, state: Mapping[str, Any]) -> tuple[str, ...]:
    found = []
    available = usable_memory_bytes(state)
    if available is not None and available < wanted.ram_bytes:
        found.append(f"{wanted.ram_bytes / GB:.0f} GB of free RAM needed, {available / GB:.1f} GB found")
    free = state["storage"]["free_bytes"]
    if free is not None and free < wanted.disk_bytes:
        found.append(f"{wanted.disk_bytes / GB:.0f} GB of free disk needed, {free / GB:.1f} GB found")
    if usable_cpus(state) < wanted.cores:
        found.append(f"{wanted.cores} cores needed, {usable_cpus(state)} usable")
    return tuple(found)
