"""`cflow check`: derives every verdict of a run again, from its results.json alone."""

from pathlib import Path
from typing import Annotated, Any

import typer

from cli.console import EXIT_FAILED, JsonOption, message, one_line, print_json


def check(
    directory: Annotated[Path, typer.Argument(help="The folder of a run, with results.json.")],
    json: JsonOption = False,
) -> None:
    """Check a run independently. Exit code 1 when a verdict or figure does not follow from the raw data."""
    from harness.check import check as check_results  # slow to import: only the commands that need it pay

    found = check_results(directory)
    if json:
        print_json(found)
    else:
        for claim in found["claims"]:
            _print_claim(claim)
    problems = found["problems"]
    for problem in problems:
        where = "" if problem["check"] is None else f"{problem['check']}: "
        message(f"problem: {where}{problem['problem']}")
    if problems:
        raise typer.Exit(EXIT_FAILED)
    if not json:
        print("every verdict follows from the raw data")


def _print_claim(claim: dict[str, Any]) -> None:
    print(f"{one_line(claim['id']):<12} {claim['verdict']}")
    for item in claim["checks"]:
        beyond = "  (beyond)" if item["beyond"] else ""
        print(f"  {one_line(item['id']):<28} {item['verdict'] or 'recorded':<24} {_figure(item)}{beyond}")


def _figure(item: dict[str, Any]) -> str:
    if item["value"] is None:
        return ""
    interval = "" if item["low"] is None else f" [{item['low']:.4g}, {item['high']:.4g}]"
    return f"{item['value']:.4g}{interval} {one_line(item['unit'])}"
