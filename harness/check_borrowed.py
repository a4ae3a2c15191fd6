"""The part of the second opinion that finds the rounds of figures which look at another figure's rounds.

Like harness/check.py it shares no code with the modules that measured and judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

_LENT: Final = ("seed", "rounds_wanted", "interrupted", "arms", "rounds", "roof")


def borrow_rounds(data: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Puts the rounds that are stored elsewhere into the evidence that names them.

    Yields:
        (check, fault) of evidence whose rounds are not there: it stays without any.
    """
    records = {record["id"]: record for record in data["checks"]}
    for borrower in data["checks"]:
        for cell in borrower["cells"]:
            named = (cell["evidence"] or {}).get("rounds_of")
            if named is None:
                continue
            place = f"rounds of {named['check']}, cell {named['cell']!r}"
            lender = records.get(named["check"])
            found = [one for one in (lender or {"cells": ()})["cells"] if one["label"] == named["cell"]]
            own = found[0]["evidence"] if found else None
            if lender is None or own is None or "rounds_of" in own or own["kind"] != "timed":
                yield borrower["id"], f"cell {cell['label']!r}: the {place} are not in this file"
            elif lender["seq"] > borrower["seq"]:
                yield borrower["id"], f"cell {cell['label']!r}: the {place} were recorded after it"
            elif cell["evidence"]["inputs"] != own["inputs"]:
                yield borrower["id"], f"cell {cell['label']!r}: the {place} were measured with other inputs"
            else:
                cell["evidence"].update({key: own[key] for key in _LENT})
