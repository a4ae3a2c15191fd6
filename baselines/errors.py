"""The error of the baselines."""

from __future__ import annotations


class BaselineError(Exception):
    """A baseline cannot be installed or run; str() is one sentence for a user.

    `log` holds the last lines that the baseline's process wrote, where there was one; empty otherwise.
    """

    def __init__(self, message: str, log: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.log = log
