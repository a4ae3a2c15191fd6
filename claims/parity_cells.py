"""Cells of the parity claim: the engine's results beside PyTorch's."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from claims.parity_trace import EXACT, NEAR_TIE, Observed, Trace
from engine.session import OptionValue
from harness.evidence import Counted
from harness.reductions import Reduction, Scalar


def cell_inputs(
    name: str, tokens: int, options: Mapping[str, OptionValue]
) -> dict[str, Scalar | bool | None]:
    """What identifies a cell: its model, weights, tokens and session options."""
    words = " ".join(f"{key}={value}" for key, value in options.items())
    return {"model": name, "weights": "q4_0, dequantised", "tokens": tokens, "options": words or "defaults"}


def logits_cell(name: str, theirs: Trace, ours: Observed) -> Counted:
    """The largest relative norm error of the logits of a position."""
    return Counted(
        method="|ours - PyTorch's| / |PyTorch's| over the logits of each position that is kept",
        inputs=cell_inputs(name, len(theirs.choices), EXACT),
        observations={"error": ours.errors.tolist(), "position": theirs.positions.tolist()},
        reduction=Reduction("max", ("error",)),
    )


def choice_cell(name: str, theirs: Trace, ours: Observed) -> Counted:
    """How many greedy choices differ, near ties left out."""
    exempt = theirs.exempt
    listed = ", ".join(str(position) for position in np.flatnonzero(exempt))
    return Counted(
        method="argmax of every position, without those where the top two logits or the experts k and k + 1 "
        f"are within {NEAR_TIE:g} of each other, relatively",
        inputs={**cell_inputs(name, len(theirs.choices), EXACT), "exempt": listed or "none"},
        observations={
            "ours": ours.choices[~exempt].tolist(),
            "PyTorch's": theirs.choices[~exempt].tolist(),
        },
        reduction=Reduction("count_unequal", ("ours", "PyTorch's")),
    )


def perplexity_cell(name: str, theirs: Trace, ours: Observed, options: Mapping[str, OptionValue]) -> Counted:
    """The engine's perplexity over PyTorch's."""
    return Counted(
        method="exp of the mean of -ln p of the next token, the engine's over PyTorch's",
        inputs=cell_inputs(name, len(theirs.choices), options),
        observations={
            "ours": float(np.exp(ours.nats.mean())),
            "PyTorch's": float(np.exp(theirs.nats.mean())),
        },
        reduction=Reduction("ratio", ("ours", "PyTorch's")),
    )
