"""`pytest -p tests.faults.clock`: a wall clock that is a day behind or ahead whenever results ask for it."""

from __future__ import annotations

from datetime import datetime, timedelta, tzinfo
from itertools import count

import harness.results

_READS = count()


class Jumping(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Jumping:
        return super().now(tz) + timedelta(days=1 if next(_READS) % 2 else -1)


harness.results.datetime = Jumping  # type: ignore[misc]
