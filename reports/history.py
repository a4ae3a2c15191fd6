"""Earlier runs of the same machine and profile, found in the folder beside a run: verdict and figure of each.

They are read for this table alone and never enter a figure. A neighbour is read without its evidence, so that
a page stays quick to make; whoever doubts an earlier verdict runs `cflow check` on that folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.errors import HarnessError, ResultsError
from harness.registry import parse_registry
from harness.results import FILE_NAME, SCHEMA_VERSION, Results, headline, parse_json, validate
from reports import checks
from reports import format as fmt
from reports.compare.facts import FACTS, hardware_differences
from reports.model import Column, Row, Table

Json = Mapping[str, Any]

MAX_RUNS: Final = 6
"""Earlier runs that are shown."""
MAX_READ: Final = 16
"""Files that are opened to find them, newest first."""
MAX_BYTES: Final = 64_000_000
"""A larger file is left unread."""


@dataclass(frozen=True)
class Earlier:
    """runs: newest first. notes: what was left out and why, a sentence each."""

    runs: tuple[Results, ...] = ()
    notes: tuple[str, ...] = ()


def _without_evidence(record: Json) -> dict[str, Any]:
    """A record with its headline alone."""
    return {**record, "cells": [{**headline(record), "evidence": None}]}


def read(folder: Path) -> Results:
    """A run with the headline of each check and no evidence. Raises ResultsError when it is damaged."""
    path = folder / FILE_NAME
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise ResultsError(f"{size} bytes, more than the {MAX_BYTES} that are read")
        data = parse_json(path.read_text(encoding="utf-8"))
        if data["schema_version"] != SCHEMA_VERSION:
            raise ResultsError(f"schema version {data['schema_version']!r}, {SCHEMA_VERSION} is read")
        data["checks"] = [_without_evidence(record) for record in data["checks"]]
        data.pop("interrupted", None)
    except (OSError, ValueError) as error:
        raise ResultsError(f"cannot be read: {error}") from error
    except (AttributeError, KeyError, IndexError, TypeError) as error:
        raise ResultsError(f"not the results of a run: {error}") from error
    validate(data)
    registry = parse_registry(data["registry"]["text"])
    declared = {check.id for check in registry.checks}
    data["checks"] = [record for record in data["checks"] if record["id"] in declared]
    return Results(folder, data, registry)


def _hardware(results: Results) -> dict[str, Any]:
    return {fact.name: fact.read(results) for fact in FACTS if fact.hardware}


def _before(run: Results, results: Results) -> bool:
    """Whether a run is of the same profile and began earlier."""
    same = run.run["profile"] == results.run["profile"]
    return bool(same and run.run["created_utc"] < results.run["created_utc"])


def earlier(results: Results) -> Earlier:
    """Runs beside this one, of the same machine and profile, that began before it."""
    here = results.directory.resolve()
    try:
        beside = [path for path in here.parent.iterdir() if path != here and (path / FILE_NAME).is_file()]
        beside.sort(key=lambda path: (-(path / FILE_NAME).stat().st_mtime_ns, path.name))
    except OSError as error:
        return Earlier(notes=(f"The folder of this run cannot be listed: {error.strerror}.",))
    mine, found, notes = _hardware(results), [], []
    for path in beside[:MAX_READ]:
        try:
            run = read(path)
            if _before(run, results) and not hardware_differences(mine, _hardware(run)):
                found.append(run)
        except HarnessError as error:
            notes.append(f"{path.name}: left out: {fmt.capital(str(error))}.")
    found.sort(key=lambda run: run.run["created_utc"], reverse=True)
    unread, unshown = len(beside) - MAX_READ, len(found) - MAX_RUNS
    if unread > 0:
        notes.append(f"Older runs in the folder beside that were not looked at: {unread}.")
    if unshown > 0:
        notes.append(f"Older runs of this machine and profile that are not shown: {unshown}.")
    return Earlier(tuple(found[:MAX_RUNS]), tuple(notes))


def _figure(run: Results, check_id: str, declared: Results) -> str:
    """The figure of a check in an earlier run, if it was declared as it is now."""
    mine, others = (
        next((check for check in one.registry.checks if check.id == check_id), None)
        for one in (declared, run)
    )
    if mine is None or others is None or (others.metric, others.cells) != (mine.metric, mine.cells):
        return "declared otherwise"
    record = run.record(check_id)
    if record is None or record["value"] is None:
        return "not measured"
    number = checks.number(headline(record))
    return f"{number.value} ({number.interval})" if number.interval else number.value


def _row(run: Results, name: str, claim_id: str, check_id: str | None, declared: Results) -> Row | None:
    claim = next((item for item in run.claims if item["id"] == claim_id), None)
    if claim is None:
        return None
    commit = str(run.run["commit"] or "not a checkout")[:12]
    return Row(
        (
            name,
            run.run["created_utc"].replace("T", " ").removesuffix("Z"),
            f"{commit} with changes" if run.run["dirty"] else commit,
            checks.badge(claim["verdict"]).word,
            _figure(run, check_id, declared) if check_id else "",
        )
    )


def table(results: Results, runs: Sequence[Results], claim_id: str, check_id: str | None) -> Table | None:
    """Verdict on a claim, and figure of one check of it, run by run; None without earlier runs."""
    named = [(results, "this run"), *((run, run.directory.name) for run in runs)]
    rows = [_row(run, name, claim_id, check_id, results) for run, name in named]
    kept = tuple(row for row in rows if row is not None)
    if len(kept) < 2:
        return None
    what = f"Figure of {check_id}" if check_id else "Figure"
    plain = (Column(name) for name in ("Run", "Started, UTC", "Commit", "Verdict"))
    title = "Earlier runs of this machine and profile, as recorded"
    return Table(title, (*plain, Column(what, numeric=True)), kept)
