"""The figures of a series of training runs, as evidence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict

from architectures.quality import SEEDS
from claims.quality_series import STORED, Series, TrainedRun
from harness.estimates import DIVERGED, RUNS
from harness.evidence import Counted, Derived, Evidence
from harness.reductions import Reduction, Scalar
from harness.verdict import NotMeasurable

_INTERVAL = "Student's interval for the mean over seeds"


def ratio_cell(series: Series, subject: str, reference: str) -> Derived:
    """Perplexity of `subject` over that of `reference`, over the seeds that both were trained with.

    Raises FormatError when runs of a seed did not see the same data.
    """
    pairs = series.pairs(subject, reference)
    missing = sum(SEEDS[arm] - len(series.arm(arm)) for arm in (subject, reference))
    # A figure outside of a target with two ends may be taken for a cost when it is a gain.
    lower = sum(ours < other for ours, other in zip(pairs.subject, pairs.reference, strict=True))
    return Derived(
        method=f"exp of the mean over seeds of log perplexity of {subject} minus that of {reference} on the "
        f"test text, trained with the same seed on the same data in the same order; {_INTERVAL}",
        inputs=_inputs(series),
        observations={
            subject: pairs.subject,
            reference: pairs.reference,
            "seed": pairs.seeds,
            **_named([*series.arm(subject), *series.arm(reference)]),
        },
        reduction=Reduction("exp_mean_difference", (subject, reference)),
        note="" if missing else f"{subject} has the lower perplexity in {lower} of {len(pairs.seeds)} pairs",
    )


def converged_cell(series: Series, arm: str) -> Counted:
    """Runs of an arm that diverged; those that are missing may still."""
    runs, wanted = series.arm(arm), SEEDS[arm]
    missing = wanted - len(runs)
    return Counted(
        method="runs whose loss, gradient or test perplexity was not finite",
        inputs=_inputs(series),
        observations={
            "diverged": [int(run.diverged is not None) for run in runs],
            "seed": [run.seed for run in runs],
            "planned": wanted,
        },
        reduction=Reduction("count_so_far", ("diverged", "planned")),
        note=f"{missing} of {wanted} runs are missing" if missing else "",
    )


def perplexity_cell(series: Series, arm: str) -> Evidence | NotMeasurable:
    """Perplexity of an arm over its seeds, with the share of tokens that were its first choice beside it."""
    runs, wanted = series.arm(arm), SEEDS[arm]
    done = [(run.seed, run.log_perplexity, run.top1) for run in runs]
    kept = [(seed, log, top1) for seed, log, top1 in done if log is not None and top1 is not None]
    if not kept:
        return NotMeasurable(f"no run of {arm} is complete, {wanted} are planned")
    curve, sample = _mean_curve(runs), series.samples.get(arm)
    written: dict[str, Scalar] = {}
    if sample is not None:
        written = {"sample": sample.text, "sample_words": sample.words, "sample_words_known": sample.known}
    return Derived(
        method=f"exp of the mean over seeds of the log perplexity of the test text; {_INTERVAL}",
        inputs={
            **_inputs(series),
            "seeds planned": wanted,
            "scale": series.scale,
            **({f"sample {key}": value for key, value in asdict(series.sampling).items()} if written else {}),
        },
        observations={
            "log_perplexity": [log for _, log, _ in kept],
            "top1": [top1 for _, _, top1 in kept],
            "seed": [seed for seed, _, _ in kept],
            **_named(runs),
            "step": list(curve),
            "validation_log_perplexity": list(curve.values()),
            **written,
        },
        reduction=Reduction("exp_mean", ("log_perplexity",)),
        note="" if len(kept) == wanted else f"{len(kept)} of {wanted} runs",
    )


def _named(runs: Sequence[TrainedRun]) -> dict[str, list[str]]:
    return {
        RUNS: [run.name for run in runs],
        DIVERGED: [run.name for run in runs if run.diverged is not None],
    }


def _mean_curve(runs: Sequence[TrainedRun]) -> dict[int, float]:
    """Validation log perplexity by step, the mean over the runs that did not diverge."""
    curves = [run.validation for run in runs if run.diverged is None]
    shared = sorted(set(curves[0]).intersection(*curves[1:]))
    return {step: math.fsum(curve[step] for curve in curves) / len(curves) for step in shared}


def limits(series: Series) -> tuple[str, ...]:
    """What the figures of a series do not show."""
    return (
        f"A verdict for {series.scale} in {series.precision}, {series.test_tokens:,} tokens of other text to "
        "test on. The paper's: d = 512, TinyStories, 10,000 steps.",
        f"Trained with {', '.join(series.torch) or 'an unknown PyTorch'} on {', '.join(series.machines)}: "
        f"{series.command}",
        "The interval is over seeds: another text, size or learning rate is another experiment.",
        "A comparison is judged once, when all runs of both arms are there: a series that is judged while it "
        "grows would choose its moment.",
        "A seed whose run diverged is in no pair; it decides quality.converged.",
    )


def _inputs(series: Series) -> dict[str, Scalar | bool | None]:
    return {
        "series": "claims/quality.json" if series.path == STORED else str(series.path),
        "sha256": series.sha256,
        "preset": series.preset,
        "steps": series.steps,
        "precision": series.precision,
    }
