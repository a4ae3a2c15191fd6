"""What decides the outcome of a training run, and what only decides how it goes."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from architectures.errors import ArchitectureError
from architectures.table import PRESETS, geometry, preset

PRECISIONS = ("auto", "bf16", "f32")


@dataclass(frozen=True)
class Arguments:
    """Equal arguments on equal data give equal weights, with the same build, threads and processes.

    The paper's: AdamW, lr 3e-4 (preset `paper`), 200 steps of warm-up, cosine to a thirtieth of it. This
    project's reading: betas, decay on matrices only, clipping, the weight of the balancing loss.
    `precision` is "bf16" (autocast) or "f32".
    """

    architecture: str
    preset: str
    steps: int
    seed: int
    batch: int
    sequence: int
    lr: float
    precision: str
    warmup: int
    weight_decay: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.95
    clip_norm: float = 1.0
    balance_weight: float = 0.01

    def __post_init__(self) -> None:
        geometry(self.architecture, preset(self.preset))
        for name, least in (("steps", 1), ("batch", 1), ("sequence", 1), ("seed", 0), ("warmup", 0)):
            if getattr(self, name) < least:
                raise ArchitectureError(f"{name} is {getattr(self, name)}, must be at least {least}")
        context = PRESETS[self.preset].context
        if self.sequence > context:
            raise ArchitectureError(f"sequence is {self.sequence}, must be at most the context, {context}")
        if not (self.lr > 0 and math.isfinite(self.lr)):
            raise ArchitectureError(f"lr is {self.lr}, must be a number above 0")
        if self.precision not in PRECISIONS[1:]:
            raise ArchitectureError(f"precision is {self.precision!r}, must be bf16 or f32")

    @classmethod
    def of(cls, architecture: str, preset_name: str, steps: int, seed: int, **given: Any) -> Arguments:
        """With the preset's batch, sequence and learning rate where `given` has none, or None.

        precision "auto" (or none) becomes bf16 where the CPU multiplies it in hardware, else f32: elsewhere
        bf16 is several times slower than f32.
        """
        sizes = preset(preset_name)
        chosen = {name: value for name, value in given.items() if value is not None}
        if chosen.get("precision", "auto") == "auto":
            chosen["precision"] = "bf16" if bf16_in_hardware() else "f32"
        defaults = {
            "batch": sizes.batch,
            "sequence": sizes.sequence,
            "lr": sizes.lr,
            "warmup": min(200, steps // 10),
        }
        return cls(
            architecture=architecture, preset=preset_name, steps=steps, seed=seed, **{**defaults, **chosen}
        )

    def lr_at(self, step: int) -> float:
        """Learning rate of a step, counted from 0: linear warm-up, then half a cosine down to lr / 30."""
        if step < self.warmup:
            return self.lr * (step + 1) / self.warmup
        done = (step - self.warmup) / max(self.steps - 1 - self.warmup, 1)
        least = self.lr / 30
        return least + (self.lr - least) * (1 + math.cos(math.pi * min(done, 1.0))) / 2

    def differences(self, other: dict[str, Any]) -> list[str]:
        """For each field whose value in `other` differs: "name: other's, now ours"."""
        mine = {field.name: getattr(self, field.name) for field in fields(self)}
        return [
            f"{name}: {other.get(name)!r}, now {value!r}"
            for name, value in mine.items()
            if other.get(name) != value
        ]


@dataclass(frozen=True)
class Options:
    """How a run goes, without a say in its outcome. threads: None = as PyTorch chooses."""

    out: Path
    resume: bool = False
    checkpoint_every: int = 200
    log_every: int = 10
    validate_every: int = 500
    threads: int | None = None

    def __post_init__(self) -> None:
        for name in ("checkpoint_every", "log_every", "validate_every"):
            if getattr(self, name) < 1:
                raise ArchitectureError(f"{name} is {getattr(self, name)}, must be at least 1")
        if self.threads is not None and self.threads < 1:
            raise ArchitectureError(f"threads is {self.threads}, must be at least 1")


def cpu_name() -> str | None:
    """What the CPU calls itself; None where the system does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)


def bf16_in_hardware() -> bool:
    """Whether the CPU multiplies bf16 matrices: AVX-512 BF16, AMX, or the Arm extension."""
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split()
    except OSError:
        return False
    return not {"avx512_bf16", "amx_bf16", "bf16"}.isdisjoint(flags)
