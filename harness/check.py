"""Derives every verdict again from results.json alone.

This module is the second opinion: it shares no code with the modules that measured and judged. It imports
nothing of this project but the exception tree, and repeats the limits of the rules of evidence on purpose.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import jsonschema_rs

from harness.check_borrowed import borrow_rounds
from harness.check_estimates import incomplete, interval_of
from harness.check_rounds import middle, same, timed_finding
from harness.errors import ResultsError

_SCHEMA: Final = Path(__file__).parent / "schema" / "results-1.json"
_DEFAULT_GUARD: Final = 0.03
_NOT_MEASURABLE: Final = "NOT MEASURABLE HERE"
_PRECEDENCE: Final = ("REFUTED", "INCONCLUSIVE", "SUPPORTED", _NOT_MEASURABLE)


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
    data = _read(Path(directory))
    problems = _Problems()
    text = data["registry"]["text"]
    if hashlib.sha256(text.encode()).hexdigest() != data["registry"]["sha256"]:
        problems.add(None, "registry.sha256 is not the hash of registry.text")
    try:
        registry = tomllib.loads(text)
        declared = [(item["id"], item) for item in registry["check"]]
        for _, item in declared:
            _ = item["claim"], item["kinds"][0], item["unit"], item["budget_s"], _declared_cells(item)
        claims = {item["id"]: (item["title"], bool(item["built"])) for item in registry["claim"]}
    except (tomllib.TOMLDecodeError, LookupError, TypeError) as error:
        raise ResultsError(f"results.json: $.registry.text: {error!r}") from error
    for check_id, fault in borrow_rounds(data):
        problems.add(check_id, fault)
    records = _records(data, dict(declared), problems)
    rows: dict[str, list[dict[str, Any]]] = {claim_id: [] for claim_id in claims}
    for check_id, item in declared:
        if item["claim"] not in rows:
            problems.add(check_id, f"claim {item['claim']!r} is not declared in claims.toml")
            continue
        rows[item["claim"]].append(_row(check_id, item, records.get(check_id), data["run"], problems))
    out = []
    for claim_id, (_, built) in claims.items():
        deciding = [row["verdict"] for row in rows[claim_id] if not row["beyond"]]
        out.append(
            {
                "id": claim_id,
                "verdict": _worst(deciding) or _NOT_MEASURABLE if built else _NOT_MEASURABLE,
                "checks": rows[claim_id],
            }
        )
    _compare_claims(out, claims, data["claims"], problems)
    return {"claims": out, "problems": problems.found}


def _read(directory: Path) -> dict[str, Any]:
    path = directory / "results.json"
    try:
        text = path.read_text(encoding="utf-8")
        data = json.loads(text, parse_constant=_refuse, parse_float=_finite, parse_int=_integer)
    except (OSError, ValueError, RecursionError) as error:
        raise ResultsError(f"{path}: cannot be read: {error}") from error
    schema = json.loads(_SCHEMA.read_text(encoding="utf-8"))
    faults = list(jsonschema_rs.Draft202012Validator(schema).iter_errors(data))
    if faults:
        outermost = min(faults, key=lambda fault: len(fault.instance_path))
        steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in outermost.instance_path)
        raise ResultsError(f"{path}: ${''.join(steps)}: {outermost.message[:300]}")
    loaded: dict[str, Any] = data
    return loaded


def _refuse(name: str) -> float:
    raise ValueError(f"the number {name[:40]} is not finite")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse(text)


def _integer(text: str) -> int:
    _finite(text)
    return int(text)


def _records(data: Mapping[str, Any], declared: Mapping[str, Any], problems: _Problems) -> dict[str, Any]:
    records: dict[str, Any] = {}
    for record in data["checks"]:
        if record["id"] not in declared:
            problems.add(record["id"], "not declared in claims.toml")
        elif record["id"] in records:
            problems.add(record["id"], "recorded twice")
        else:
            records[record["id"]] = record
    numbers = [record["seq"] for record in data["checks"]]
    if numbers != sorted(set(numbers)):
        problems.add(None, f"sequence numbers of the checks do not ascend: {numbers}")
    for record in data.get("interrupted", ()):
        # A finished record set aside would be a choice between results.
        if not any((cell["evidence"] or {}).get("interrupted") for cell in record["cells"]):
            problems.add(record["id"], "set aside as interrupted, but it was not")
        elif record["id"] not in records or record["seq"] >= records[record["id"]]["seq"]:
            problems.add(record["id"], "set aside as interrupted, but nothing was measured after it")
    _order_in_time(data, problems)
    return records


def _order_in_time(data: Mapping[str, Any], problems: _Problems) -> None:
    """Checks run one after the other. Across a resume the clock may have begun anew."""
    in_order = sorted(data["checks"], key=lambda record: record["seq"])
    for record in in_order:
        if record["finished_ns"] < record["started_ns"]:
            problems.add(record["id"], "finished_ns lies before started_ns")
    for before, after in itertools.pairwise(in_order):
        resumed = any(
            before["finished_utc"] <= moment <= after["finished_utc"] for moment in data["run"]["resumed_utc"]
        )
        if after["started_ns"] < before["finished_ns"] and not resumed:
            problems.add(after["id"], f"starts before {before['id']} ends")


def _misplaced(record: Mapping[str, Any]) -> dict[str, list[str]]:
    """Faults by cell label: rounds outside the time of their record, or at the time of another cell's
    rounds.
    """
    faults: dict[str, list[str]] = {}
    spans = []
    for cell in record["cells"]:
        evidence = cell["evidence"] or {}
        # Rounds of another record stand, and are placed, there.
        for one in () if "rounds_of" in evidence else evidence.get("rounds", ()):
            spans.append((one["start_ns"], one["end_ns"], cell["label"]))
            if one["start_ns"] < record["started_ns"] or one["end_ns"] > record["finished_ns"]:
                faults.setdefault(cell["label"], []).append(f"round {one['seq']} lies outside its record")
    end_ns, owner = 0, ""
    overlaps: set[tuple[str, str]] = set()
    for start, end, label in sorted(spans):
        if owner != label and start < end_ns:
            overlaps.update({(label, owner), (owner, label)})
        if end > end_ns:
            end_ns, owner = end, label
    for label, other in sorted(overlaps):
        faults.setdefault(label, []).append(f"rounds overlap those of cell {other!r}")
    return faults


def _row(
    check_id: str,
    item: Mapping[str, Any],
    record: Mapping[str, Any] | None,
    run: Mapping[str, Any],
    problems: _Problems,
) -> dict[str, Any]:
    cells = _declared_cells(item)
    beyond = bool(item.get("beyond", False))
    row = {
        "id": check_id,
        "kind": item["kinds"][0],
        "verdict": None,
        "value": None,
        "low": None,
        "high": None,
        "unit": cells[0]["unit"],
        "paper": cells[0]["paper"],
        "beyond": beyond,
    }
    if record is None:
        if any(cell["target"] is not None for cell in cells):
            row["verdict"] = _absent(check_id, item, run, problems)
        return row
    row["kind"] = record["kind"]
    if record["kind"] not in item["kinds"]:
        problems.add(check_id, f"kind {record['kind']} does not count for this check")
    if run["profile"] not in item["budget_s"]:
        problems.add(check_id, f"recorded, but not part of profile {run['profile']}")
    if record["verdict"] == _NOT_MEASURABLE and not record["reason"].strip():
        problems.add(check_id, f"{_NOT_MEASURABLE} without a reason")
    found = _judge_cells(check_id, item, cells, record, problems)
    row["verdict"] = _worst([verdict for verdict, _ in found])
    # The figure of a check is that of the first cell that has its verdict.
    head = [verdict for verdict, _ in found].index(row["verdict"])
    row["value"], row["low"], row["high"] = found[head][1]
    row["unit"], row["paper"] = cells[head]["unit"], cells[head]["paper"]
    for key, wanted in (
        ("claim", item["claim"]),
        ("beyond", beyond),
        ("unit", row["unit"]),
        ("paper", row["paper"]),
    ):
        if record[key] != wanted:
            problems.add(check_id, f"{key} is {record[key]!r}, declared {wanted!r}")
    if row["verdict"] != record["verdict"]:
        problems.add(check_id, f"verdict is {record['verdict']}, the raw material gives {row['verdict']}")
    for key in ("value", "low", "high"):
        if not same(record[key], row[key]):
            problems.add(check_id, f"{key} is {record[key]}, the raw material gives {row[key]}")
    return row


def _declared_cells(item: Mapping[str, Any]) -> list[dict[str, Any]]:
    shared = {
        "label": "",
        "unit": item["unit"],
        "paper": item.get("paper"),
        "target": item.get("target"),
        "repetitions": item.get("repetitions"),
    }
    if not item.get("cells"):
        return [shared]
    return [
        {
            "label": cell["label"],
            "unit": cell.get("unit", item["unit"]),
            "paper": cell.get("paper"),
            "target": cell.get("target", item.get("target")),
            "repetitions": cell.get("repetitions", item.get("repetitions")),
        }
        for cell in item["cells"]
    ]


def _absent(check_id: str, item: Mapping[str, Any], run: Mapping[str, Any], problems: _Problems) -> str:
    if not item.get("built", True) or run["profile"] not in item["budget_s"]:
        return _NOT_MEASURABLE
    if run["finished_utc"] is not None and run["options"].get("only") is None:
        problems.add(check_id, "no record, though the run is finished and the check belongs to its profile")
    return "INCONCLUSIVE"


def _worst(verdicts: Sequence[str | None]) -> str | None:
    """The verdict of a whole: by precedence, leaving out what is only recorded; None when everything is."""
    return next((verdict for verdict in _PRECEDENCE if verdict in verdicts), None)


_Triple = tuple[float | None, float | None, float | None]


def _judge_cells(
    check_id: str,
    item: Mapping[str, Any],
    cells: Sequence[Mapping[str, Any]],
    record: Mapping[str, Any],
    problems: _Problems,
) -> list[tuple[str | None, _Triple]]:
    stored = {cell["label"]: cell for cell in record["cells"]}
    if [cell["label"] for cell in record["cells"]] != [cell["label"] for cell in cells]:
        problems.add(check_id, f"cells are {list(stored)}, declared {[cell['label'] for cell in cells]}")
    found: list[tuple[str | None, _Triple]] = []
    misplaced = _misplaced(record)
    for cell in cells:
        if cell["label"] not in stored:
            found.append(("INCONCLUSIVE", (None, None, None)))
            continue
        faults = misplaced.get(cell["label"], [])
        found.append(
            _judge_cell(
                check_id, item, cell, stored[cell["label"]], record["kind"], len(cells), faults, problems
            )
        )
    return found


def _judge_cell(
    check_id: str,
    item: Mapping[str, Any],
    cell: Mapping[str, Any],
    stored: Mapping[str, Any],
    kind: str,
    cell_count: int,
    faults: Sequence[str],
    problems: _Problems,
) -> tuple[str | None, _Triple]:
    name = f"cell {cell['label']!r}: " if cell["label"] else ""
    target = None if cell["target"] is None else [float(end) for end in cell["target"]]
    wanted = None if target is None else [None if math.isinf(end) else end for end in target]
    if stored["target"] != wanted:
        problems.add(check_id, f"{name}target is {stored['target']}, declared {wanted}")
    for key in ("unit", "paper"):
        if stored[key] != cell[key]:
            problems.add(check_id, f"{name}{key} is {stored[key]!r}, declared {cell[key]!r}")
    evidence = stored["evidence"]
    triple: _Triple = (None, None, None)
    doubts = list(faults)
    for fault in faults:
        problems.add(check_id, name + fault)
    if evidence is not None and evidence["kind"] != kind:
        problems.add(check_id, f"{name}evidence is {evidence['kind']}, the check is {kind}")
        doubts.append("kinds are mixed")
    if evidence is None:
        if not stored["reason"].strip():
            problems.add(check_id, f"{name}no evidence and no reason")
        verdict = _NOT_MEASURABLE
    else:
        if "rounds_of" in evidence and "rounds" not in evidence:
            doubts.append("its rounds are nowhere")
        elif evidence["kind"] == "timed":
            found = timed_finding(
                evidence,
                stored["summary"],
                float(item.get("guard", _DEFAULT_GUARD)),
                cell_count,
                lambda text: problems.add(check_id, name + text),
                (item["positive_control"], float(item["margin"])) if "positive_control" in item else None,
            )
            triple = (found.value, found.low, found.high)
            doubts += found.doubts
            reasons = (stored["summary"] or {}).get("reasons", [])
            if bool(reasons) is not bool(found.doubts):
                problems.add(
                    check_id,
                    f"{name}summary.reasons is {reasons}, the raw material gives {list(found.doubts)}",
                )
        else:
            estimated = _estimated(check_id, name, evidence, cell, cell_count, problems)
            if estimated is None:
                triple = (_reduced(check_id, name, evidence, problems), None, None)
            else:
                triple, doubt = estimated
                doubts += [doubt] if doubt else []
        verdict = "INCONCLUSIVE" if doubts else _placed(triple, target)
    judged = None if target is None else verdict
    if stored["verdict"] != judged:
        problems.add(check_id, f"{name}verdict is {stored['verdict']}, the raw material gives {judged}")
    for key, derived in zip(("value", "low", "high"), triple, strict=True):
        if not same(stored[key], derived):
            problems.add(check_id, f"{name}{key} is {stored[key]}, the raw material gives {derived}")
    return judged, triple


def _placed(triple: _Triple, target: Sequence[float] | None) -> str:
    value, low, high = triple
    if value is None or target is None:
        return "INCONCLUSIVE"
    low, high = (value if low is None else low), (value if high is None else high)
    if low >= target[0] and high <= target[1]:
        return "SUPPORTED"
    return "REFUTED" if low > target[1] or high < target[0] else "INCONCLUSIVE"


def _estimated(
    check_id: str,
    name: str,
    evidence: Mapping[str, Any],
    cell: Mapping[str, Any],
    cell_count: int,
    problems: _Problems,
) -> tuple[_Triple, str | None] | None:
    """Value and ends of a figure over repetitions, and why it decides nothing; None for one that is exact.

    What is judged has no ends before all of its runs are there.
    """
    try:
        triple = interval_of(evidence, 0.05 / cell_count)
        if triple is None or cell["target"] is None:
            return None if triple is None else (triple, None)
        doubt = incomplete(evidence, cell["repetitions"])
    except (LookupError, TypeError, ValueError, ArithmeticError) as error:
        problems.add(check_id, f"{name}{evidence['reduction']['op']} fails: {error!r}")
        return (None, None, None), "broken"
    if doubt is None and triple[1] is None:
        doubt = "too few repetitions for an interval"
    return (triple if doubt is None else (triple[0], None, None)), doubt


def _reduced(check_id: str, name: str, evidence: Mapping[str, Any], problems: _Problems) -> float | None:
    """The value that the declared reduction of an exact figure gives; None when it gives none."""
    op, names = evidence["reduction"]["op"], evidence["reduction"]["of"]
    try:
        lists = [evidence["observations"][key] for key in names]
        lists = [items if isinstance(items, list) else [items] for items in lists]
        value = float(_reduce_one(op, lists[0]) if len(lists) == 1 else _reduce_two(op, lists[0], lists[1]))
    except (KeyError, IndexError, TypeError, ValueError, ZeroDivisionError, OverflowError) as error:
        problems.add(check_id, f"{name}reduction {op} of {names} fails: {error!r}")
        return None
    if not math.isfinite(value):
        problems.add(check_id, f"{name}reduction {op} of {names} gives {value}")
        return None
    return value


def _reduce_one(op: str, a: list[Any]) -> float:
    if op == "value":
        return float(a[0])
    if op == "sum":
        return math.fsum(a)
    if op == "min":
        return float(sorted(a)[0])
    if op == "max":
        return float(sorted(a)[-1])
    if op == "median":
        return middle(a)
    if op == "count":
        return len(a)
    if op == "count_not_increasing":
        return len([index for index in range(1, len(a)) if not a[index] > a[index - 1]])
    raise ValueError(f"{op} does not take one observation")


def _reduce_two(op: str, a: list[Any], b: list[Any]) -> float:
    if op == "ratio":
        return math.fsum(a) / math.fsum(b)
    if op == "difference":
        return math.fsum(a) - math.fsum(b)
    if len(a) != len(b):
        raise ValueError(f"{len(a)} against {len(b)} items")
    pairs = list(zip(a, b, strict=True))
    if op == "max_abs_difference":
        return float(max(abs(x - y) for x, y in pairs))
    if op == "max_ratio":
        return float(max(x / y for x, y in pairs))
    if op == "relative_norm":
        return math.sqrt(math.fsum((x - y) ** 2 for x, y in pairs)) / math.sqrt(math.fsum(y * y for y in b))
    if op == "max_relative_error":
        return float(max(abs((x - y) / y) for x, y in pairs))
    if op == "fraction_greater":
        return len([None for x, y in pairs if x > y]) / len(pairs)
    equal = [x == y for x, y in pairs].count(True)
    if op == "count_equal":
        return equal
    if op == "count_unequal":
        return len(pairs) - equal
    if op == "fraction_equal":
        return equal / len(pairs)
    raise ValueError(f"{op} does not take two observations")


def _compare_claims(
    derived: Sequence[Mapping[str, Any]],
    declared: Mapping[str, tuple[str, bool]],
    stored: Sequence[Mapping[str, Any]],
    problems: _Problems,
) -> None:
    if [claim["id"] for claim in stored] != [claim["id"] for claim in derived]:
        problems.add(None, f"claims are {[claim['id'] for claim in stored]}, not those of claims.toml")
        return
    for claim, wanted in zip(stored, derived, strict=True):
        for key, value in zip(("title", "built"), declared[claim["id"]], strict=True):
            if claim[key] != value:
                problems.add(None, f"claim {claim['id']}: {key} is {claim[key]!r}, declared {value!r}")
        if claim["verdict"] != wanted["verdict"]:
            problems.add(
                None,
                f"claim {claim['id']}: verdict is {claim['verdict']}, its checks give {wanted['verdict']}",
            )
