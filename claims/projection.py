"""A projection, which measures nothing: decode speed on r6i.8xlarge by an assumed read bandwidth.

tok/s = roof x share of the roof / weight bytes of a token. The bytes are those of the schedule that the
executor runs. The share is what `3.roof` measured in this run on this machine, or an assumption.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from engine.geometry import Geometry
from harness.evidence import Derived
from harness.kinds import REFUTED, SUPPORTED
from harness.reductions import Reduction

ROOFS_GB_PER_S: Final = tuple(range(70, 161, 10))
"""Assumed: what a server of eight DDR4-3200 channels, 204.8 GB/s at peak, may let 16 cores read."""
ASSUMED_SHARE: Final = 0.60
"""Without a measurement: the low end of the target of 3.roof."""
MODELS: Final[Mapping[str, Geometry]] = {
    "arch2_4_8k_16l": Geometry.named("arch2_4_8k_16l"),
    "arch2_4_8k_4l": Geometry.named("arch2_4_8k_4l"),
    "Qwen2.5-32B shape": Geometry.named("qwen2.5-32b"),
    "dense_4096": Geometry.named("dense_4096"),
}


def measured_share(record: Mapping[str, Any] | None) -> float | None:
    """Share of the roof with all threads in a record of 3.roof; None without one that is beyond doubt."""
    cell = next((one for one in record["cells"] if one["label"] == "all threads"), None) if record else None
    if cell is None or cell["verdict"] not in (SUPPORTED, REFUTED) or cell["value"] > 1.0:
        return None
    return float(cell["value"])


def projected(weight_bytes: int, share: float, share_is: str, geometry: Geometry) -> Derived:
    """Tokens per second at every assumed roof; the figure is that at the lowest."""
    roofs = [1e9 * roof for roof in ROOFS_GB_PER_S]
    return Derived(
        method="assumed roof x share of the roof / weight bytes of a token; a projection, not a measurement",
        inputs={
            "machine": "r6i.8xlarge",
            "measured there": "nothing",
            "assumed roofs": f"{ROOFS_GB_PER_S[0]} to {ROOFS_GB_PER_S[-1]} GB/s",
            "share of the roof": share,
            "the share is": share_is,
            "parameters": geometry.parameters,
        },
        observations={
            "lowest_bytes_per_s": roofs[0] * share,
            "weight_bytes_per_token": weight_bytes,
            "roof_gb_per_s": list(ROOFS_GB_PER_S),
            "tok_per_s": [roof * share / weight_bytes for roof in roofs],
            "tok_per_s_at_the_roof": [roof / weight_bytes for roof in roofs],
        },
        reduction=Reduction("ratio", ("lowest_bytes_per_s", "weight_bytes_per_token")),
    )
