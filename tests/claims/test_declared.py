"""claims.toml: what its checks declare beyond what the registry asks of any."""

from __future__ import annotations

import pytest

from claims import contest, overlap_grid
from claims.run import REGISTRY_PATH
from harness.profiles import PROFILES, Profile
from harness.registry import load_registry

REGISTRY = load_registry(REGISTRY_PATH)
TIMED = [check for check in REGISTRY.checks if "timed" in check.kinds]


@pytest.mark.parametrize("profile", PROFILES, ids=lambda one: one.name)
def test_the_checks_fit_the_time_of_their_profile(profile: Profile) -> None:
    assert 0 < REGISTRY.budget_s(profile.name) <= profile.time_s


def test_every_timed_cell_says_how_many_rounds_it_wants() -> None:
    assert TIMED
    assert [check.id for check in TIMED if any(cell.rounds is None for cell in check.cells)] == []
    exact = [check for check in REGISTRY.checks if "timed" not in check.kinds]
    assert [check.id for check in exact if any(cell.rounds is not None for cell in check.cells)] == []


@pytest.mark.parametrize(
    ("family", "owner"), [("7.overlap_", overlap_grid.ROUNDS_OF), ("e2e.", contest.ROUNDS_OF)]
)
def test_checks_that_look_at_the_same_rounds_declare_as_many(family: str, owner: str) -> None:
    """They are measured once, with the number of one of them."""
    members = [check for check in TIMED if check.id.startswith(family)]
    assert len(members) > 5
    wanted = REGISTRY.check(owner).cells[0].rounds
    assert wanted is not None
    for check in members:
        for cell in check.cells:
            assert cell.rounds == {profile: wanted[profile] for profile in check.budget_s}, check.id
