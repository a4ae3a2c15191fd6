"""End to end: the paper's ranking of engines on different models, and what of it is left on the same weights.

The figures of a profile come from a few runs of rounds (claims/contest.py), measured by whichever check asks
first.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pytest

from claims.conftest import Measure
from claims.contest import (
    DENSE,
    LLAMACPP_DENSE,
    LLAMACPP_OWN,
    LLAMACPP_SAME_MOE,
    MOE,
    MOE_MAPPED,
    OWN,
    SAME_MOE,
    VLLM_DENSE,
    VLLM_OWN,
    Contest,
    byte_lead,
    gigabytes_per_s,
    lead,
    tokens_per_s,
)
from claims.contest_models import MODELS, Shape
from claims.decode_child import TOKENS, ChildError, peak_of
from claims.run import ClaimsRun, Found
from claims.timing import timed_cells
from engine.hf_forms import HfForm
from engine.model import Model
from engine.session import Session
from harness.evidence import Counted, Kernel
from harness.reductions import Reduction
from harness.rounds import Figure, Side, weight_bytes
from harness.verdict import NotMeasurable

DIFFERENT_MODELS = "Different models, as in the paper: this says nothing of the engines by itself."
RANDOM_WEIGHTS = "Random weights: speed depends on bytes, shapes and routing, not on what the weights mean."
ROWS = (MOE, LLAMACPP_DENSE, DENSE, *(VLLM_DENSE[form] for form in (HfForm.INT4, HfForm.INT8, HfForm.BF16)))
OTHER_TOKENS = (
    "vLLM's weights are made from the same values, in formats of its own; it decodes its own greedy tokens."
)
COUNTED_TOKENS = (11, 454)
MIB = 2.0**20


@pytest.fixture(scope="module")
def contest(claims_run: ClaimsRun) -> Contest:
    return Contest(claims_run, claims_run.gguf, claims_run.hf)


def viewed(contest: Contest, check: str, figures: Mapping[str, Figure]) -> Found:
    """The figures of a check by label."""
    return timed_cells(
        (label, partial(contest.view, check, label, figure)) for label, figure in figures.items()
    )


@pytest.mark.check("e2e.ranking")
def test_ranking(measure: Measure, contest: Contest) -> None:
    figures = {
        "cflow, MoE, over llama.cpp, dense: different models": lead(MOE, LLAMACPP_DENSE),
        **{
            f"llama.cpp over vLLM {form}, the same dense model": lead(LLAMACPP_DENSE, arm)
            for form, arm in VLLM_DENSE.items()
        },
    }
    measure(
        lambda: viewed(contest, "e2e.ranking", figures),
        [
            DIFFERENT_MODELS,
            RANDOM_WEIGHTS,
            OTHER_TOKENS,
            "Models of a smaller profile than paper are smaller, in the same proportion.",
        ],
    )


@pytest.mark.check("e2e.tokens")
def test_tokens(measure: Measure, contest: Contest) -> None:
    figures = {name: tokens_per_s(name) for name in ROWS}
    measure(lambda: viewed(contest, "e2e.tokens", figures), [DIFFERENT_MODELS, RANDOM_WEIGHTS])


@pytest.mark.check("e2e.bytes")
def test_bytes(measure: Measure, contest: Contest) -> None:
    figures = {name: gigabytes_per_s(name) for name in ROWS}
    measure(
        lambda: viewed(contest, "e2e.bytes", figures),
        ["Each engine's own bytes: what it stores for the weights that a token needs; keys and values not."],
    )


@pytest.mark.check("e2e.bytes_ranking")
def test_bytes_ranking(measure: Measure, contest: Contest) -> None:
    figures = {
        "cflow over llama.cpp": byte_lead(DENSE, LLAMACPP_DENSE),
        **{f"llama.cpp over vLLM {form}": byte_lead(LLAMACPP_DENSE, arm) for form, arm in VLLM_DENSE.items()},
    }
    measure(lambda: viewed(contest, "e2e.bytes_ranking", figures), [RANDOM_WEIGHTS, OTHER_TOKENS])


@pytest.mark.check("e2e.same_moe")
def test_same_moe(measure: Measure, contest: Contest) -> None:
    figure = lead(SAME_MOE, LLAMACPP_SAME_MOE)
    measure(
        lambda: contest.view("e2e.same_moe", "", figure),
        [
            RANDOM_WEIGHTS,
            "Not the paper's MoE: other engines know neither its delays nor GeGLU, nor a dense FFN beside "
            "experts.",
        ],
    )


@pytest.mark.check("e2e.active")
def test_active(measure: Measure, claims_run: ClaimsRun) -> None:
    def counted(shape: Shape) -> int:
        """Weight bytes of the tokens."""
        with (
            Model(shape.cflow(claims_run.cache)) as model,
            Session(model, threads=claims_run.threads, context=len(COUNTED_TOKENS)) as session,
        ):
            for token in COUNTED_TOKENS:
                session.decode([token])
            return weight_bytes(session.counters())

    def produce() -> Found:
        models = MODELS[claims_run.profile]
        return Counted(
            method="weight bytes of all streams, counted by the workers where they call the kernels",
            inputs={
                "dense": models.dense.name,
                "MoE": models.moe.name,
                "tokens": len(COUNTED_TOKENS),
                "active weights, dense": models.dense.active_weights,
                "active weights, MoE": models.moe.active_weights,
            },
            observations={"dense_bytes": counted(models.dense), "moe_bytes": counted(models.moe)},
            reduction=Reduction("ratio", ("dense_bytes", "moe_bytes")),
        )

    measure(produce, ["The f32 router, norms and the row of the embedding are in the bytes."])


@pytest.mark.check("e2e.decomposition")
def test_decomposition(measure: Measure, contest: Contest) -> None:
    figures = {
        "lead: tokens per second, cflow, MoE, over llama.cpp, dense": lead(MOE, LLAMACPP_DENSE),
        "engines per weight byte: cflow, MoE, over llama.cpp, dense": byte_lead(MOE, LLAMACPP_DENSE),
        "model: tokens per second of cflow, MoE over dense": lead(MOE, DENSE),
        "engine: tokens per second, cflow over llama.cpp, the same dense weights": lead(
            DENSE, LLAMACPP_DENSE
        ),
    }
    measure(
        lambda: viewed(contest, "e2e.decomposition", figures),
        [
            "The lead is the model times the engine; it is also the fewer weight bytes (e2e.active) times "
            "the engines per weight byte.",
            "Where the rounds of the parts are not the same, their product is the lead within the intervals.",
        ],
    )


@pytest.mark.check("e2e.memory")
def test_memory(measure: Measure, claims_run: ClaimsRun) -> None:
    def produce() -> Found:
        path = MODELS[claims_run.profile].moe.cflow(claims_run.cache)
        try:
            found = peak_of(path, claims_run.threads)
        except ChildError as error:
            return NotMeasurable(str(error))
        return Kernel(
            method="VmHWM of /proc/self/status in a process that decodes, residency mmap",
            inputs={"model": path.stem, "tokens": TOKENS, "threads": claims_run.threads},
            observations={
                "peak_resident_mib": found.peak_resident_bytes / MIB,
                "file_and_kv_mib": [found.file_bytes / MIB, found.kv_bytes / MIB],
                "anonymous_mib": found.anonymous_bytes / MIB,
            },
            reduction=Reduction("difference", ("peak_resident_mib", "file_and_kv_mib")),
        )

    measure(produce, ["Pages of the file count once they are touched: experts never routed to do not."])


@pytest.mark.check("e2e.speed_30b")
def test_speed_30b(measure: Measure, contest: Contest) -> None:
    figures = {
        "tokens per second": tokens_per_s(MOE_MAPPED),
        "share of the roof": Figure(Side(MOE_MAPPED, "bandwidth"), "roof"),
    }
    measure(lambda: viewed(contest, "e2e.speed_30b", figures), [RANDOM_WEIGHTS])


@pytest.mark.check("e2e.own")
def test_own(measure: Measure, contest: Contest) -> None:
    figures = {
        "cflow over llama.cpp, the same weights": lead(OWN, LLAMACPP_OWN),
        OWN: tokens_per_s(OWN),
        LLAMACPP_OWN: tokens_per_s(LLAMACPP_OWN),
        VLLM_OWN: tokens_per_s(VLLM_OWN),
    }
    measure(lambda: viewed(contest, "e2e.own", figures))
