"""`cflow compare`: runs of several machines side by side, or a run against its base."""

from pathlib import Path
from typing import Annotated

import typer

from cli.console import EXIT_FAILED, JsonOption, message, print_json


def compare(
    directories: Annotated[list[Path], typer.Argument(help="Folders of runs, each with results.json.")],
    base: Annotated[
        bool,
        typer.Option(
            "--base",
            help="Two runs on one machine, the first of them the base: what moved, with intervals. "
            "Exit code 1 on a confirmed loss.",
        ),
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Write a page, FILE.html.", metavar="FILE")] = None,
    json: JsonOption = False,
) -> None:
    """Compare runs: claim by machine, where they disagree and what goes with it. Nothing is averaged.

    Runs of different profiles and the same run twice are refused, checks declared otherwise are left out;
    other commits, uncommitted changes and clocks that cannot be right are marked.
    """
    # Slow to import: only the commands that need it pay.
    from cli.compare_table import print_comparison
    from reports.compare import compare as compare_runs
    from reports.compare import refuse_target, write_page

    if out is not None:
        refuse_target(out)
    found = compare_runs(directories, based=base)
    if json:
        print_json(found.to_json())
    else:
        print_comparison(found)
    if out is not None:
        write_page(found, out)
        message(f"wrote {out}")
    if found.losses:
        raise typer.Exit(EXIT_FAILED)
