"""Measuring: machine, counters, paired runs, statistics, evidence, results, check.

`harness.load(DIR)` reads the results of a run; `harness.check.check(DIR)` derives every verdict again.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.results import Results

__all__ = ["load"]


def load(directory: Path | str) -> Results:
    """The results of a run. Raises harness.errors.ResultsError, naming the field, when they are missing or
    damaged.
    """
    # Imported here so that harness.check can be loaded without the modules that it checks.
    from harness.results import load as read

    return read(directory)
