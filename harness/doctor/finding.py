"""One line of a diagnosis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.kinds import Kind

State = Literal["yes", "no", "unknown"]
"""yes: as it should be. no: something is missing or in the way. unknown: this machine does not tell, which is
no fault.
"""


@dataclass(frozen=True)
class Finding:
    """What was found, and what hangs on it.

    id: for programs; does not change. required: without it nothing runs. remedy: empty unless the state is
    "no". needs: those of claims.toml that are unmet when the state is "no". kinds: of evidence that there is
    none of then. rows: words of cell labels whose rows cannot be measured then. doubts: timed figures may
    come out INCONCLUSIVE then.
    """

    id: str
    name: str
    state: State
    detail: str
    remedy: str = ""
    required: bool = False
    needs: tuple[str, ...] = ()
    kinds: tuple[Kind, ...] = ()
    rows: tuple[str, ...] = ()
    doubts: bool = False
