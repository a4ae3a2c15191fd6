"""Build the engine with ThreadSanitizer and look for data races: `tox -e tsan`.

Native tests of pool, barrier, cache, events, reads and session, then sessions in random order
(tests/threads). Where clang is missing nothing is tested, and one line says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tools.build_engine import CLANGS, ROOT, build_engine

NATIVE_TESTS = "^(sanitizer_catches_race|test_(pool|cache|events|load|reader|reader_faults|session))$"
SETTINGS = {"TSAN_OPTIONS": "halt_on_error=0:exitcode=66:second_deadlock_stack=1"}
"""No suppressions: what it reports is a fault. What the kernel writes for io_uring it cannot see; the reads
of the threads it can, and both readers have the same front."""


def run_races(build_dir: Path, pytest_arguments: list[str]) -> int:
    """Build and test; return 0 when all passes or nothing can be tested, else 1. Raises BuildError."""
    compiler = next(filter(shutil.which, CLANGS), None)
    if compiler is None:
        print("left out: not installed: clang (Debian, Ubuntu: apt install clang)")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    options = {"CFLOW_SANITIZE": "thread", "CFLOW_TESTS": "ON", "CFLOW_WERROR": "ON"}
    build_engine(build_dir, options, compiler=compiler, target="cflow_races")
    native = ["ctest", "--test-dir", str(build_dir), "--output-on-failure", "--no-tests=error"]
    native += ["--tests-regex", NATIVE_TESTS]
    python = [sys.executable, "-m", "pytest", *(pytest_arguments or ["tests/threads/"])]
    for command in (native, python):
        environment = {**os.environ, **SETTINGS, "CFLOW_RACES": str(build_dir.resolve())}
        done = subprocess.run(command, env=environment, cwd=ROOT, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            print(f"variant: {' '.join(command)} exited with {done.returncode}", file=sys.stderr)
            return 1
    return 0
