"""Runs for the tests of training; or `python -m tests.architectures.training OUT TOKENS STEPS`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from architectures.arguments import Arguments, Options
from architectures.prepared import open_prepared
from architectures.processes import processes
from architectures.table import PRESETS
from architectures.trainer import train

VOCAB = 300


def use_small_preset() -> None:
    """Adds the preset `small_test`: d = 32, 300 ids."""
    PRESETS["small_test"] = replace(PRESETS["tiny"], d_model=32, heads=2, vocab=VOCAB, batch=4, sequence=16)


def small_arguments(steps: int, architecture: str = "arch2_4_combined", **given: Any) -> Arguments:
    """f32, seed 0, preset `small_test`."""
    use_small_preset()
    return Arguments.of(architecture, "small_test", steps, 0, **{"precision": "f32", **given})


def run(out: Path, tokens: Path, arguments: Arguments, **options: Any) -> dict[str, Any]:
    """Trains in this process, or as one of torchrun's."""
    chosen = {"checkpoint_every": 4, "log_every": 1, "validate_every": 8, "threads": 1, **options}
    with processes() as group:
        return train(arguments, Options(out, **chosen), open_prepared(tokens), group)


if __name__ == "__main__":
    run(Path(sys.argv[1]), Path(sys.argv[2]), small_arguments(int(sys.argv[3])), resume=len(sys.argv) > 4)
