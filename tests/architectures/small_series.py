"""Work for the processes of a small series; or `python -m tests.architectures.small_series`, as
`python -m architectures.quality` with the preset `small_test`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from architectures import quality, trainer
from architectures.errors import DivergedError
from architectures.metrics import Progress
from architectures.quality_file import Run
from architectures.quality_jobs import Series, train_run
from tests.architectures.training import use_small_preset

use_small_preset()  # here, so that a process that imports this has it


def small_run(series: Series, run: Run, report: Callable[[Progress], None]) -> None:
    """As it is."""
    train_run(series, run, report)


def arch4_diverges(series: Series, run: Run, report: Callable[[Progress], None]) -> None:
    """In its second step."""
    real = trainer.Trainer.one_step

    def one_step(self: trainer.Trainer) -> trainer.StepLosses:
        if run.architecture == "arch4" and self.step == 1:
            raise DivergedError("loss is nan at step 2")
        return real(self)

    trainer.Trainer.one_step = one_step  # type: ignore[method-assign]
    train_run(series, run, report)


def arch1_crashes_arch4_diverges(series: Series, run: Run, report: Callable[[Progress], None]) -> None:
    """As if the system had ended the process of arch1."""
    if run.architecture == "arch1":
        os._exit(3)
    arch4_diverges(series, run, report)


if __name__ == "__main__":
    sys.exit(quality.main())
