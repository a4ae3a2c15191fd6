"""What is said of llama.cpp, run as a user runs it: refuted on its layouts, and nothing without llama.cpp."""

from __future__ import annotations

from pathlib import Path

import pytest

import harness
from harness.check import check
from tests.claims.running import run_claims

pytestmark = pytest.mark.no_sanitizer


def test_row_major_is_judged_and_experts_need_llamacpp(tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = run_claims(
        *("--profile", "quick", "--out", str(out), "--only", "1.llamacpp", "--only", "2.l1.llamacpp"),
        env={"CFLOW_BASELINES": str(tmp_path / "none")},
    )
    assert done.returncode == 1, done.stdout + done.stderr
    results = harness.load(out)
    assert results.verdict("1.llamacpp") == (
        "NOT MEASURABLE HERE",
        "llama.cpp is not installed: run `cflow baseline install llama.cpp`",
    )
    assert results.verdict("2.l1.llamacpp")[0] == "REFUTED"
    record = results.record("2.l1.llamacpp")
    assert record is not None
    panels, rows = (cell["value"] for cell in record["cells"])
    assert 1.1 < panels < 1.4
    assert 2.5 < rows < 3.2
    assert check(out)["problems"] == []
