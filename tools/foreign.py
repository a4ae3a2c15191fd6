"""Build the engine for another processor and test it under an emulator: `tox -e aarch64`.

The native tests run on a processor that has the vector instructions and on one that has not; then pytest
compares what the foreign program decodes with what the engine of this machine does. Where the cross compiler
or the emulator is missing nothing is tested, and one line says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tools.build_engine import ROOT, build_engine


@dataclass(frozen=True)
class Foreign:
    """Another processor: how to build for it, and what is run on it."""

    toolchain: str
    """The toolchain file, which names compiler and emulator."""
    programs: dict[str, str]
    """What is needed of each: program -> Debian package."""
    native_tests: dict[str, tuple[str, str]]
    """Processor, as QEMU_CPU names it -> arguments of ctest that choose the native tests which run on it."""


AARCH64 = Foreign(
    toolchain="cmake/aarch64.cmake",
    programs={
        "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
        "qemu-aarch64": "qemu-user",
    },
    native_tests={
        # Faults of reads wait for seconds, and know nothing of processors.
        "max": ("--exclude-regex", "_faults$"),
        # Without dot products the scalar path is left, which has no code of its own for this processor.
        "cortex-a72": ("--tests-regex", "test_(attention|kernels|probe_loops)$"),
    },
)


def run_foreign(foreign: Foreign, build_dir: Path, pytest_arguments: list[str]) -> int:
    """Build and test; return 0 when all passes or nothing can be tested, else 1. Raises BuildError."""
    missing = [program for program in foreign.programs if shutil.which(program) is None]
    if missing:
        packages = " ".join(foreign.programs[program] for program in missing)
        print(f"left out: not installed: {', '.join(missing)} (Debian, Ubuntu: apt install {packages})")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    options = {
        "CMAKE_TOOLCHAIN_FILE": str(ROOT / foreign.toolchain),
        "CFLOW_TESTS": "ON",
        "CFLOW_WERROR": "ON",
    }
    build_engine(build_dir, options, target="cflow_tests")
    jobs = str(len(os.sched_getaffinity(0)))
    native = [
        "ctest",
        "--test-dir",
        str(build_dir),
        "--output-on-failure",
        "--no-tests=error",
        "--parallel",
        jobs,
    ]
    runs = [([*native, *chosen], {"QEMU_CPU": cpu}) for cpu, chosen in foreign.native_tests.items()]
    python = [sys.executable, "-m", "pytest", *(pytest_arguments or ["tests/foreign/"])]
    runs.append((python, {"CFLOW_FOREIGN": str(build_dir.resolve())}))
    for command, settings in runs:
        done = subprocess.run(command, env={**os.environ, **settings}, cwd=ROOT, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            shown = " ".join([*(f"{name}={value}" for name, value in settings.items()), *command])
            print(f"variant: {shown} exited with {done.returncode}", file=sys.stderr)
            return 1
    return 0
