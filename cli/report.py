"""`cflow report`: the HTML report of a run, or its tables for other tools."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cli.console import JsonOption, UsageError, print_json


class TableFormat(StrEnum):
    """What tables are written as."""

    CSV = "csv"
    PARQUET = "parquet"


def report(
    directory: Annotated[Path, typer.Argument(help="The folder of a run, with results.json.")],
    export: Annotated[
        TableFormat | None,
        typer.Option(
            help="Write tables instead of the page: checks, cells, rounds, observations, and columns, which "
            "says what each column means.",
        ),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(help="Where the tables go.  [default: DIRECTORY/export]", metavar="DIR"),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write report.html into the folder of a run; one file that needs no network and no script.

    With --export, write the run as tidy tables instead, one observation a row.
    """
    if to is not None and export is None:
        raise UsageError("--to says where tables go: it needs --export csv or --export parquet")
    if export is None:
        from reports import render  # slow to import: only the commands that need it pay

        path = render(directory)
        if json:
            print_json({"report": str(path)})
        else:
            print(path)
        return
    _export(directory, export, directory / "export" if to is None else to, json)


def _export(directory: Path, wanted: TableFormat, folder: Path, json: bool) -> None:
    import harness
    from reports import export

    missing = export.missing_package(wanted.value)
    if missing:
        raise UsageError(f"--export {missing}")
    written = export.export(harness.load(directory), wanted.value, folder)
    if json:
        found = [
            {"name": one.name, "path": str(one.path), "rows": one.rows, "columns": list(one.columns)}
            for one in written
        ]
        print_json({"tables": found})
    else:
        for one in written:
            print(one.path)
