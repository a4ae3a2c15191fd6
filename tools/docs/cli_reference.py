"""The reference of the `cflow` command, from the command itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from cli.main import app
from tools.docs.markdown import code, escaped, fence, table


def cli_reference() -> str:
    """Every command with its arguments, options and example, in the order of `cflow --help`."""
    return "\n".join(_section(context) for context in leaf_contexts())


def leaf_contexts() -> Iterator[Any]:
    """The context of each command that does something: groups are only the way to theirs."""
    root = typer.main.get_command(app)
    yield from _leaves(root.context_class(root, info_name="cflow"))


def _leaves(context: Any) -> Iterator[Any]:
    children = getattr(context.command, "commands", None)
    if children is None:
        yield context
        return
    for name, command in children.items():
        yield from _leaves(command.context_class(command, info_name=name, parent=context))


def _section(context: Any) -> str:
    command = context.command
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    parts = [f"## {context.command_path}\n", _prose(command.help or ""), fence(usage, "text")]
    for title, kind in (("Argument", "argument"), ("Option", "option")):
        records = [one.get_help_record(context) for one in command.params if one.param_type_name == kind]
        rows = [(code(record[0]), escaped(record[1])) for record in records if record is not None]
        if rows:
            parts.append(table((title, "Meaning"), rows))
    if command.epilog:
        parts.append(_prose(command.epilog.replace("Example: ", "Example:\n\n    ")))
    return "\n".join(parts)


def _prose(text: str) -> str:
    """Paragraphs; lines that are indented stay code."""
    paragraphs = (part for part in text.split("\n\n") if part.strip())
    return "\n".join(part + "\n" if part.startswith("    ") else escaped(part) + "\n" for part in paragraphs)
