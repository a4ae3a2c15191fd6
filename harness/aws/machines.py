"""The machines that can be had, what they cost, how large their disks must be, and what they cannot show."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

PRICE_DATE: Final = "2026-11-30"
PRICE_SOURCE: Final = "SkyPilot's public catalogue of AWS list prices"
PRICE_REGIONS: Final = ("us-east-1", "us-east-2", "us-west-2")
"""Where the prices below hold; elsewhere the price has to be given."""
VCPUS: Final = 32
"""Of either machine: 16 cores with two threads each. The account's quota counts them."""

_HOURS_PER_MONTH: Final = 730
_GP3_USD_PER_GB_MONTH: Final = 0.08
_GP3_USD_PER_IOPS_MONTH: Final = 0.005
_GP3_USD_PER_MB_S_MONTH: Final = 0.04
_GP3_FREE_IOPS: Final = 3000
_GP3_FREE_MB_PER_S: Final = 125

SYSTEM_PARTS: Final = (
    ("Debian, compilers, npm, valgrind", 6.0),
    ("environment of the claims, llama.cpp", 2.0),
    ("vLLM", 2.6),
)
MODEL_PARTS: Final = (
    ("the 30.9 B MoE geometry, Q4_0", 17.4),
    ("the dense 32.8 B geometry, Q4_0", 18.4),
    ("its GGUF twin", 18.4),
    ("for vLLM: int4 in groups of 128, bf16 embedding and head", 19.2),
    ("for vLLM: int8, bf16 embedding and head", 34.3),
    ("for vLLM: bf16", 65.5),
    ("models of the other checks", 20.0),
)
"""What lies on the disk of a run, in GB. The dense model: 64 layers of 487.6 M, and twice 152,064 x 5,120."""
_SPARE: Final = 1.25


@dataclass(frozen=True)
class Disk:
    """A gp3 root volume."""

    gb: int
    mb_per_s: int
    iops: int

    @property
    def usd_per_h(self) -> float:
        """Its price; size, and what goes beyond the free rate and operations."""
        monthly = (
            self.gb * _GP3_USD_PER_GB_MONTH
            + (self.mb_per_s - _GP3_FREE_MB_PER_S) * _GP3_USD_PER_MB_S_MONTH
            + (self.iops - _GP3_FREE_IOPS) * _GP3_USD_PER_IOPS_MONTH
        )
        return monthly / _HOURS_PER_MONTH


@dataclass(frozen=True)
class Machine:
    """An instance type and the run that it is for.

    usd_per_h: on demand, Linux, in PRICE_REGIONS. store: where models lie, the root volume or the instance
    store. only: claims that are measured, none = all. hours: default time limit. cannot: said before money is
    spent.
    """

    instance_type: str
    purpose: str
    usd_per_h: float
    store: Literal["ebs", "nvme"]
    disk: Disk
    profile: str
    only: tuple[str, ...]
    baselines: tuple[str, ...]
    hours: int
    cannot: tuple[str, ...]


def _volume(parts: tuple[tuple[str, float], ...]) -> int:
    """GB for these parts with a quarter to spare, in tens."""
    return math.ceil(sum(gb for _, gb in parts) * _SPARE / 10) * 10


_NO_COUNTERS: Final = (
    "hardware counters: sizes below .metal very likely have none, what needs them is NOT MEASURABLE HERE"
)

MACHINES: Final = {
    one.instance_type: one
    for one in (
        Machine(
            instance_type="r6i.8xlarge",
            purpose="all claims, end to end with the 30.9 B model",
            usd_per_h=2.016,
            store="ebs",
            disk=Disk(_volume(SYSTEM_PARTS + MODEL_PARTS), mb_per_s=500, iops=6000),
            profile="paper",
            only=(),
            baselines=("llama.cpp", "vllm"),
            hours=9,
            cannot=(
                _NO_COUNTERS,
                "NVMe: it has no local disk. Its EBS volume is network storage of 500 MB/s: what claims 6 to"
                " 8 find about cold storage there is about EBS, r6id.8xlarge is for NVMe",
            ),
        ),
        Machine(
            instance_type="r6id.8xlarge",
            purpose="claims 6 to 8 on the NVMe instance store",
            usd_per_h=2.4192,
            store="nvme",
            disk=Disk(_volume(SYSTEM_PARTS), mb_per_s=125, iops=3000),
            profile="paper",
            only=("6", "7", "8"),
            baselines=(),
            hours=5,
            cannot=(
                _NO_COUNTERS,
                "the other claims and end to end: not run unless --only asks for them, without baselines",
            ),
        ),
    )
}


@dataclass(frozen=True)
class Price:
    """What a run may cost. usd_per_h: the machine alone."""

    usd_per_h: float
    disk_usd_per_h: float
    hours: int
    declared: bool
    """From this module, not given by the user."""

    @property
    def at_most_usd(self) -> float:
        """At the time limit."""
        return (self.usd_per_h + self.disk_usd_per_h) * self.hours

    def text(self) -> str:
        """For people."""
        source = f"list price of {PRICE_DATE}, {PRICE_SOURCE}" if self.declared else "as given by --price"
        return (
            f"${self.usd_per_h:.3f} an hour ({source}) and ${self.disk_usd_per_h:.3f} for the disk;"
            f" at most ${self.at_most_usd:.2f} at the limit of {self.hours} hours, before taxes and S3"
        )
