"""Derives every verdict again from results.json alone.

This module is the second opinion: it shares no code with the modules that measured and judged. It imports
nothing of this project but the exception tree, and repeats the limits of the rules of evidence on purpose.
Its parts:

    check_file        reads and validates the file
    check_declared    reads the targets inside it
    check_records     which records there are, in which order, and when; the machine before and after
    check_cells       the cells of one check: verdict and figure
    check_rounds      figure and interval of paired rounds, and why they decide nothing
    check_samples     the raw rounds: order, times, bytes, void rules
    check_reductions  exact figures from observations
    check_estimates   intervals over repetitions
    check_borrowed    rounds that are stored with another figure
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from harness.check_borrowed import borrow_rounds
from harness.check_cells import NOT_MEASURABLE, declared_cells, judge_cells
from harness.check_declared import read_declared
from harness.check_file import FILE_NAME, read_results
from harness.check_records import known_records, machine_faults
from harness.check_rounds import same
from harness.errors import ResultsError

_PRECEDENCE: Final = ("REFUTED", "INCONCLUSIVE", "SUPPORTED", NOT_MEASURABLE)


class _Problems:
    """What was found, with the check that it belongs to."""

    def __init__(self) -> None:
        self.found: list[dict[str, str | None]] = []

    def add(self, check_id: str | None, text: str) -> None:
        self.found.append({"check": check_id, "problem": text})


def check(directory: Path | str) -> dict[str, Any]:
    """Verdicts of a run, derived from its raw material, and where results.json disagrees with that.

    Returns:
        {"claims": [{"id", "verdict", "checks": [{"id", "kind", "verdict", "value", "low", "high", "unit",
        "paper", "beyond"}]}], "problems": [{"check", "problem"}]}: no problems means that the file is
        consistent. A check whose raw material is broken (rounds missing, out of order, bytes that do not add
        up) is INCONCLUSIVE.

    Raises:
        ResultsError: results.json is missing or damaged, naming the field.
    """
    data = read_results(Path(directory))
    problems = _Problems()
    text = data["registry"]["text"]
    if hashlib.sha256(text.encode()).hexdigest() != data["registry"]["sha256"]:
        problems.add(None, "registry.sha256 is not the hash of registry.text")
    try:
        claims, declared = read_declared(text)
    except ValueError as error:
        raise ResultsError(f"{Path(directory) / FILE_NAME}: $.registry.text: {error}") from error
    for fault in machine_faults(data["machine"]):
        problems.add(None, fault)
    for check_id, fault in borrow_rounds(data):
        problems.add(check_id, fault)
    records = known_records(data, dict(declared), problems.add)
    rows: dict[str, list[dict[str, Any]]] = {claim_id: [] for claim_id in claims}
    for check_id, item in declared:
        if item["claim"] not in rows:
            problems.add(check_id, f"claim {item['claim']!r} is not declared in claims.toml")
            continue
        rows[item["claim"]].append(_row(check_id, item, records.get(check_id), data["run"], problems))
    out = []
    for claim_id, (_, built) in claims.items():
        deciding = [row["verdict"] for row in rows[claim_id] if not row["beyond"]]
        verdict = (_worst(deciding) or NOT_MEASURABLE) if built else NOT_MEASURABLE
        out.append({"id": claim_id, "verdict": verdict, "checks": rows[claim_id]})
    _compare_claims(out, claims, data["claims"], problems)
    return {"claims": out, "problems": problems.found}


def _row(
    check_id: str,
    item: Mapping[str, Any],
    record: Mapping[str, Any] | None,
    run: Mapping[str, Any],
    problems: _Problems,
) -> dict[str, Any]:
    cells = declared_cells(item)
    row = {
        "id": check_id,
        "kind": item["kinds"][0],
        "verdict": None,
        "value": None,
        "low": None,
        "high": None,
        "unit": cells[0]["unit"],
        "paper": cells[0]["paper"],
        "beyond": bool(item.get("beyond")),
    }
    report = partial(problems.add, check_id)
    if record is None:
        if any(cell["target"] is not None for cell in cells):
            row["verdict"] = _absent(check_id, item, run, problems)
        return row
    row["kind"] = record["kind"]
    if record["kind"] not in item["kinds"]:
        report(f"kind {record['kind']} does not count for this check")
    if run["profile"] not in item["budget_s"]:
        report(f"recorded, but not part of profile {run['profile']}")
    if record["verdict"] == NOT_MEASURABLE and not record["reason"].strip():
        report(f"{NOT_MEASURABLE} without a reason")
    found = judge_cells(item, record, run["profile"], report)
    row["verdict"] = _worst([one.verdict for one in found])
    # The figure of a check is that of the first cell that has its verdict.
    head = [one.verdict for one in found].index(row["verdict"])
    row["value"], row["low"], row["high"] = found[head].triple
    row["unit"], row["paper"] = cells[head]["unit"], cells[head]["paper"]
    for key, wanted in (
        ("claim", item["claim"]),
        ("beyond", row["beyond"]),
        ("unit", row["unit"]),
        ("paper", row["paper"]),
    ):
        if record[key] != wanted:
            report(f"{key} is {record[key]!r}, declared {wanted!r}")
    if row["verdict"] != record["verdict"]:
        report(f"verdict is {record['verdict']}, the raw material gives {row['verdict']}")
    for key in ("value", "low", "high"):
        if not same(record[key], row[key]):
            report(f"{key} is {record[key]}, the raw material gives {row[key]}")
    return row


def _absent(check_id: str, item: Mapping[str, Any], run: Mapping[str, Any], problems: _Problems) -> str:
    if not item.get("built", True) or run["profile"] not in item["budget_s"]:
        return NOT_MEASURABLE
    if run["finished_utc"] is not None and run["options"].get("only") is None:
        problems.add(check_id, "no record, though the run is finished and the check belongs to its profile")
    return "INCONCLUSIVE"


def _worst(verdicts: Sequence[str | None]) -> str | None:
    """The verdict of a whole: by precedence, leaving out what is only recorded; None when everything is."""
    return next((verdict for verdict in _PRECEDENCE if verdict in verdicts), None)


def _compare_claims(
    derived: Sequence[Mapping[str, Any]],
    declared: Mapping[str, tuple[str, bool]],
    stored: Sequence[Mapping[str, Any]],
    problems: _Problems,
) -> None:
    if [claim["id"] for claim in stored] != [claim["id"] for claim in derived]:
        problems.add(None, f"claims are {[claim['id'] for claim in stored]}, not those of claims.toml")
        return
    verdicts = {claim["id"]: claim["verdict"] for claim in derived}
    for claim in stored:
        title, built = declared[claim["id"]]
        for key, value in (("title", title), ("built", built)):
            if claim[key] != value:
                problems.add(None, f"claim {claim['id']}: {key} is {claim[key]!r}, declared {value!r}")
        wanted = verdicts[claim["id"]]
        if claim["verdict"] != wanted:
            problems.add(
                None, f"claim {claim['id']}: verdict is {claim['verdict']}, its checks give {wanted}"
            )
