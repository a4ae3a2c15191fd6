"""How long a run will take yet: from the budgets of its checks and from what those so far took."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

PRIOR_SHARE: Final = 0.1
"""Of all budgets: counts as spent on budget beforehand, so that the first check does not decide alone."""


class Forecast:
    """Time left of a run. budgets_s: seconds by check id, of the checks that are still to be measured, in
    order. clock: seconds, never going back.
    """

    def __init__(self, budgets_s: Mapping[str, float], clock: Callable[[], float] = time.monotonic) -> None:
        self._left = dict(budgets_s)
        self._clock = clock
        self.count = len(self._left)
        self.number = 0
        """Of the check that is being measured, from 1."""
        self._begun_s = clock()
        self._current_s = 0.0
        self._budgeted_s = self._spent_s = PRIOR_SHARE * sum(self._left.values())

    def begin(self, check_id: str) -> None:
        """A check is going to be measured."""
        self.number += 1
        self._begun_s = self._clock()
        self._current_s = self._left.pop(check_id, 0.0)

    def end(self, measured: bool) -> None:
        """It has ended. measured: False when it could not be, which says nothing of how fast others are."""
        if measured:
            self._budgeted_s += self._current_s
            self._spent_s += self._clock() - self._begun_s
        self._current_s = 0.0

    def left_s(self, own_s: float = 0.0) -> float:
        """Seconds left. own_s: that the current check needs at least, by its own rounds."""
        pace = self._spent_s / self._budgeted_s if self._budgeted_s else 1.0
        current_s = pace * self._current_s - (self._clock() - self._begun_s)
        return max(current_s, own_s, 0.0) + pace * sum(self._left.values())


def words(seconds: float) -> str:
    """ "40 s", "9 min", "1 h 20 min"."""
    if seconds < 59.5:
        return f"{round(seconds)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
