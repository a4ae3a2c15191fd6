"""The projection to the paper's machine, which measures nothing."""

from __future__ import annotations

import pytest

from claims.conftest import Measure
from claims.models import schedule_session
from claims.projection import ASSUMED_SHARE, MODELS, measured_share, projected
from claims.run import ClaimsRun, Found


@pytest.mark.check("0.projection")
def test_projection(measure: Measure, claims_run: ClaimsRun) -> None:
    def produce() -> Found:
        found = measured_share(claims_run.recorder.record("3.roof"))
        share = ASSUMED_SHARE if found is None else found
        share_is = "assumed" if found is None else "measured by 3.roof in this run, on this machine"
        cells = {}
        for label, geometry in MODELS.items():
            with schedule_session(geometry, claims_run.cache) as session:
                weight_bytes = sum(piece.bytes for piece in session.schedule())
            cells[label] = projected(weight_bytes, share, share_is, geometry)
        return cells

    measure(
        produce,
        (
            "Nothing was run on r6i.8xlarge: roof and share are assumptions, the bytes alone are counted.",
            "3.roof measures one matrix; a token also waits at barriers, reads its KV cache and attends.",
            "A share measured here need not hold there, with other cores and other memory.",
            "The paper's 5.94 tok/s is of its own engine; it does not state the roof of that machine.",
        ),
    )
