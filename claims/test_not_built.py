"""The claims without a measurement so far: NOT MEASURABLE HERE, "not built yet", in table and report."""

from __future__ import annotations

import pytest

from claims.conftest import judge
from claims.run import REGISTRY_PATH, ClaimsRun
from harness.registry import load_registry

PENDING = [claim.id for claim in load_registry(REGISTRY_PATH).claims if not claim.built]


@pytest.mark.parametrize("claim_id", PENDING)
def test_claim(claim_id: str, claims_run: ClaimsRun, request: pytest.FixtureRequest) -> None:
    verdict, reason = claims_run.recorder.claim_verdict(claim_id)
    judge(verdict, reason, request.config)
