"""What checks need of a machine or an installation: the words of `needs` in claims.toml."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from baselines.install import LLAMACPP, installed
from engine.direct_io import direct_alignment
from engine.enums import Isa, ReadPath
from engine.errors import CflowError
from engine.held import temporary_folder
from engine.kernels import isa_default, isa_supported
from engine.reads import MIB, Reads, consecutive, probe_reads
from engine.smollm2 import gguf_path
from harness import cachegrind
from harness.counters import process_io


def probed_reads(folder: Path) -> tuple[Reads, int | None]:
    """How the engine reads a file in `folder`, and the alignment that this needs, None where nobody tells.

    A file is written there, read, and removed. Raises OSError, CflowError.
    """
    with temporary_folder(folder, ".cflow-probe-") as made:
        path = made / "probe"
        with path.open("wb") as file:
            file.write(bytes(MIB))
            file.flush()
            os.fsync(file.fileno())
        return probe_reads(path, consecutive(MIB, MIB)), direct_alignment(path)


def _smollm2(_: Path) -> str | None:
    try:
        gguf_path()
    except CflowError as error:
        return str(error)
    return None


def _vector_isa(_: Path) -> str | None:
    return (
        "this CPU has no vector instruction set that the engine uses" if isa_default() is Isa.SCALAR else None
    )


def _avx2(_: Path) -> str | None:
    return None if isa_supported(Isa.AVX2) else "this CPU has no AVX2, for which these kernels are compiled"


def _llamacpp(_: Path) -> str | None:
    missing = installed(LLAMACPP) is None
    return f"llama.cpp is not installed: run `cflow baseline install {LLAMACPP}`" if missing else None


def _valgrind(_: Path) -> str | None:
    missing = "valgrind is not installed (Debian, Ubuntu: apt install valgrind)"
    return None if cachegrind.available() else missing


def _direct_reads(folder: Path) -> str | None:
    folder.mkdir(parents=True, exist_ok=True)
    past = probed_reads(folder)[0].path is ReadPath.DIRECT
    return None if past else f"{folder}: O_DIRECT is refused, reads go through a cache"


def _device_bytes(_: Path) -> str | None:
    missing = "the kernel does not count the bytes that this process fetches from storage"
    return missing if process_io() is None else None


def _torch(_: Path) -> str | None:
    missing = "PyTorch is not installed: pip install '.[train]'"
    return missing if importlib.util.find_spec("torch") is None else None


NEEDS: Final[Mapping[str, Callable[[Path], str | None]]] = {
    "smollm2": _smollm2,
    "vector_isa": _vector_isa,
    "avx2": _avx2,
    LLAMACPP: _llamacpp,
    "valgrind": _valgrind,
    "direct_reads": _direct_reads,
    "device_bytes": _device_bytes,
    "torch": _torch,
}
"""By name: why it is unmet, with the remedy, given the folder of the models; None when it is there."""


def unmet(needs: tuple[str, ...], folder: Path) -> str | None:
    """The first of these that this machine or installation lacks, with its remedy; None when all are there.

    folder: of the models. Raises KeyError for a word that is none of NEEDS, OSError for a folder that cannot
    be written.
    """
    return next((reason for reason in (NEEDS[need](folder) for need in needs) if reason is not None), None)
