"""Runs the commands of docs/tutorial.md and puts their output into it: `python -m tools.docs.tutorial`.

A block of the tutorial that is fenced as `console` holds a command behind `$ ` and what it printed. They run
in order in one new folder, by bash, with `cflow`, `pytest` and `python` of this Python; an output that has
changed is replaced. A comment above a block says what a test may ask of it:

    <!-- same -->      the words of the output are the same on every machine
    <!-- numbers -->   it is, but for its numbers
    <!-- minutes -->   it takes longer than a test should, or needs what took so long
    <!-- exit 1 -->    with either: the exit code, 0 otherwise

Blocks without `same` or `numbers` are only run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.build_engine import ROOT

TUTORIAL = ROOT / "docs/tutorial.md"
_BLOCK = re.compile(
    r"(?P<marks>(?:<!-- [a-z0-9 ]+ -->\n)*)"
    r"```console\n\$ (?P<command>(?:.*\\\n)*.*)\n(?P<output>(?:.*\n)*?)```\n"
)
_COLUMNS = 100


@dataclass(frozen=True)
class Block:
    """A command with the output that the document shows. start, end: of the output in the text."""

    command: str
    output: str
    marks: frozenset[str]
    start: int
    end: int

    @property
    def exit_code(self) -> int:
        """What the command must exit with."""
        return next((int(mark.split()[1]) for mark in self.marks if mark.startswith("exit ")), 0)


class TutorialError(Exception):
    """A command did not end as the document says; the message shows what it printed."""


def blocks(text: str) -> list[Block]:
    """The commands of the document, in order."""
    return [
        Block(
            match["command"],
            match["output"],
            frozenset(re.findall(r"<!-- ([a-z0-9 ]+) -->", match["marks"])),
            match.start("output"),
            match.end("output"),
        )
        for match in _BLOCK.finditer(text)
    ]


def environment(tools: Path) -> Mapping[str, str]:
    """The variables that put the commands of this Python, in folder `tools`, in front of all others."""
    tools.mkdir()
    for name, arguments in (("cflow", "-m cli.main"), ("pytest", "-m pytest"), ("python", "")):
        script = tools / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "COLUMNS": str(_COLUMNS),
        "NO_COLOR": "1",
    }


def work_folder(parent: Path) -> Path:
    """A new folder in which pytest finds the claims, and which the commands may fill."""
    folder = parent / "here"
    folder.mkdir()
    for name in ("claims", "pyproject.toml"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def run(block: Block, folder: Path, variables: Mapping[str, str]) -> str:
    """What the command prints, notes included. Raises TutorialError for another exit code."""
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", block.command],
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != block.exit_code:
        raise TutorialError(
            f"{block.command}: exit code {done.returncode}, not {block.exit_code}\n{done.stdout}"
        )
    return done.stdout


def filled(text: str, folder: Path, variables: Mapping[str, str]) -> Iterator[str]:
    """The document with the outputs of now, in pieces."""
    position = 0
    for block in blocks(text):
        print(f"$ {block.command}", flush=True)
        output = run(block, folder, variables)
        yield text[position : block.start] + "".join(f"{line.rstrip()}\n" for line in output.splitlines())
        position = block.end
    yield text[position:]


def main() -> int:
    """Writes the tutorial anew. Exit code 1: a command failed, and nothing is written."""
    text = TUTORIAL.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="cflow-tutorial-") as name:
        folder = work_folder(Path(name))
        try:
            TUTORIAL.write_text(
                "".join(filled(text, folder, environment(Path(name, "tools")))), encoding="utf-8"
            )
        except TutorialError as error:
            print(f"tutorial: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
