"""Claim 7, timeline: one token of the sync and of the staged arm, event by event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import pytest

from claims.conftest import Measure
from claims.models import synthetic
from claims.overlap import Staging, open_staging, refused
from claims.overlap_grid import Cell, Grid
from claims.overlap_shapes import CONTEXT, SMALL, SMALL_WIDTH, WIDTHS
from claims.run import ClaimsRun
from claims.timeline import WORKERS, staging_timelines
from harness.cachestate import CacheStateError
from harness.evidence import Evidence
from harness.verdict import NotMeasurable

ARMS: Final = ("sync", "staged")
CELL: Final = Cell(500_000_000, 1, False)
"""Where computing takes about as long as reading: a cell of the overlap, whose model is there already."""
TOKENS: Final = 9


@contextmanager
def opened(run: ClaimsRun) -> Iterator[Staging]:
    """The sessions of CELL; in `smoke`, which has none of its models, those of the small one."""
    if run.profile in WIDTHS:
        with Grid(run).open(CELL) as staging:
            yield staging
    else:
        path = synthetic(run.cache, SMALL.name, SMALL.geometry(SMALL_WIDTH))
        options = {"threads": run.threads, "read_rate": CELL.rate, "context": CONTEXT}
        with open_staging(path, options) as staging:
            yield staging


@pytest.mark.check("7.timeline")
def test_timeline(measure: Measure, claims_run: ClaimsRun) -> None:
    def produce() -> Mapping[str, Evidence | NotMeasurable]:
        try:
            with opened(claims_run) as staging:
                reason = refused(staging.staged)
                if reason is not None:
                    return dict.fromkeys(ARMS, reason)
                return staging_timelines(staging, TOKENS, CELL.rate)
        except CacheStateError as error:
            return dict.fromkeys(ARMS, NotMeasurable(str(error)))

    measure(
        produce,
        limits=[
            f"One token, with what else the machine did meanwhile: that of the median time of {TOKENS}, the "
            "first one left out.",
            f"Merged: neighbouring pieces of one stream in a phase. {WORKERS} workers are kept of more.",
            "A read ends when an emulated device would have done it, or when it was noticed to be there.",
        ],
    )
