"""Test another build of the engine: `tox -e sanitize`, `tox -e simde`, `tox -e aarch64`, `tox -e tsan`.

Builds the variant, runs the native tests (tests/c), then pytest with CFLOW_LIBRARY pointing at it. Before
that the library must name the variant in cflow_build_info(): a run cannot pass on the ordinary build. Builds
that Python cannot load are in tools.foreign (another processor) and tools.races (ThreadSanitizer).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tools.build_engine import ROOT, BuildError, build_engine
from tools.foreign import AARCH64, run_foreign
from tools.races import run_races


@dataclass(frozen=True)
class Variant:
    """How a variant is built and what is run on it."""

    options: dict[str, str]
    """Options of CMakeLists.txt."""
    build_info: str
    """What cflow_build_info() must contain."""
    pytest_arguments: tuple[str, ...]
    """Arguments of pytest unless the caller gives others."""
    compiler: str | None = None
    preload: tuple[str, ...] = ()
    """Libraries of `compiler` that must be loaded before the interpreter's own."""


VARIANTS = {
    "sanitize": Variant(
        options={"CFLOW_SANITIZE": "address,undefined"},
        build_info="-fsanitize=address,undefined",
        # The folders whose tests call the engine; those of the others would only run the interpreter slowly.
        pytest_arguments=("tests/engine/", "tests/cli/", "-m", "not no_sanitizer"),
        compiler="gcc",
        # AddressSanitizer looks for the C++ exception functions when it starts; extension modules bring
        # them too late.
        preload=("libasan.so", "libstdc++.so.6"),
    ),
    "simde": Variant(
        options={"CFLOW_SIMDE": "ON"},
        build_info="SIMDe",
        pytest_arguments=("tests/engine/",),
    ),
}

FOREIGN = {"aarch64": AARCH64}
RACES = "tsan"

SANITIZER_SETTINGS = {
    # The interpreter frees little at exit. A failed allocation is the engine's to report.
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


def variant_environment(variant: Variant, library: Path) -> dict[str, str]:
    """The environment of the interpreter that tests `library`. Raises BuildError without the runtimes."""
    environment = {**os.environ, "CFLOW_LIBRARY": str(library)}
    if variant.preload:
        environment["LD_PRELOAD"] = " ".join(
            _compiler_library(variant.compiler or "cc", name) for name in variant.preload
        )
        environment.update(SANITIZER_SETTINGS)
    return environment


def _compiler_library(compiler: str, name: str) -> str:
    shown = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    path = Path(shown.stdout.strip())
    if not path.is_absolute():
        raise BuildError(f"{compiler} has no {name}: install the sanitizer runtime that belongs to it")
    return str(path.resolve())


def run_variant(variant: Variant, build_dir: Path, pytest_arguments: list[str]) -> int:
    """Build and test; return 0 when all passes, else 1. Raises BuildError."""
    if variant.compiler is not None and shutil.which(variant.compiler) is None:
        raise BuildError(
            f"{variant.compiler} is not installed (Debian, Ubuntu: apt install {variant.compiler})"
        )
    library = build_engine(build_dir, {**variant.options, "CFLOW_TESTS": "ON"}, compiler=variant.compiler)
    environment = variant_environment(variant, library.resolve())

    ask = "from engine.native import lib; print(lib().cflow_build_info().decode())"
    shown = subprocess.run(
        [sys.executable, "-c", ask], env=environment, cwd=ROOT, capture_output=True, text=True
    )
    if shown.returncode != 0 or variant.build_info not in shown.stdout:
        raise BuildError(f"not the engine that was built here: {(shown.stdout + shown.stderr).strip()}")
    print(f"engine under test: {shown.stdout.strip()}", flush=True)

    native = ["ctest", "--test-dir", str(build_dir), "--output-on-failure", "--no-tests=error"]
    # --capture=sys leaves file descriptor 2 alone: what a sanitizer says is not lost when the process dies.
    python = [
        sys.executable,
        "-m",
        "pytest",
        "--capture=sys",
        *(pytest_arguments or variant.pytest_arguments),
    ]
    for command, settings in ((native, {**os.environ, **SANITIZER_SETTINGS}), (python, environment)):
        done = subprocess.run(command, env=settings, cwd=ROOT, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            print(f"variant: {' '.join(command)} exited with {done.returncode}", file=sys.stderr)
            return 1
    return 0


def main() -> int:
    """Command line; exit code 2 with one message when a tool is missing or the build fails."""
    parser = argparse.ArgumentParser(prog="python -m tools.variant", description=__doc__)
    parser.add_argument("variant", choices=sorted([*VARIANTS, *FOREIGN, RACES]))
    parser.add_argument("build_dir", type=Path)
    parser.add_argument("pytest_arguments", nargs=argparse.REMAINDER, help="instead of the usual ones")
    arguments = parser.parse_args()
    try:
        if arguments.variant in FOREIGN:
            return run_foreign(FOREIGN[arguments.variant], arguments.build_dir, arguments.pytest_arguments)
        if arguments.variant == RACES:
            return run_races(arguments.build_dir, arguments.pytest_arguments)
        return run_variant(VARIANTS[arguments.variant], arguments.build_dir, arguments.pytest_arguments)
    except BuildError as error:
        print(f"variant {arguments.variant}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
