"""Style, types, and builds with warnings as errors: `tox -e lint`; `tox -e lint -- STEP...` for some.

Every step runs, whatever the others found. A tool that is not installed skips its step with a note; the
exit code is 1 when a step failed.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.build_engine import CLANGS, ROOT, BuildError, build_engine

CLANG_FORMAT_MAJOR = 19
"""Versions of clang-format disagree about the same configuration; pyproject.toml pins this one."""


WORKFLOW_SCHEMA = ("--builtin-schema", "vendor.github-workflows")
"""That which the tool brings along: nothing is fetched."""


class MissingToolError(Exception):
    """The step cannot run here; the message says what is missing."""


class StepError(Exception):
    """The step found faults; the message shows them."""


@dataclass(frozen=True)
class Step:
    """One named check. `run` returns when it passes and raises MissingToolError or StepError otherwise."""

    name: str
    run: Callable[[], None]


def c_files(root: Path = ROOT) -> list[Path]:
    """The C sources and headers that are ours."""
    folders = ("engine/include", "engine/src", "engine/src/driver", "tests/c", "cmake", "fuzz")
    found = (path for folder in folders for path in (root / folder).rglob("*"))
    return sorted(path for path in found if path.suffix in {".c", ".h", ".inl"})


def shell_scripts(root: Path = ROOT) -> list[Path]:
    """The shell scripts that are ours."""
    found = (path for folder in ("tools", "harness") for path in (root / folder).rglob("*.sh"))
    return [root / ".ci/run", *sorted(found)]


def workflows(root: Path = ROOT) -> list[str]:
    """The workflows of GitHub Actions."""
    return sorted(map(str, (root / ".github/workflows").glob("*.yml")))


def run_module(module: str, *arguments: str) -> None:
    """Run an installed Python tool over the checkout."""
    if importlib.util.find_spec(module) is None:
        raise MissingToolError(f"{module} is not installed (pip install {module})")
    _run([sys.executable, "-m", module, *arguments])


def check_shell() -> None:
    """shellcheck has nothing to say about the scripts."""
    if shutil.which("shellcheck") is None:
        raise MissingToolError("shellcheck is not installed (Debian, Ubuntu: apt install shellcheck)")
    _run(["shellcheck", *map(str, shell_scripts())])


def check_c_format() -> None:
    """clang-format changes nothing."""
    tool = shutil.which("clang-format") or shutil.which(f"clang-format-{CLANG_FORMAT_MAJOR}")
    if tool is None:
        raise MissingToolError(
            f"clang-format is not installed (pip install 'clang-format=={CLANG_FORMAT_MAJOR}.*')"
        )
    version = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if f"version {CLANG_FORMAT_MAJOR}." not in version:
        raise MissingToolError(f"needs clang-format {CLANG_FORMAT_MAJOR}, found: {version}")
    _run([tool, "--dry-run", "-Werror", *map(str, c_files())])


def check_warnings(compilers: tuple[str, ...]) -> None:
    """The first of these compilers that is installed builds library and native tests without a warning."""
    compiler = next(filter(shutil.which, compilers), None)
    if compiler is None:
        raise MissingToolError(
            f"{compilers[0]} is not installed (Debian, Ubuntu: apt install {compilers[0]})"
        )
    with tempfile.TemporaryDirectory(prefix="cflow-lint-") as folder:
        try:
            build_engine(Path(folder), {"CFLOW_WERROR": "ON", "CFLOW_TESTS": "ON"}, compiler=compiler)
        except BuildError as error:
            raise StepError(str(error)) from error


def _run(command: list[str]) -> None:
    done = subprocess.run(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        raise StepError(done.stdout.strip())


STEPS = (
    Step("ruff check", lambda: run_module("ruff", "check", ".")),
    Step("ruff format", lambda: run_module("ruff", "format", "--check", ".")),
    Step("mypy --strict", lambda: run_module("mypy")),
    Step("workflow schema", lambda: run_module("check_jsonschema", *WORKFLOW_SCHEMA, *workflows())),
    Step("shellcheck", check_shell),
    Step("clang-format", check_c_format),
    Step("gcc -Werror", lambda: check_warnings(("gcc",))),
    Step("clang -Werror", lambda: check_warnings(CLANGS)),
)


def run_steps(steps: tuple[Step, ...]) -> int:
    """Run all steps, print one line each and a summary last; return the exit code."""
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for step in steps:
        outcome, detail = "passed", ""
        try:
            step.run()
        except MissingToolError as missing:
            outcome, detail = "skipped", f": {missing}"
        except StepError as failure:
            outcome, detail = "failed", f"\n{failure}"
        counts[outcome] += 1
        print(f"{step.name}: {outcome}{detail}", flush=True)
    print(", ".join(f"{number} {outcome}" for outcome, number in counts.items()), flush=True)
    return 1 if counts["failed"] else 0


def main(names: Sequence[str]) -> int:
    """Runs the steps of these names, or all of them without a name. Exit code 2: there is no such step."""
    known = {step.name: step for step in STEPS}
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"lint: no step {unknown[0]!r}; steps are {', '.join(known)}", file=sys.stderr)
        return 2
    return run_steps(tuple(known[name] for name in names) or STEPS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
