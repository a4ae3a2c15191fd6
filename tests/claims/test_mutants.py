"""The engine built wrong on purpose: each mutant must turn the verdict of the claim that it breaks."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.check import check
from tests.claims.mutants import MUTANTS, RECORDED
from tests.claims.running import run_claims
from tools.build_engine import build_engine

pytestmark = pytest.mark.no_sanitizer

# What the right engine says, so that a verdict that is always the same cannot pass for a caught mutant.
HEALTHY = {
    "1.addresses": "SUPPORTED",
    "1.bytes": "SUPPORTED",
    "1.resident": "SUPPORTED",
    "1.trained": "SUPPORTED",
    "2.l1.simulated": "SUPPORTED",
    "3.agree_f32": "SUPPORTED",
    "3.agree_q8": "SUPPORTED",
    "4.bytes": "SUPPORTED",
    "4.equal": "SUPPORTED",
    "4.l1": "SUPPORTED",
    "4.loads": "SUPPORTED",
    "5.order": "SUPPORTED",
    "5.order_staged": "SUPPORTED",
    "6.hint_places": "SUPPORTED",
    "6.hint_reads": "SUPPORTED",
    "6.walk_reads": "SUPPORTED",
    "7.law": "SUPPORTED",
    "7.overlap_tokens": "SUPPORTED",
    "7.overlap_window": "SUPPORTED",
    "7.traffic": "SUPPORTED",
    "7.trained": "SUPPORTED",
    "8.walk": "SUPPORTED",
    "e2e.active": "SUPPORTED",
    "parity.choice": "SUPPORTED",
    "parity.layers": "SUPPORTED",
    "parity.logits": "SUPPORTED",
    "parity.perplexity": "SUPPORTED",
}


def verdicts(out: Path) -> dict[str, tuple[str, float]]:
    rows = check(out)["claims"]
    return {item["id"]: (item["verdict"], item["value"]) for row in rows for item in row["checks"]}


def measured(out: Path, checks: tuple[str, ...], library: Path | None) -> dict[str, tuple[str, float]]:
    only = [word for name in checks for word in ("--only", name)]
    env = {} if library is None else {"CFLOW_LIBRARY": str(library)}
    done = run_claims("--out", str(out), "--record-only", *only, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return verdicts(out)


def test_the_right_engine_is_supported(tmp_path: Path) -> None:
    found = measured(tmp_path / "run", (*HEALTHY, "7.path"), None)
    assert {name: found[name][0] for name in HEALTHY} == HEALTHY
    assert found["7.path"] == ("REFUTED", pytest.approx(4 / 3))


@pytest.fixture(scope="module")
def build_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all mutants: most of their sources are the same."""
    return tmp_path_factory.mktemp("mutants") / "build"


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutant_is_caught(tmp_path: Path, build_dir: Path, mutant: str) -> None:
    turned, untouched = MUTANTS[mutant]
    target = None if mutant in RECORDED else "cflow"
    library = build_engine(build_dir, {"CFLOW_MUTANT": mutant}, target=target, fresh=False)
    found = measured(tmp_path / "run", (*turned, *untouched), library)
    for name in turned:
        assert found[name][0] == "REFUTED", name
    for name in untouched:
        assert found[name][0] == HEALTHY[name], name
    if mutant == "delay_off_by_one":
        # REFUTED either way: the wrong schedule shows in the figure, no delay of the dense FFN is left.
        assert found["7.path"][1] == pytest.approx(1.0)
