"""Profiles and whether a machine holds them."""

from __future__ import annotations

from typing import Any

import pytest

from harness.errors import ProfileError
from harness.kinds import PROFILE_NAMES
from harness.profiles import DEFAULT_PROFILE, PROFILES, fit, profile


def state(
    ram: int | None = 100, disk: int | None = 200, cores: int = 16, limit: int | None = None
) -> dict[str, Any]:
    def gb(size: int | None) -> int | None:
        return None if size is None else size * 10**9

    return {
        "cpu": {"affinity": list(range(cores)), "physical": cores, "quota_cpus": None},
        "memory": {"available_bytes": gb(ram), "limit_bytes": gb(limit)},
        "storage": {"free_bytes": gb(disk)},
    }


def test_names_and_limits_of_the_design() -> None:
    assert tuple(one.name for one in PROFILES) == PROFILE_NAMES
    assert DEFAULT_PROFILE == "quick"
    assert [profile(name).time_s for name in ("smoke", "quick", "full")] == [120, 900, 7200]
    assert (profile("quick").ram_bytes, profile("quick").disk_bytes) == (6 * 10**9, 8 * 10**9)
    assert profile("full").ram_bytes == 12 * 10**9
    for smaller, larger in zip(PROFILES, PROFILES[1:], strict=False):
        assert smaller.time_s < larger.time_s
        assert smaller.ram_bytes < larger.ram_bytes
        assert smaller.disk_bytes < larger.disk_bytes


def test_unknown_profile() -> None:
    with pytest.raises(ProfileError, match="no profile 'fast'; profiles are smoke, quick, full, paper"):
        profile("fast")


@pytest.mark.parametrize("name", PROFILE_NAMES)
def test_everything_fits_a_large_machine(name: str) -> None:
    found = fit(name, state())
    assert found.fits and found.message() == ""


@pytest.mark.parametrize(
    ("name", "machine", "message"),
    [
        (
            "quick",
            state(ram=4),
            "profile quick does not fit: 6 GB of free RAM needed, 4.0 GB found; use --profile smoke",
        ),
        ("quick", state(limit=5), "6 GB of free RAM needed, 5.0 GB found"),
        ("quick", state(disk=2), "8 GB of free disk needed, 2.0 GB found; use --profile smoke"),
        ("paper", state(cores=2), "8 cores needed, 2 usable; use --profile full"),
        ("full", state(ram=7, disk=9), "12 GB of free RAM needed, 7.0 GB found; 44 GB of free disk needed"),
        ("smoke", state(disk=0), "1 GB of free disk needed, 0.0 GB found; no smaller profile fits either"),
    ],
)
def test_what_is_missing_and_what_fits(name: str, machine: dict[str, Any], message: str) -> None:
    found = fit(name, machine)
    assert not found.fits
    assert message in found.message()


def test_what_is_not_known_counts_as_enough() -> None:
    assert fit("paper", state(ram=None, disk=None)).fits
