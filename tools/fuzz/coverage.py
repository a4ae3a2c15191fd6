"""Line coverage of the sources that a target is there for, by clang's source-based coverage."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from tools.build_engine import BuildError
from tools.fuzz.run import Runner
from tools.fuzz.targets import build_targets

C_FLAGS = "-fprofile-instr-generate -fcoverage-mapping"


def measure_lines(runner: Runner, compiler: str, build_dir: Path) -> dict[str, dict[str, float]]:
    """Runs all inputs once in a build of its own: lines, covered ones and percent, by source file.

    Raises BuildError: no llvm-profdata or llvm-cov of that compiler, or a program failed.
    """
    program = build_targets(build_dir, compiler, C_FLAGS) / runner.target.program
    raw, merged = runner.work / "coverage.profraw", runner.work / "coverage.profdata"
    environment = {**os.environ, "LLVM_PROFILE_FILE": str(raw), "TMPDIR": str(runner.work)}
    _output([str(program), "-runs=0", str(runner.corpus), str(runner.target.corpus)], environment)
    _output([_tool(compiler, "llvm-profdata"), "merge", "-o", str(merged), str(raw)])
    shown = _output(
        [_tool(compiler, "llvm-cov"), "export", "-summary-only", f"-instr-profile={merged}", str(program)]
    )
    lines: dict[str, dict[str, float]] = {}
    for file in json.loads(shown)["data"][0]["files"]:
        name = Path(file["filename"]).name
        if name in runner.target.reads:
            counts = file["summary"]["lines"]
            lines[name] = {
                "lines": counts["count"],
                "covered": counts["covered"],
                "percent": round(counts["percent"], 1),
            }
    return lines


def _tool(compiler: str, name: str) -> str:
    """The tool of the same version as the compiler."""
    shown = subprocess.run([compiler, f"-print-prog-name={name}"], capture_output=True, text=True, check=True)
    path = shown.stdout.strip()
    if not Path(path).is_absolute():
        raise BuildError(
            f"{compiler} has no {name} (Debian, Ubuntu: apt install {compiler.replace('clang', 'llvm')})"
        )
    return path


def _output(command: list[str], environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)} exited with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout
