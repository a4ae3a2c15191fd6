"""The one place that decides whether and how PyTorch is loaded."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os

from architectures.errors import TorchMissingError

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h


def torch_installed() -> bool:
    """Whether PyTorch, of the extra `train`, can be imported."""
    return importlib.util.find_spec("torch") is not None


def keep_freed_memory() -> None:
    """Has malloc keep what is freed instead of giving it back, where it is glibc's.

    Every step frees and allocates the same hundreds of MB; given back, their pages would be faulted in anew
    each time, which took a fifth of the time of a step. Blocks up to 32 MiB, the most that glibc takes here.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, 32 << 20)
        mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)


def require_torch() -> None:
    """To be called before the first import of a module that needs PyTorch. Raises TorchMissingError.

    Idle OpenMP threads sleep instead of spinning (OMP_WAIT_POLICY, which is read once, when PyTorch starts):
    a spinning thread takes the core from the one it waits for where there are fewer cores than threads.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if not torch_installed():
        raise TorchMissingError(
            "PyTorch is not installed: pip install '.[train]' (a build for CPUs is enough; where "
            "the package index offers none, take it from the index that pytorch.org names)"
        )
