"""`cflow report`: the HTML report of a run."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    directory: Annotated[Path, typer.Argument(help="The folder of a run, with results.json.")],
) -> None:
    """Write report.html into the folder of a run; one file, no network, no script."""
    from reports import render  # slow to import: only the commands that need it pay

    print(render(directory))
