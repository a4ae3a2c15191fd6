"""What a run reports on its way: JSON lines, progress, and a plot of the loss."""

from __future__ import annotations

import json
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from architectures.atomic import write_atomically
from architectures.errors import CheckpointError
from engine.errors import FileError

METRICS_NAME = "metrics.jsonl"
PLOT_NAME = "loss.svg"


@dataclass(frozen=True)
class Progress:
    """After `step` of `steps` steps; loss in nats per token, of the last step."""

    step: int
    steps: int
    loss: float
    tokens_per_s: float
    left_s: float


class Metrics:
    """Appends to metrics.jsonl: lines with `step` (steps done), `loss`, `balance`, `lr`, `gradient_norm`, and
    lines with `step` and `validation_log_perplexity`. Lines past `step` are dropped: they will come again."""

    def __init__(self, folder: Path, step: int) -> None:
        self._path = folder / METRICS_NAME
        kept = [line for line in read_metrics(folder) if line["step"] <= step] if step else []
        write_atomically(self._path, "".join(json.dumps(line) + "\n" for line in kept).encode())

    def add(self, **values: Any) -> None:
        """One line, on disk when this returns. Raises FileError naming the file."""
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(values) + "\n")
        except OSError as error:
            raise FileError(f"{self._path}: cannot be written: {error.strerror}") from error


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """All whole lines; a last one that was cut is left out. Raises CheckpointError naming the file."""
    path = folder / METRICS_NAME
    try:
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]
        return [_checked(json.loads(line)) for line in lines]
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{path} is not valid: {error}") from error


def _checked(line: Any) -> dict[str, Any]:
    """A line as `Metrics` writes it: numbers by name, one of them the step. Raises ValueError."""
    if not isinstance(line, dict) or type(line.get("step")) is not int:
        raise ValueError(f"found {line!r:.100}, allowed: an object with a step")
    for name, value in line.items():
        whole = type(value) is int and abs(value) < 1 << 63
        if not whole and not isinstance(value, float):
            raise ValueError(f"{name} is {value!r:.100}, allowed: a number")
    return line


def plot_loss(folder: Path, title: str) -> Path | None:
    """Draws loss.svg of the metrics; None without matplotlib. Raises FileError naming the file."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        return None
    lines = read_metrics(folder)
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "cflow"}):
        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.subplots()
        for key, label in (("loss", "training"), ("validation_log_perplexity", "validation")):
            points = [(line["step"], line[key]) for line in lines if key in line]
            axes.plot([x for x, _ in points], [y for _, y in points], label=label)
        axes.set(title=title, xlabel="step", ylabel="loss, nats per token")
        axes.legend()
        drawn = BytesIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    path = folder / PLOT_NAME
    write_atomically(path, drawn.getvalue())
    return path
