"""Runs of a series that were made elsewhere, by the quality.json that holds them: they count as made.

What one CPU adds differs from what another adds in the last bits, so that a run made again is another run. A
run that is known is therefore kept as it is, and its row says on which CPU it was made.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from architectures.batches import Batches
from architectures.errors import CheckpointError
from architectures.prepared import Prepared
from architectures.quality_file import Known, Run, Settings, shared_by_runs
from architectures.run_folder import read_json
from architectures.stories import Part


def read_known(path: Path, data: Prepared, settings: Settings, series: Sequence[Run]) -> Known:
    """The runs in a quality.json of the same series.

    Raises CheckpointError naming the file and what it has that `series` has not, such as other data.
    """
    found, ours = read_json(path), shared_by_runs(data, settings)
    for key, wanted in ours.items():
        if found.get(key) != wanted:
            raise CheckpointError(f"{path}: of another series: {key} is {found.get(key)!r}, here {wanted!r}")
    try:
        rows = {Run(row["architecture"], row["seed"]): dict(row) for row in found["runs"]}
        samples = {str(row["architecture"]): dict(row) for row in found["samples"]}
        orders = {run: row["data_order"] for run, row in rows.items()}
        for row in found["runs"]:
            if row["diverged"] is None and type(row["test_log_perplexity"]) is not float:
                raise ValueError(f"test_log_perplexity is {row['test_log_perplexity']!r}")
        if len(rows) < len(found["runs"]):
            raise ValueError("a run is listed twice")
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} is not valid: {error!r}") from error
    for run, order in orders.items():
        if run not in series:
            raise CheckpointError(f"{path}: {run.name} is not of the series")
        arguments = settings.arguments(run)
        batches = Batches(data.tokens[Part.TRAIN], arguments.sequence, arguments.batch, run.seed)
        if order != (wanted := batches.order_hash(arguments.steps)):
            raise CheckpointError(f"{path}: {run.name}: data_order is {order!r}, here {wanted!r}")
    return Known(rows, samples)
