"""Rounds that are stored once and looked at by several figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from harness.errors import EvidenceError, ResultsError
from harness.evidence import Evidence
from harness.rounds import Timed
from harness.verdict import NotMeasurable

_KEYS: Final = ("seed", "rounds_wanted", "interrupted", "arms", "rounds", "roof")


def lend(checks: Sequence[Mapping[str, Any]]) -> None:
    """Completes the evidence of records as read from results.json: rounds stored with another cell are
    put in place (shared, not copied).

    Raises:
        ResultsError: a cell names rounds that are not there.
    """
    for record in checks:
        for cell in record["cells"]:
            named = (cell["evidence"] or {}).get("rounds_of")
            if named is None:
                continue
            stored = _stored(checks, named["check"], named["cell"])
            if stored is None:
                raise ResultsError(
                    f"{record['id']}, cell {cell['label']!r}: rounds_of: no rounds of {named['check']}, "
                    f"cell {named['cell']!r}"
                )
            cell["evidence"].update({key: stored[key] for key in _KEYS})


def refuse_other_rounds(
    check_id: str, found: Mapping[str, Evidence | NotMeasurable], checks: Sequence[Mapping[str, Any]]
) -> None:
    """Raises EvidenceError when a figure's rounds are not those of the recorded cell that it names."""
    for label, evidence in _borrowers(found):
        assert evidence.rounds_of is not None
        if evidence.rounds_of.check == check_id:
            own = found.get(evidence.rounds_of.cell)
            if isinstance(own, Timed) and own.rounds_of is None and own.rounds == evidence.rounds:
                continue
        stored = _stored(checks, evidence.rounds_of.check, evidence.rounds_of.cell)
        if stored is None or stored["rounds"] != [one.to_json() for one in evidence.rounds]:
            raise EvidenceError(
                f"{check_id}, cell {label!r}: its rounds are not those of {evidence.rounds_of.check}, "
                f"cell {evidence.rounds_of.cell!r}"
            )


def _borrowers(found: Mapping[str, Evidence | NotMeasurable]) -> Iterator[tuple[str, Timed]]:
    for label, evidence in found.items():
        if isinstance(evidence, Timed) and evidence.rounds_of is not None:
            yield label, evidence


def _stored(checks: Sequence[Mapping[str, Any]], check_id: str, label: str) -> Mapping[str, Any] | None:
    """Evidence of a cell that holds rounds of its own."""
    for record in checks:
        for cell in record["cells"] if record["id"] == check_id else ():
            evidence: Mapping[str, Any] = cell["evidence"] or {}
            if cell["label"] == label and "rounds" in evidence and "rounds_of" not in evidence:
                return evidence
    return None
