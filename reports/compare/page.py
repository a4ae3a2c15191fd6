"""The page of a comparison: one self-contained file, as the report of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from harness.errors import ComparisonError
from harness.results import write_atomically
from reports.compare import base_view, view
from reports.compare.comparison import Comparison
from reports.environment import environment

SUFFIXES: Final = (".html", ".htm")


def to_html(found: Comparison) -> str:
    """The page. The same runs always give the same bytes."""
    shown: dict[str, Any] = {
        "based": found.based,
        "profile": found.runs[0].results.run["profile"],
        "names": [run.name for run in found.runs],
        "runs": view.runs_table(found),
        "marks": view.marks_table(found),
        "claims": view.claim_rows(found),
        "facts": view.facts_table(found),
        "tables": view.check_tables(found),
        "refused": view.refused_table(found),
    }
    shown["notes"] = any(row.note for row in shown["claims"])
    if found.based:
        shown |= {
            "sentence": base_view.sentence(found),
            "forest": base_view.forest(found),
            "moves": base_view.moves_table(found),
            "changes": base_view.changes_table(found),
        }
    else:
        shown |= {
            "sentence": view.sentence(found),
            "differences": view.differences_table(found),
            "association": view.ASSOCIATION,
        }
    return environment().get_template("compare.html.j2").render(shown)


def write_page(found: Comparison, target: Path) -> None:
    """Writes the page of a comparison, atomically.

    Raises:
        ComparisonError: no name of a page, or no folder. OSError: it cannot be written.
    """
    refuse_target(target)
    write_atomically(target, to_html(found))


def refuse_target(target: Path) -> None:
    """Raises ComparisonError for a target that is no page, such as a results.json, or lies in no folder."""
    if target.suffix.lower() not in SUFFIXES:
        raise ComparisonError(f"--out: found {target}, allowed: a name that ends in {' or '.join(SUFFIXES)}")
    if not target.absolute().parent.is_dir():
        raise ComparisonError(f"--out: {target.parent} is no folder")
