"""Figures with two axes, drawn by matplotlib; charts that are rows beside text are the templates'.

A figure is a module with one function `NAME(results) -> Figure | None`, None when the run has nothing to
draw. It stands in FIGURES under the section of the page that it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from harness.results import Results
from reports.figures.l1 import l1
from reports.figures.overlap import overlap
from reports.figures.prefetch import prefetch
from reports.figures.projection import projection
from reports.figures.resident import resident
from reports.figures.roofline import roofline
from reports.figures.schedule import schedule
from reports.figures.streams import streams
from reports.figures.timeline import timeline
from reports.figures.training import training
from reports.model import Figure

Draw = Callable[[Results], Figure | None]

FIGURES: Final[Mapping[str, tuple[Draw, ...]]] = {
    "roofline": (roofline,),
    "projection": (projection,),
    "1": (resident,),
    "2": (l1,),
    "6": (prefetch,),
    "7": (schedule, timeline, overlap),
    "end_to_end": (streams,),
    "quality": (training,),
}
"""By claim id, or by a section of its own; in the order of the page."""


def of(results: Results, section: str) -> tuple[Figure, ...]:
    """The figures of a section that the run has something for."""
    made = (draw(results) for draw in FIGURES.get(section, ()))
    return tuple(figure for figure in made if figure is not None)
