"""Build the C engine in a folder of its own, with any options of CMakeLists.txt.

Example: python -m tools.build_engine /tmp/wrong -D CFLOW_MUTANT=drop_last_columns
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The root of the checkout."""
CLANGS = ("clang", *(f"clang-{version}" for version in range(22, 13, -1)))
"""Names under which distributions install clang."""


class BuildError(Exception):
    """A build tool is missing or failed; the message holds the end of its output."""


def build_engine(
    build_dir: Path,
    options: Mapping[str, str] | None = None,
    *,
    source_dir: Path = ROOT,
    compiler: str | None = None,
    target: str | None = None,
    fresh: bool = True,
    configure_only: bool = False,
) -> Path:
    """Configure and build the engine; return the path of the shared library.

    build_dir: created when absent; a later call with other options configures it anew.
    options: CMake variables, e.g. {"CFLOW_MUTANT": "read_all_experts"}.
    compiler: a C compiler by name or path; by default CMake chooses (environment variable CC).
    target: all that is built, e.g. "cflow", the library without the recording one.
    fresh: False keeps the objects of an earlier build with the same compiler in that folder; with Ninja only
        what the options change is compiled.
    Raises BuildError.
    """
    cmake = shutil.which("cmake")
    if cmake is None:
        raise BuildError("cmake is not installed (Debian, Ubuntu: apt install cmake)")
    configure = [cmake, "-S", str(source_dir), "-B", str(build_dir)]
    configure.append("--fresh" if fresh else "-UCFLOW_*")
    configure += [f"-D{name}={value}" for name, value in (options or {}).items()]
    if compiler is not None:
        configure.append(f"-DCMAKE_C_COMPILER={compiler}")
    if shutil.which("ninja") is not None:
        configure.append("-GNinja")
    _run(configure)
    if not configure_only:
        build = [cmake, "--build", str(build_dir), "--parallel", str(len(os.sched_getaffinity(0)))]
        _run(build if target is None else [*build, "--target", target])
    return build_dir / ("libcflow.dylib" if sys.platform == "darwin" else "libcflow.so")


def _run(command: list[str]) -> None:
    # A preloaded sanitizer is for the process that tests, not for compilers.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        output = "\n".join((done.stdout + done.stderr).strip().splitlines()[-60:])
        raise BuildError(f"{' '.join(command)} exited with {done.returncode}:\n{output}")


def main() -> int:
    """Command line: print the path of the library, or the reason why there is none (exit code 2)."""
    parser = argparse.ArgumentParser(prog="python -m tools.build_engine", description=__doc__)
    parser.add_argument("build_dir", type=Path)
    parser.add_argument("-D", dest="options", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--compiler", help="C compiler, by name or path")
    arguments = parser.parse_args()
    options = dict(option.partition("=")[::2] for option in arguments.options)
    try:
        print(build_engine(arguments.build_dir, options, compiler=arguments.compiler))
    except BuildError as error:
        print(f"build_engine: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
