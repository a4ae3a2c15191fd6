"""Training here: the series of --train DIR, and a few steps that show that training works."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Final

from architectures.arguments import Arguments
from architectures.errors import DivergedError
from architectures.prepared import prepare
from architectures.pytorch import require_torch
from architectures.quality import SOURCES, train_series
from architectures.quality_file import SUMMARY_NAME, Settings

SERIES: Final = Settings("tiny", 2000, "f32")
"""Of the series that is stored: f32 on every CPU, so that runs of several machines are of one series."""
STEPS: Final = 4
_VOCAB, _BATCH, _SEQUENCE = 300, 2, 32
_TEXT: Final = Path(__file__).with_name("text.txt")
_COPIES: Final = 60


def train_into(folder: Path) -> Path:
    """Begins the series in `folder`, or goes on with it, to its end (hours); its quality.json.

    Raises TorchMissingError, and what `architectures.quality.train_series` raises.
    """
    train_series(folder, SOURCES, SERIES)
    return folder / SUMMARY_NAME


def few_steps(architecture: str) -> list[float]:
    """Losses, nats per token, of the first steps of an architecture of preset tiny on a page of text.

    They end before a step that diverges. Raises TorchMissingError.
    """
    require_torch()
    from architectures.processes import Processes
    from architectures.trainer import Trainer

    with tempfile.TemporaryDirectory() as made:
        text = Path(made, "text.txt")
        # Numbered, so that the stories differ and each part gets some.
        words = _TEXT.read_text(encoding="utf-8").split("\n")
        stories = [f"{i}. {words[i % len(words)]}" for i in range(_COPIES)]
        text.write_text("\n<|endoftext|>\n".join(stories), encoding="utf-8")
        data = prepare([text], Path(made, "tokens"), _VOCAB)
        arguments = Arguments.of(
            architecture, "tiny", STEPS, 0, precision="f32", batch=_BATCH, sequence=_SEQUENCE
        )
        trainer = Trainer(arguments, data, Processes(0, 1))
        losses: list[float] = []
        with contextlib.suppress(DivergedError):
            while len(losses) < STEPS:
                losses.append(trainer.one_step().loss)
        return losses
