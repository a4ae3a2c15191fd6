"""Arguments of a run: the paper's schedule, defaults of the presets, and what is refused."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from architectures import arguments as module
from architectures.arguments import Arguments, Options
from architectures.errors import ArchitectureError


def test_paper_preset_is_the_training_of_the_paper() -> None:
    paper = Arguments.of("arch4", "paper", 10_000, 0)
    assert (paper.batch, paper.sequence, paper.lr, paper.warmup) == (8, 512, 3e-4, 200)
    rates = [paper.lr_at(step) for step in range(10_000)]
    assert rates[0] == pytest.approx(3e-4 / 200)
    assert [max(rates), rates[199], rates[200]] == pytest.approx([3e-4] * 3)
    assert rates[-1] == pytest.approx(1e-5)
    assert all(a >= b for a, b in zip(rates[200:], rates[201:], strict=False))


@pytest.mark.parametrize("steps", [1, 2, 9, 10, 11])
def test_short_runs_have_a_rate_above_zero_at_every_step(steps: int) -> None:
    short = Arguments.of("arch1", "tiny", steps, 0)
    assert all(0 < short.lr_at(step) <= short.lr for step in range(steps))


@pytest.mark.parametrize(("hardware", "precision"), [(True, "bf16"), (False, "f32")])
def test_bf16_is_taken_where_the_cpu_has_it(
    monkeypatch: pytest.MonkeyPatch, hardware: bool, precision: str
) -> None:
    monkeypatch.setattr(module, "bf16_in_hardware", lambda: hardware)
    assert Arguments.of("arch1", "tiny", 5, 0).precision == precision
    assert Arguments.of("arch1", "tiny", 5, 0, precision="auto").precision == precision
    assert Arguments.of("arch1", "tiny", 5, 0, precision="f32").precision == "f32"


def test_differences_are_named_with_both_values() -> None:
    arguments = Arguments.of("arch1", "tiny", 5, 0, precision="f32")
    assert arguments.differences(asdict(arguments)) == []
    assert arguments.differences(asdict(replace(arguments, seed=3))) == ["seed: 3, now 0"]
    older = asdict(arguments)
    del older["clip_norm"]
    assert arguments.differences(older) == ["clip_norm: None, now 1.0"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "steps is 0, must be at least 1"),
        ({"seed": -1}, "seed is -1"),
        ({"batch": 0}, "batch is 0"),
        ({"sequence": 513}, "sequence is 513, must be at most the context, 512"),
        ({"lr": 0.0}, "lr is 0.0"),
        ({"lr": float("nan")}, "lr is nan"),
        ({"precision": "f16"}, "precision is 'f16', must be bf16 or f32"),
        ({"architecture": "arch2"}, "architecture 'arch2' is unknown"),
        ({"preset": "big"}, "preset 'big' is unknown"),
    ],
)
def test_wrong_values_are_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ArchitectureError, match=message):
        replace(Arguments.of("arch1", "tiny", 5, 0), **changes)


@pytest.mark.parametrize("name", ["checkpoint_every", "log_every", "validate_every", "threads"])
def test_options_below_one_are_refused_by_name(name: str) -> None:
    with pytest.raises(ArchitectureError, match=f"{name} is 0, must be at least 1"):
        replace(Options(Path()), **{name: 0})
