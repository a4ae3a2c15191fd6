"""What the commands share: messages, progress, JSON, and options that appear in several of them."""

import json
import re
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from engine.enums import Isa, Order
from engine.kernels import threads_default

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

_STEP_WIDTH = 60
_MESSAGE_CHARACTERS = 2000

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
ModelOption = Annotated[Path, typer.Option("--model", "-m", help="A .cflow or .vflow model.")]
IsaOption = Annotated[
    str | None,
    typer.Option(help=f"Instruction set: {', '.join(isa.name.lower() for isa in Isa)}. Default: the best."),
]


class Stages(StrEnum):
    """What a stage of a .vflow file is."""

    PHASE = "phase"
    KIND = "kind"


StagesOption = Annotated[
    Stages | None,
    typer.Option(
        help="Order of a .vflow file: phase by phase of the schedule, or kind of matrix by kind.",
        show_default=Stages.PHASE.value,
    ),
]


class UsageError(Exception):
    """An option or environment that a command cannot work with; one sentence for the user."""


def file_order(target: Path, stages: Stages | None) -> Order:
    """The order of the data in a file that is to be written: stage-major in one that ends in .vflow."""
    if target.suffix.lower() == ".vflow":
        return Order[(stages or Stages.PHASE).name]
    if stages is not None:
        raise UsageError(f"--stages: only a .vflow file has stages, {target} is none")
    return Order.LAYER


def one_line(text: str) -> str:
    """Text as one line that a terminal only shows: what came from a file may hold line ends or commands, and
    may be long: of that the middle is left out.
    """
    if len(text) > _MESSAGE_CHARACTERS:
        half = _MESSAGE_CHARACTERS // 2
        text = f"{text[:half]} ... {text[-half:]}"
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


def shown(text: str) -> str:
    """Text without commands to the terminal: control characters but line ends and tabs are written out."""
    return "".join(
        ascii(sign)[1:-1] if unicodedata.category(sign) == "Cc" and sign not in "\n\t" else sign
        for sign in text
    )


def message(text: str) -> None:
    """One line on stderr."""
    print(f"cflow: {one_line(text)}", file=sys.stderr)


def print_json(value: Any) -> None:
    """JSON on stdout."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    # json escapes the other control characters; these too are commands to some terminals.
    print(re.sub("[\x7f-\x9f]", lambda found: f"\\u{ord(found[0]):04x}", text))


def allowed_threads(wanted: int) -> int:
    """`wanted`, or the number of cores that this process may use when that is less; says so on stderr."""
    if wanted < 1:
        raise UsageError(f"--threads is {wanted}, must be at least 1")
    allowed = threads_default()
    if wanted > allowed:
        message(f"warning: --threads {wanted} is more than the {allowed} cores allowed here; using {allowed}")
    return min(wanted, allowed)


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A callback (done, total) that draws a bar on stderr when that is a terminal, and nothing otherwise."""
    console = Console(stderr=True)
    text = TextColumn("{task.description}", markup=False)  # the name of a file may look like markup
    columns = (text, BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=None)

        def advance(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        yield advance


@contextmanager
def spinner(what: str) -> Iterator[Callable[[str], None]]:
    """A callback that shows what is being done and for how long on stderr when that is a terminal; nothing
    otherwise.
    """
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=None)
        yield lambda step: progress.update(task, description=f"{what}: {step[:_STEP_WIDTH]}")


def mb(size_bytes: float) -> str:
    """A size for people, in MB or GB (powers of ten)."""
    return f"{size_bytes / 1e9:.2f} GB" if size_bytes >= 1e9 else f"{size_bytes / 1e6:.1f} MB"


def wrapped(text: str, head: str, width: int) -> list[str]:
    """The text as lines of at most `width` columns unless a word is wider, the later ones under the first.

    head: stands before the text.
    """
    return textwrap.wrap(
        text,
        width,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
    )
