"""What a run shows while it measures. `Display` shows nothing; `LiveDisplay` draws on a terminal.

Drawing must not be in what is measured: there is no thread and no timer. A block is drawn when a check
begins, and between two rounds, when the clocks and counters of the one are read and those of the next are
not: it takes under a millisecond, and the next round begins with the read probe of 50 ms, which is no arm.
The terminal's own work for some hundred bytes falls there. What is shown cannot end or lengthen a run: how
many rounds there are follows from void rounds alone, and a run that is interrupted decides nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime

from rich.text import Text

from claims.forecast import Forecast, words
from claims.terminal import Block
from harness.kinds import NOT_MEASURABLE, Verdict
from harness.paired import Progress
from harness.registry import Check, Registry
from harness.rounds import Figure, Paths, Side, Timed
from harness.statistics import TimedSummary, summarise


class Display:
    """Shows nothing: not a terminal, or nobody wants to see it."""

    def begin(self, check: Check) -> None:
        """A check is going to be measured."""

    def rounds(self, label: str) -> Progress | None:
        """What tells the rounds of a paired run; label: of the cell or setting that they belong to."""
        return None

    def end(self, verdict: Verdict | None) -> None:
        """The check has ended, or was cut short; nothing may stay on the terminal."""


class LiveDisplay(Display):
    """Check, arms, round, time left and the interval so far, in three lines below what pytest prints."""

    def __init__(
        self,
        block: Block,
        registry: Registry,
        forecast: Forecast,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._block = block
        self._registry = registry
        self._forecast = forecast
        self._clock = clock
        self._check: Check | None = None
        self._began = ""

    def begin(self, check: Check) -> None:
        """Draws what is known before the first round."""
        self._check = check
        self._forecast.begin(check.id)
        self._began = f"{datetime.now():%H:%M:%S}"
        self._draw(0.0, check.statement, f"began {self._began}")

    def rounds(self, label: str) -> Progress:
        """Draws after every round."""
        check = self._check
        assert check is not None
        started_s = 0.0

        def show(timed: Timed, planned: int) -> None:
            nonlocal started_s
            done = len(timed.rounds)
            if not done:
                started_s = self._clock()
            own_s = (self._clock() - started_s) / done * (planned - done) if done else 0.0
            arms = " | ".join(arm.name for arm in timed.arms)
            where = f"{label}: " if label else ""
            if not done:
                self._draw(own_s, f"{where}warming up", arms)
                return
            summary = summarise(timed, check.confidence, check.guard)
            causes = Counter(void.rule for one in timed.rounds for void in one.void)
            void = ", ".join(f"{rule} {count}" for rule, count in causes.most_common())
            counted = f"{where}round {done} of {planned}, {summary.valid} valid{void and f' (void: {void})'}"
            self._draw(own_s, f"{counted}; {arms}", figure_line(timed.figure, summary))

        return show

    def end(self, verdict: Verdict | None) -> None:
        """Takes the block off the terminal."""
        self._forecast.end(verdict not in (None, NOT_MEASURABLE))
        self._check = None
        self._block.erase()

    def _draw(self, own_s: float, *lines: str) -> None:
        check = self._check
        assert check is not None
        head = Text(f"claim {check.claim}, {self._registry.claim(check.claim).title}: ")
        head.append(check.id, "bold")
        head.append(f" ({self._forecast.number} of {self._forecast.count})")
        head.append(f", about {words(self._forecast.left_s(own_s))} left", "cyan")
        self._block.draw([head, *(Text(f"  {line}", "dim") for line in lines)])


def figure_line(figure: Figure, summary: TimedSummary) -> str:
    """The interval so far, and that of the control."""
    if summary.value is None:
        return "no valid round yet"
    scale, unit = _unit(figure)
    said = f"{_what(figure)}: {summary.value * scale:.4g}"
    if summary.low is not None and summary.high is not None:
        said += f" [{summary.low * scale:.4g}, {summary.high * scale:.4g}]"
    said += f" {unit} so far" if unit else " so far"
    if summary.a_a is not None:
        said += f"; A/A [{summary.a_a[0]:.3f}, {summary.a_a[1]:.3f}]"
    return said


def _what(figure: Figure) -> str:
    subject, reference = figure.subject, figure.reference
    if isinstance(reference, Side):
        return f"{subject.measure} of {subject.arm} over {reference.measure} of {reference.arm}"
    if isinstance(reference, Paths):
        return f"{subject.measure} of {subject.arm} over the model's"
    return f"{subject.measure} of {subject.arm}" + (" over the roof" if reference == "roof" else "")


def _unit(figure: Figure) -> tuple[float, str]:
    """What a figure is multiplied by for people, and the unit that it then has; "" for a ratio."""
    if figure.reference is not None:
        return 1.0, ""
    units: Sequence[tuple[str, float, str]] = (
        ("speed", 1e9, "per s"),
        ("bandwidth", 1.0, "GB/s"),
    )
    named = {name: (factor / figure.scale, unit) for name, factor, unit in units}
    return named.get(figure.subject.measure, (1e-6 / figure.scale, "ms"))
