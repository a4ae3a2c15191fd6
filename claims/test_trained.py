"""Claims 1 and 7 on trained experts: real text and routing that was learnt, beside their synthetic models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from claims.conftest import Measure
from claims.experts import ExpertBank, routing_entropy, traced_reads, words
from claims.models import smollm2
from claims.parity_trace import PINNED
from claims.run import ClaimsRun, Found
from claims.trained import TrainedModels, text_tokens
from engine.enums import Param
from engine.errors import FileError
from engine.model import Model
from engine.perplexity import perplexity
from engine.session import Session
from harness.evidence import Counted
from harness.reductions import Reduction
from harness.rounds import STREAM_BYTE_COUNTERS
from harness.verdict import NotMeasurable

DELAYED = ("arch2_4_combined", "arch2_4_sync", "arch4")
"""With a block for each layer and delays; the first one that there is."""
SMALL = PINNED / f"{DELAYED[0]}.cflow"
TOKENS = {"smoke": 16, "quick": 48, "full": 256, "paper": 256}
UNDELAYED = "arch5"
"""Trained at (0, 0), with the delayed equations: the one of the six whose experts can be delayed later."""
RETROFIT_TOKENS = 512
RETROFIT_LIMITS = (
    "Some hundred tokens of one text; SmolLM2 has 30 layers, arch5 applies its two blocks three times each.",
    "Nothing was trained further: a model that is trained on with its delays may recover.",
)
LIMITS = ("The small model is the one of the parity claim: width 64, 4 experts, trained on a page of text.",)


def _cells(trained: TrainedModels | None, cell: Callable[[Path], Counted]) -> Found:
    given: Counted | NotMeasurable
    if trained is None:
        given = NotMeasurable("no trained model was named by --trained DIR")
    else:
        path = next((trained[name] for name in DELAYED if name in trained), None)
        given = NotMeasurable(f"--trained has none of {', '.join(DELAYED)}") if path is None else cell(path)
    return {"small": cell(SMALL), "--trained": given}


@pytest.mark.check("1.trained")
def test_addresses(measure: Measure, claims_run: ClaimsRun, trained: TrainedModels | None) -> None:
    count = TOKENS[claims_run.profile]

    def cell(path: Path) -> Counted:
        ids = text_tokens(path, count)
        with Model(path) as model, Session(model, threads=claims_run.threads, context=count) as session:
            bank = ExpertBank(model)
            reads = traced_reads(session, bank, ids)
            per_token, name = model.param(Param.EXPERTS_PER_TOKEN), model.name
        return Counted(
            method="distinct addresses of the trace that the workers record where they call the kernel",
            inputs={
                "model": name,
                "tokens": count,
                "k / E": per_token / bank.experts,
                "routing entropy over log E": routing_entropy([r.routed for r in reads], bank.experts),
            },
            observations={
                "loaded": [words(read.experts, read.bytes) for read in reads],
                "routed": [words(read.routed, per_token * bank.expert_bytes) for read in reads],
            },
            reduction=Reduction("count_unequal", ("loaded", "routed")),
        )

    measure(lambda: _cells(trained, cell), LIMITS)


@pytest.mark.check("7.trained")
def test_traffic(measure: Measure, claims_run: ClaimsRun, trained: TrainedModels | None) -> None:
    count = TOKENS[claims_run.profile]

    def total_bytes(model: Model, ids: list[int], dense_delay: int, expert_delay: int) -> int:
        delays = {"dense_delay": dense_delay, "expert_delay": expert_delay}
        with Session(model, threads=claims_run.threads, context=count, **delays) as session:
            for token in ids:
                session.decode([token])
            counters = session.counters()
        return sum(counters[name] for name in STREAM_BYTE_COUNTERS)

    def cell(path: Path) -> Counted:
        ids = text_tokens(path, count)
        with Model(path) as model:
            return Counted(
                method="weight bytes of all streams over the tokens, counted by the workers",
                inputs={"model": model.name, "tokens": count},
                observations={
                    "at_0_0_bytes": total_bytes(model, ids, 0, 0),
                    "at_1_2_bytes": total_bytes(model, ids, 1, 2),
                },
                reduction=Reduction("ratio", ("at_0_0_bytes", "at_1_2_bytes")),
            )

    measure(lambda: _cells(trained, cell), LIMITS)


@pytest.mark.check("7.untrained_delays")
def test_untrained_delays(measure: Measure, claims_run: ClaimsRun, trained: TrainedModels | None) -> None:
    def perplexity_at(path: Path, **delays: int) -> float:
        ids = text_tokens(path, RETROFIT_TOKENS + 1)
        window = RETROFIT_TOKENS
        with Model(path) as model:
            window = min(window, model.context)
            with Session(model, threads=claims_run.threads, context=window, **delays) as session:
                return perplexity(session, ids, window, window).value

    def cell(path: Path, **delays: int) -> Counted:
        with Model(path) as model:
            name = model.name
        return Counted(
            method="perplexity of the texts of the claims with the delays of the model and with another one",
            inputs={"model": name, "tokens": RETROFIT_TOKENS, **delays},
            observations={"delayed": perplexity_at(path, **delays), "as_trained": perplexity_at(path)},
            reduction=Reduction("ratio", ("delayed", "as_trained")),
        )

    def produce() -> Found:
        cells: dict[str, Counted | NotMeasurable] = {}
        try:
            cells["SmolLM2, dense delay 1"] = cell(smollm2(claims_run.cache), dense_delay=1)
        except FileError as error:
            cells["SmolLM2, dense delay 1"] = NotMeasurable(str(error))
        given = None if trained is None else trained.get(UNDELAYED)
        for delay in (1, 2):
            cells[f"small, expert delay {delay}"] = cell(PINNED / f"{UNDELAYED}.cflow", expert_delay=delay)
            cells[f"--trained, expert delay {delay}"] = (
                NotMeasurable(f"--trained names no {UNDELAYED}")
                if given is None
                else cell(given, expert_delay=delay)
            )
        return cells

    measure(produce, RETROFIT_LIMITS)
