"""The section of the projection: which machine, under which assumptions, and the figure."""

from __future__ import annotations

from typing import Final

from harness.results import Results
from reports import exact, figures
from reports.model import Fact, Projection, check_anchor

CHECK_ID: Final = "0.projection"


def projection(results: Results) -> Projection | None:
    """The section, None when the run holds no projection."""
    drawn = figures.of(results, "projection")
    record = results.record(CHECK_ID)
    cells = [cell for cell in record["cells"] if cell["evidence"] is not None] if record else []
    if not cells or not drawn:
        return None
    inputs = cells[0]["evidence"]["inputs"]
    return Projection(
        anchor=check_anchor(CHECK_ID),
        machine=str(inputs["machine"]),
        assumptions=(
            Fact("Assumed roof", str(inputs["assumed roofs"])),
            Fact("Share of it", f"{exact.scalar(inputs['share of the roof'])}, {inputs['the share is']}"),
            Fact("Formula", str(cells[0]["evidence"]["method"])),
        ),
        figures=drawn,
    )
