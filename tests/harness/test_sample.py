"""The sample results that other tests read are what the code of today writes, and hold one of everything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import harness
from harness.check import check
from harness.kinds import KINDS, VERDICTS
from tests.harness.make_sample import SAMPLE_DIR, build_sample


def test_sample_is_up_to_date(tmp_path: Path) -> None:
    made = json.loads(build_sample(tmp_path).read_text(encoding="utf-8"))
    kept = json.loads((SAMPLE_DIR / "results.json").read_text(encoding="utf-8"))
    assert made == kept, "run: python -m tests.harness.make_sample"


def test_sample_holds_one_of_everything(sample_data: dict[str, Any]) -> None:
    checks = sample_data["checks"]
    assert {record["kind"] for record in checks} == set(KINDS)
    assert {record["verdict"] for record in checks} == {*VERDICTS, None}
    assert {claim["verdict"] for claim in sample_data["claims"]} == set(VERDICTS)
    assert any(not claim["built"] for claim in sample_data["claims"])
    voids = {
        void["rule"]
        for record in checks
        for cell in record["cells"]
        for one in (cell["evidence"] or {}).get("rounds", ())
        for void in one["void"]
    }
    assert voids == {"run_queue", "steal", "bandwidth_probe", "output"}
    assert any(len(record["cells"]) > 1 for record in checks)


def test_sample_passes_the_checker_and_loads() -> None:
    assert check(SAMPLE_DIR)["problems"] == []
    assert len(harness.load(SAMPLE_DIR).checks) == len(harness.load(str(SAMPLE_DIR)).data["checks"])
