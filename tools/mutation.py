"""Mutation testing of the statistics and the second opinion: `tox -e mutation`.

mutmut changes one thing at a time in the modules of tools/mutation.toml and runs the tests that reach it.
What no test notices is a survivor; each must be judged in tools/mutation.toml, or the outcome is a failure.
The work folder keeps the results: a run that was stopped (Ctrl-C) goes on, and what did not change stays.
"""

from __future__ import annotations

import argparse
import collections
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
TABLE = Path(__file__).with_suffix(".toml")
OUTCOME = "mutation.json"
LOCK = ".lock"
FAILED, USAGE_ERROR = 1, 2
SURVIVED, NO_TEST = (0,), (5, 33)
"""Exit codes of a mutant's tests as mutmut keeps them; with any other one a test noticed, or never ended."""


@dataclass(frozen=True)
class Change:
    """What a mutant does to a function: one line for another."""

    function: str
    removed: str
    added: str


def read_table(path: Path = TABLE) -> tuple[list[str], list[str], dict[Change, str]]:
    """Modules, test modules, and the judged survivors with why each is tolerated."""
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    judged = {
        Change(one["function"], one["removed"], added): one["why"]
        for one in table["survivor"]
        for added in ([one["added"]] if isinstance(one["added"], str) else one["added"])
    }
    return table["modules"], table["tests"], judged


def function_of(mutant: str) -> str:
    """`harness.statistics.x_median__mutmut_3` is of harness.statistics.median; methods name their class."""
    module, _, rest = mutant.rpartition(".")
    name = rest.rsplit("__mutmut_", 1)[0]
    return f"{module}.{'.'.join(name.split('ǁ')[1:]) if name.startswith('xǁ') else name.removeprefix('x_')}"


def change_of(mutant: str, diff: str) -> Change:
    """The change of a mutant, from the unified diff that mutmut shows."""
    lines = [line for line in diff.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    sides = [" ".join(line[1:].strip() for line in lines if line[0] == sign) for sign in "-+"]
    return Change(function_of(mutant), *sides)


def copy_tree(work: Path, modules: Sequence[str], tests: Sequence[str]) -> None:
    """Brings the checkout into the work folder, touching only what differs, and configures mutmut there."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        source, target = ROOT / name, work / name
        if name == "pyproject.toml" or not source.is_file():
            continue
        if not target.is_file() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    settings = {
        "source_paths": ["harness"],
        "only_mutate": list(modules),
        "also_copy": ["architectures", "baselines", "claims", "cli", "docs", "engine", "reports", "tools"],
        "pytest_add_cli_args": ["-p", "no:cacheprovider", "--hypothesis-profile", "no_shrinking"],
        "pytest_add_cli_args_test_selection": list(tests),
        # A mutant is given up after twice this times the processor time of its tests (mutmut's own: 15): one
        # that never ends costs as much as dozens of others.
        "timeout_multiplier": 2,
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    own = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    text = own + "\n[tool.mutmut]\n" + "\n".join(lines) + "\n"
    (work / "pyproject.toml").write_text(text, encoding="utf-8")


def mutmut(work: Path, *arguments: str, quiet: bool = False) -> subprocess.CompletedProcess[str]:
    """mutmut in the work folder, with the tree there first on the path: its tests test that."""
    # The library is found from the checkout, wherever its name was relative to.
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), "."]))}
    if "CFLOW_LIBRARY" in env:
        env["CFLOW_LIBRARY"] = str(Path(env["CFLOW_LIBRARY"]).resolve())
    command = [sys.executable, "-m", "mutmut", *arguments]
    return subprocess.run(command, cwd=work, env=env, text=True, capture_output=quiet, check=False)


def exit_codes(work: Path, modules: Iterable[str]) -> dict[str, int | None]:
    """Mutant -> exit code of its tests, None when they have not run."""
    found: dict[str, int | None] = {}
    for module in modules:
        path = work / "mutants" / f"{module}.meta"
        if path.is_file():
            found.update(json.loads(path.read_text(encoding="utf-8"))["exit_code_by_key"])
    return found


def names_to_run(codes: Mapping[str, int | None], modules: Sequence[str], *, again: bool) -> list[str] | None:
    """What mutmut is asked to run: it runs again what is named, and of all only what has not run.

    codes: of the modules asked for. modules: empty = all. again: the survivors. None: nothing is left.
    """
    if again:
        return [mutant for mutant, code in codes.items() if code in (*SURVIVED, *NO_TEST)] or None
    not_run = [mutant for mutant, code in codes.items() if code is None]
    whole = [f"{name.removesuffix('.py').replace('/', '.')}.*" for name in modules]
    return not_run if modules and not_run else whole


def outcome(
    codes: Mapping[str, int | None], survivors: Mapping[str, Change], judged: Mapping[Change, str]
) -> dict[str, Any]:
    """Counts by module, and the survivors that nobody has judged."""
    modules: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for mutant, code in codes.items():
        word = "not_run" if code is None else "no_test" if code in NO_TEST else "noticed"
        modules[mutant.rpartition(".")[0]]["survived" if code in SURVIVED else word] += 1
    unjudged = [
        {"mutant": mutant, **vars(change)} for mutant, change in survivors.items() if change not in judged
    ]
    return {"modules": {name: dict(counts) for name, counts in modules.items()}, "unjudged": unjudged}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what has not run yet, and says what survived. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutation", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="as harness/shift.py; default: all")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "mutation", help="keeps what has run")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="mutants at a time")
    parser.add_argument("--again", action="store_true", help="run the survivors again, after better tests")
    parser.add_argument("--report", action="store_true", help="run nothing, say what is known")
    options = parser.parse_args(arguments)
    modules, tests, judged = read_table()
    unknown = [name for name in options.modules if name not in modules]
    if unknown or options.jobs < 1:
        parser.error(f"found {unknown or options.jobs}, allowed: {', '.join(modules)}; --jobs from 1")
    wanted = options.modules or modules
    work: Path = options.work
    work.mkdir(parents=True, exist_ok=True)
    if not options.report:
        with (work / LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                parser.error(f"{work}: another run works there, each would overwrite what the other finds")
            copy_tree(work, modules, tests)
            names = names_to_run(exit_codes(work, wanted), options.modules, again=options.again)
            arguments = ["--max-children", str(options.jobs), *(names or [])]
            if names is not None and mutmut(work, "run", *arguments).returncode:
                sys.stderr.write("mutmut failed or was stopped; the same command goes on\n")
                return USAGE_ERROR
    codes = exit_codes(work, wanted)
    alive = [mutant for mutant, code in codes.items() if code in (*SURVIVED, *NO_TEST)]
    survivors = {
        mutant: change_of(mutant, mutmut(work, "show", mutant, quiet=True).stdout) for mutant in alive
    }
    found_out = outcome(codes, survivors, judged)
    (work / OUTCOME).write_text(json.dumps(found_out, indent=1) + "\n", encoding="utf-8")
    for name, counts in found_out["modules"].items():
        sys.stdout.write(
            f"{name}: {', '.join(f'{word} {count}' for word, count in sorted(counts.items()))}\n"
        )
    for one in found_out["unjudged"]:
        sys.stdout.write(f"{one['mutant']}\n- {one['removed']}\n+ {one['added']}\n")
    incomplete = not options.report and (not codes or None in codes.values())
    return FAILED if found_out["unjudged"] or incomplete else 0


if __name__ == "__main__":
    sys.exit(main())
