"""The commands of the tutorial run, and print what it says they print."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tools.docs.tutorial import TUTORIAL, TutorialError, blocks, environment, run, work_folder

AGAIN = "run `python -m tools.docs.tutorial` and look at what it changes"
EXAMPLE = """text
<!-- same -->
<!-- exit 1 -->
```console
$ false && \\
  echo
```
more
```console
$ echo a
a
```
"""


def words(output: str, marks: frozenset[str]) -> list[str]:
    """The words of an output; where numbers may differ all are the same. Lines may be folded otherwise."""
    return (re.sub(r"\d+(?:\.\d+)?", "#", output) if "numbers" in marks else output).split()


@pytest.mark.no_sanitizer
def test_commands_print_what_the_tutorial_shows(tmp_path: Path) -> None:
    variables = environment(tmp_path / "tools")
    folder = work_folder(tmp_path)
    compared = 0
    for block in blocks(TUTORIAL.read_text(encoding="utf-8")):
        if "minutes" in block.marks:  # the claims at the smoke profile are a stage of their own
            continue
        found = run(block, folder, variables)
        if block.marks & {"same", "numbers"}:
            compared += 1
            assert words(found, block.marks) == words(block.output, block.marks), f"{block.command}: {AGAIN}"
        else:
            assert block.output.strip(), f"{block.command}: {AGAIN}"
    assert compared >= 7


def test_blocks_are_read_with_marks_and_outputs() -> None:
    first, second = blocks(EXAMPLE)
    assert (first.command, first.output, first.exit_code) == ("false && \\\n  echo", "", 1)
    assert (second.command, second.output, second.exit_code) == ("echo a", "a\n", 0)
    assert first.marks == {"same", "exit 1"} and second.marks == frozenset()
    assert EXAMPLE[second.start : second.end] == "a\n"


def test_another_exit_code_is_an_error(tmp_path: Path) -> None:
    variables = environment(tmp_path / "tools")
    failing, echoing = blocks(EXAMPLE)
    assert run(failing, tmp_path, variables) == ""
    with pytest.raises(TutorialError, match="echo a: exit code 0, not 1\na"):
        run(replace(echoing, marks=frozenset({"exit 1"})), tmp_path, variables)
    with pytest.raises(TutorialError, match="exit code 3, not 0"):
        run(replace(echoing, command="(exit 3) | cat"), tmp_path, variables)
