"""What a process holds: memory, descriptors, threads, temporary files, memory cgroups."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Final

from engine.held import unheld
from harness.memory_limit import CGROUPS, GROUP_NAME

_PARENTS: Final = (CGROUPS, CGROUPS / "memory")
COUNTS: Final = ("descriptors", "threads", "files", "groups")


@dataclass(frozen=True)
class Reading:
    """At one moment. at: hours or sessions since the piece began. files: in the folder of temporary files,
    folders counted too. groups: memory cgroups of this process.
    """

    at: float
    rss_bytes: int
    descriptors: int
    threads: int
    files: int
    groups: int

    def to_json(self) -> list[float]:
        """In the order of the fields."""
        return list(astuple(self))

    @staticmethod
    def of_json(values: Sequence[float]) -> Reading:
        """What `to_json` gave."""
        if len(values) != len(fields(Reading)):
            raise ValueError(f"a reading has {len(values)} values, must have {len(fields(Reading))}")
        return Reading(float(values[0]), *(int(value) for value in values[1:]))


def look(at: float, temporary: Path) -> Reading:
    """What this process holds now."""
    own = Path("/proc/self")
    pages = int((own / "statm").read_text().split()[1])
    descriptors = len(os.listdir(own / "fd")) - 1  # that of the listing itself
    threads = len(os.listdir(own / "task"))
    files = sum(1 for _ in temporary.rglob("*"))
    return Reading(at, pages * os.sysconf("SC_PAGE_SIZE"), descriptors, threads, files, own_groups())


def own_groups() -> int:
    """Memory cgroups that this process made and has not removed: others may be at work beside it."""
    names = (entry.name for parent in _PARENTS if parent.is_dir() for entry in parent.iterdir())
    return sum(found[1] == str(os.getpid()) for name in names if (found := GROUP_NAME.fullmatch(name)))


def left_groups() -> set[Path]:
    """Memory cgroups whose processes ended without removing them."""
    return {left for parent in _PARENTS for left in unheld(parent, GROUP_NAME)}
