"""Quality: what delays and routing cost or bring in perplexity, over seeds of small models trained alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from architectures.pytorch import torch_installed
from architectures.quality import SEEDS
from architectures.table import SIX
from claims.conftest import Measure, refuse
from claims.quality_cells import converged_cell, limits, perplexity_cell, ratio_cell
from claims.quality_live import STEPS, few_steps, train_into
from claims.quality_series import STORED, Series, read_series
from claims.run import ClaimsRun, Found
from engine.errors import CflowError
from harness.evidence import Counted
from harness.reductions import Reduction
from harness.verdict import NotMeasurable

COMBINED = "arch2_4_combined"


@pytest.fixture(scope="module")
def series(request: pytest.FixtureRequest, claims_run: ClaimsRun) -> Series:
    """The stored series, or that of --train DIR, trained to its end first; smoke judges neither."""
    folder: Path | None = request.config.getoption("train")
    try:
        if folder is None or claims_run.profile == "smoke":
            return read_series(STORED)
        return read_series(train_into(folder))
    except CflowError as error:
        refuse(str(error))


@pytest.mark.check("quality.expert_delay")
def test_expert_delay(measure: Measure, series: Series) -> None:
    measure(lambda: ratio_cell(series, COMBINED, "arch2_4_sync"), limits(series))


@pytest.mark.check("quality.delay_cost")
def test_delay_cost(measure: Measure, series: Series) -> None:
    measure(
        lambda: ratio_cell(series, COMBINED, "arch2_4_sync"),
        [*limits(series), "Asked after the stored series was seen, of the figure of quality.expert_delay."],
    )


@pytest.mark.check("quality.pre_dense")
def test_pre_dense(measure: Measure, series: Series) -> None:
    measure(lambda: ratio_cell(series, "arch4", "arch4_current"), limits(series))


@pytest.mark.check("quality.best")
def test_best(measure: Measure, series: Series) -> None:
    others = [name for name in SIX if name != COMBINED]
    measure(lambda: {name: ratio_cell(series, COMBINED, name) for name in others}, limits(series))


@pytest.mark.check("quality.converged")
def test_converged(measure: Measure, series: Series) -> None:
    measure(lambda: {name: converged_cell(series, name) for name in SEEDS}, limits(series))


@pytest.mark.check("quality.arch4_combined")
def test_arch4_combined(measure: Measure, series: Series) -> None:
    measure(lambda: ratio_cell(series, "arch4", COMBINED), limits(series))


@pytest.mark.check("quality.perplexity")
def test_perplexity(measure: Measure, series: Series) -> None:
    measure(lambda: {name: perplexity_cell(series, name) for name in SEEDS}, limits(series))


@pytest.mark.check("quality.trains")
def test_trains(measure: Measure) -> None:
    def produce() -> Found:
        if not torch_installed():
            return NotMeasurable("PyTorch is not installed: pip install '.[train]'")
        losses = few_steps(COMBINED)
        return Counted(
            method="steps of training with finite loss, balance and gradient; another one ends it",
            inputs={"architecture": COMBINED, "preset": "tiny", "steps": STEPS},
            observations={"finite": [int(step < len(losses)) for step in range(STEPS)], "loss": losses},
            reduction=Reduction("sum", ("finite",)),
        )

    measure(produce, (f"{STEPS} steps on a page of text: that training runs, nothing about quality.",))
