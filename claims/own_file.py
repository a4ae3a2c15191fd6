"""The user's own model: looked at before anything is measured, so that nothing fails an hour later."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from baselines.errors import BaselineError
from baselines.vllm_cpu import needed_bytes
from engine.convert_gguf import examine
from engine.errors import CflowError
from harness.machine import usable_memory_bytes

LEAST_CONTEXT: Final = 64
"""Positions that the rounds need, with a few to spare."""
_COPIES: Final = 2
"""Both engines hold the weights in memory."""


class UnfitError(Exception):
    """The machine does not hold the profile, or a file that was given cannot be measured on it."""


def check_own(path: Path, state: Mapping[str, Any]) -> None:
    """Raises UnfitError naming the file and what is wrong: no GGUF, cut short, of an architecture or type
    that does not work, too large for the machine. state: of the machine.
    """
    try:
        found = examine(path)
    except CflowError as error:
        raise UnfitError(f"--gguf: {error}") from None
    if found.context < LEAST_CONTEXT:
        raise UnfitError(f"--gguf: {path}: context is {found.context}, at least {LEAST_CONTEXT} are needed")
    size = path.stat().st_size
    free = state["storage"]["free_bytes"]
    available = usable_memory_bytes(state)
    if available is not None and available < _COPIES * size:
        raise UnfitError(
            f"--gguf: {path} has {size / 1e9:.1f} GB, which both engines hold: {_COPIES * size / 1e9:.1f} GB "
            f"of free RAM needed, {available / 1e9:.1f} GB found"
        )
    if free is not None and free < size:
        raise UnfitError(
            f"--gguf: {path} is converted: {size / 1e9:.1f} GB of free disk needed, {free / 1e9:.1f} GB found"
        )


def check_own_folder(path: Path, state: Mapping[str, Any]) -> None:
    """Raises UnfitError naming a folder that is no model for vLLM, or one too large for the machine."""
    try:
        needed = needed_bytes(path, LEAST_CONTEXT)
    except BaselineError as error:
        raise UnfitError(f"--hf: {error}") from None
    available = usable_memory_bytes(state)
    if available is not None and available < needed:
        raise UnfitError(
            f"--hf: {path}: about {needed / 1e9:.1f} GB of free RAM needed, {available / 1e9:.1f} GB found"
        )
