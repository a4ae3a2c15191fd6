"""Parity: the engine's logits against PyTorch's, on the same weights of trained models."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import pytest

from claims.conftest import Measure
from claims.parity_cells import cell_inputs, choice_cell, logits_cell, perplexity_cell
from claims.parity_trace import EXACT, PINNED, SIX, TEXT_TOKENS, Observed, Trace, observe
from claims.run import ClaimsRun
from claims.trained import TrainedModels, text_tokens
from harness.evidence import Counted, Evidence
from harness.reductions import Reduction
from harness.verdict import NotMeasurable

SMOKE_TOKENS = 128
PINNED_LIMITS = (
    "Width 64, a vocabulary of bytes, 120 steps of training on a page of text: arithmetic, not scale.",
    "PyTorch ran when the trace was made (python -m tools.pin_parity); the engine runs here.",
)
LIVE_LIMITS = ("Without --trained DIR the models are the small ones of the pinned trace, on another text.",)

Cells = Mapping[str, Evidence | NotMeasurable]
Pinned = Callable[[str, bool], Observed]


@pytest.fixture(scope="module")
def count(claims_run: ClaimsRun) -> int:
    """Tokens of a trace that this profile feeds."""
    return SMOKE_TOKENS if claims_run.profile == "smoke" else TEXT_TOKENS


@pytest.fixture(scope="module")
def expected(count: int) -> Callable[[str], Trace]:
    """The pinned trace of an architecture."""
    return functools.cache(lambda name: Trace.load(PINNED / f"{name}.npz").first(count))


@pytest.fixture(scope="module")
def pinned(expected: Callable[[str], Trace], claims_run: ClaimsRun) -> Pinned:
    """The engine on the pinned model of an architecture, without rounding (True) or with its defaults."""

    @functools.cache
    def get(name: str, exact: bool) -> Observed:
        options = {"threads": claims_run.threads, **(EXACT if exact else {})}
        return observe(PINNED / f"{name}.cflow", expected(name), **options)

    return get


# ---- the pinned trace ----


@pytest.mark.check("parity.logits")
def test_logits(measure: Measure, expected: Callable[[str], Trace], pinned: Pinned) -> None:
    measure(
        lambda: {name: logits_cell(name, expected(name), pinned(name, True)) for name in SIX}, PINNED_LIMITS
    )


@pytest.mark.check("parity.choice")
def test_choice(measure: Measure, expected: Callable[[str], Trace], pinned: Pinned) -> None:
    measure(
        lambda: {name: choice_cell(name, expected(name), pinned(name, True)) for name in SIX}, PINNED_LIMITS
    )


@pytest.mark.check("parity.perplexity")
def testperplexity_cell(measure: Measure, expected: Callable[[str], Trace], pinned: Pinned) -> None:
    measure(
        lambda: {name: perplexity_cell(name, expected(name), pinned(name, True), EXACT) for name in SIX},
        PINNED_LIMITS,
    )


@pytest.mark.check("parity.layers")
def test_layers(measure: Measure, expected: Callable[[str], Trace], pinned: Pinned) -> None:
    def cell(name: str) -> Counted:
        theirs, ours = expected(name), pinned(name, True)
        return Counted(
            method="norm of the residual stream behind each layer (arch1: of both) at the positions kept",
            inputs=cell_inputs(name, len(theirs.choices), EXACT),
            observations={
                "ours": ours.norms.ravel().tolist(),
                "PyTorch's": theirs.norms.ravel().tolist(),
            },
            reduction=Reduction("max_relative_error", ("ours", "PyTorch's")),
        )

    measure(lambda: {name: cell(name) for name in SIX}, PINNED_LIMITS)


@pytest.mark.check("parity.q8")
def test_q8(measure: Measure, expected: Callable[[str], Trace], pinned: Pinned) -> None:
    def produce() -> Cells:
        cells: dict[str, Evidence | NotMeasurable] = {}
        for name in SIX:
            theirs, ours = expected(name), pinned(name, False)
            cells[f"{name}, error"] = Counted(
                method="|ours - PyTorch's| / |PyTorch's| over the logits of a position; activations in q8, "
                "keys and values in f16",
                inputs=cell_inputs(name, len(theirs.choices), {}),
                observations={"error": ours.errors.tolist()},
                reduction=Reduction("median", ("error",)),
            )
            cells[f"{name}, perplexity"] = perplexity_cell(name, theirs, ours, {})
        return cells

    measure(produce, PINNED_LIMITS)


# ---- PyTorch here ----


@pytest.mark.check("parity.live")
def test_live(measure: Measure, trained: TrainedModels | None, claims_run: ClaimsRun, count: int) -> None:
    def produce() -> Cells:
        cells: dict[str, Evidence | NotMeasurable] = {}
        for name in SIX:
            cells |= _live(name, trained, claims_run.threads, count)
        return cells

    measure(produce, LIVE_LIMITS)


def _live(name: str, trained: TrainedModels | None, threads: int, count: int) -> Cells:
    from claims import parity_torch

    path = PINNED / f"{name}.cflow" if trained is None else trained.get(name)
    if path is None:
        reason = NotMeasurable(f"--trained has no model called {name}")
        return {f"{name}, logits": reason, f"{name}, choice": reason}
    tokens = text_tokens(path, count + 1)
    theirs = parity_torch.trace(path, tokens, every=1)
    ours = observe(path, theirs, threads=threads, **EXACT)
    return {
        f"{name}, logits": logits_cell(path.stem, theirs, ours),
        f"{name}, choice": choice_cell(path.stem, theirs, ours),
    }
