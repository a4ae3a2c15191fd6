"""`cflow baseline`: other engines that ours is compared with, each in an environment of its own."""

from typing import Annotated

import typer

from baselines.install import RECIPES, installed
from baselines.install import install as install_baseline
from baselines.install import remove as remove_baseline
from cli.completion import baseline_names
from cli.console import EXIT_USAGE, JsonOption, print_json, spinner

_NameArgument = Annotated[
    str, typer.Argument(help=f"One of: {', '.join(RECIPES)}.", autocompletion=baseline_names)
]

baseline = typer.Typer(
    name="baseline",
    help="Install, list and remove the engines that ours is compared with.",
    epilog="Example: cflow baseline install llama.cpp",
    invoke_without_command=True,
    rich_markup_mode=None,
)


@baseline.callback()
def _without_command(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(EXIT_USAGE)


@baseline.command(epilog="Example: cflow baseline install llama.cpp")
def install(name: _NameArgument) -> None:
    """Fetch a baseline into the cache folder (environment variable CFLOW_BASELINES), unless it is there.

    llama.cpp takes 30 MB, vllm some 3 GB and minutes. A second call repairs what a failed one left.
    """
    with spinner(f"installing {name}") as say:
        path, fetched = install_baseline(name, say)
    print(f"{name} {'installed' if fetched else 'already installed'} ({RECIPES[name].specifier}): {path}")


@baseline.command(epilog="Example: cflow baseline remove vllm")
def remove(name: _NameArgument) -> None:
    """Remove a baseline from the cache folder, and what tries to install it left there."""
    print(f"{name} {'removed' if remove_baseline(name) else 'was not there'}")


@baseline.command("list", epilog="Example: cflow baseline list --json")
def list_baselines(json: JsonOption = False) -> None:
    """List the baselines, and where they are installed."""
    paths = {name: installed(name) for name in RECIPES}
    if json:
        rows = [
            {
                "name": name,
                "package": RECIPES[name].package,
                "version": RECIPES[name].version,
                "path": None if path is None else str(path),
            }
            for name, path in paths.items()
        ]
        print_json({"baselines": rows})
        return
    for name, path in paths.items():
        print(f"{name:<12} {RECIPES[name].specifier:<34} {path or 'not installed'}")
