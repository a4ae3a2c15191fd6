"""The runs that are held against each other: read, refused or marked, and named A, B, C."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import harness
from harness.check import check as check_results
from harness.errors import ComparisonError, ResultsError
from harness.kinds import Verdict
from harness.results import FILE_NAME, Results
from harness.verdict import NOT_RUN
from reports import format as fmt
from reports.compare.facts import FACTS, Value, differ, hardware_differences, read_facts, value_text

MAX_RUNS: Final = len(string.ascii_uppercase)
_CLOCK_SLACK: Final = timedelta(minutes=5)
"""Clocks of machines differ by seconds; a start later than that lies in the future."""
_MUTANT: Final = re.compile(r"\bmutant (?!none\b)(\S+)")


@dataclass(frozen=True)
class Run:
    """A run under its letter. problems: of the separate checker, by check id (None: of the whole file)."""

    name: str
    results: Results
    facts: Mapping[str, Value]
    problems: Mapping[str | None, str]
    created: datetime
    ended: datetime

    @property
    def id(self) -> str:
        """The name of its folder."""
        return self.results.directory.resolve().name


def claim_verdict(run: Run, claim_id: str) -> Verdict | None:
    """Verdict of a claim; None when the run was cut down to checks that do not decide it."""
    results = run.results
    deciding = [check.id for check in results.registry.checks_of(claim_id) if not check.beyond]
    ran = any(results.record(check_id) is not None for check_id in deciding)
    if not ran and any(results.verdict(check_id)[1] == NOT_RUN for check_id in deciding):
        return None
    verdict: Verdict = next(claim["verdict"] for claim in results.claims if claim["id"] == claim_id)
    return verdict


@dataclass(frozen=True)
class Mark:
    """What a reader must know about runs that are compared all the same. runs: their letters."""

    runs: tuple[str, ...]
    text: str


def read_runs(directories: Sequence[Path]) -> tuple[Run, ...]:
    """Reads the runs and refuses what cannot be compared.

    Raises:
        ComparisonError: too few or too many runs, the same run twice, or runs of different profiles; names
        them. ResultsError: a results.json is missing, damaged or of another schema; names file and field.
    """
    if not 2 <= len(directories) <= MAX_RUNS:
        raise ComparisonError(f"found {len(directories)} run(s), allowed: 2 to {MAX_RUNS}")
    _refuse_same_folder(directories)
    runs = tuple(_read(name, path) for name, path in zip(string.ascii_uppercase, directories, strict=False))
    _refuse_duplicates(runs)
    for one, other in itertools.combinations(runs, 2):
        mine, others = one.results.run["profile"], other.results.run["profile"]
        if mine != others:
            raise ComparisonError(
                f"{one.results.directory} is of profile {mine}, {other.results.directory} of {others}: "
                "profiles measure other sizes; compare runs of one profile"
            )
    return runs


def _refuse_same_folder(directories: Sequence[Path]) -> None:
    for one, other in itertools.combinations(directories, 2):
        if one.resolve() == other.resolve():
            raise ComparisonError(f"{one} and {other} are the same folder")


def _refuse_duplicates(runs: Sequence[Run]) -> None:
    """Raises ComparisonError where the content of a file, or a run of one name and second, comes twice."""
    for one, other in itertools.combinations(runs, 2):
        mine, others = one.results, other.results
        same_name = (one.id, one.created) == (other.id, other.created)
        if _hash(mine) == _hash(others) or (
            same_name and mine.data["machine"]["before"] == others.data["machine"]["before"]
        ):
            raise ComparisonError(f"{mine.directory} and {others.directory} hold the same run")


def _hash(results: Results) -> str:
    return hashlib.sha256((results.directory / FILE_NAME).read_bytes()).hexdigest()


def _read(name: str, path: Path) -> Run:
    results = harness.load(path)
    _refuse_missing_claims(results)
    problems: dict[str | None, str] = {}
    for item in check_results(path)["problems"]:
        problems.setdefault(item["check"], item["problem"])
    run = results.run
    created = _time(path, "$.run.created_utc", run["created_utc"])
    stamps = [("$.run.finished_utc", run["finished_utc"])] if run["finished_utc"] else []
    stamps += [
        (f"$.checks[{record['id']}].finished_utc", record["finished_utc"]) for record in results.checks
    ]
    ended = max((_time(path, field, stamp) for field, stamp in stamps), default=created)
    return Run(name, results, read_facts(results), problems, created, ended)


def _refuse_missing_claims(results: Results) -> None:
    known = {claim["id"] for claim in results.claims}
    for claim in results.registry.claims:
        if claim.id not in known:
            path = results.directory / FILE_NAME
            raise ResultsError(f"{path}: $.claims: claim {claim.id!r} is missing")


def _time(path: Path, field: str, stamp: str) -> datetime:
    try:
        return datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError as error:
        raise ResultsError(
            f"{path / FILE_NAME}: {field}: found {stamp!r}, allowed: a time such as 2026-01-01T00:00:00Z"
        ) from error


def marks(runs: Sequence[Run], now: datetime) -> tuple[Mark, ...]:
    """What must be said beside a comparison of these runs."""
    found = [Mark((run.name,), text) for run in runs for text in _own_marks(run, now)]
    for one, other in itertools.combinations(runs, 2):
        found += [Mark((one.name, other.name), text) for text in _pair_marks(one, other)]
    commits = {run.name: str(run.results.run["commit"] or "none")[:12] for run in runs}
    if len(set(commits.values())) > 1:
        found.append(Mark(tuple(commits), f"other commits: {_by_run(commits)}"))
    hashes = {run.name: run.results.data["registry"]["sha256"][:12] for run in runs}
    if len(set(hashes.values())) > 1:
        text = f"other texts of claims.toml: {_by_run(hashes)}; checks declared otherwise are not compared"
        found.append(Mark(tuple(hashes), text))
    return tuple(found)


def _by_run(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _own_marks(run: Run, now: datetime) -> list[str]:
    own, found = run.results.run, []
    if own["dirty"]:
        found.append("built from uncommitted changes")
    if own["commit"] is None:
        found.append("not from a checkout: its source is not known")
    for value in run.results.data["build"].values():
        if mutant := _MUTANT.search(str(value)):
            found.append(f"a build that is wrong on purpose: mutant {mutant[1]}")
    if own["finished_utc"] is None:
        found.append("not finished")
    if own["options"].get("only"):
        found.append("cut down to some checks with --only")
    if run.created > now + _CLOCK_SLACK:
        found.append(f"starts in the future, at {own['created_utc']}: a clock is wrong")
    early = [
        stamp for stamp in (own["finished_utc"], *(item["finished_utc"] for item in run.results.checks))
        if stamp is not None and stamp < own["created_utc"]
    ]  # fmt: skip
    if early:
        found.append(f"ends at {min(early)}, before its start at {own['created_utc']}: a clock was set")
    if run.problems:
        count = len(run.problems)
        where = fmt.series([key or "the file" for key in list(run.problems)[:3]])
        more = f" and {count - 3} more" if count > 3 else ""
        found.append(f"the separate checker disagrees about {where}{more}: see cflow check")
    return found


def _pair_marks(one: Run, other: Run) -> list[str]:
    found = []
    mine, others = (
        {json.dumps(item["cells"]): item["id"] for item in _measured(run)} for run in (one, other)
    )
    shared = [mine[cells] for cells in mine if cells in others]
    if shared:
        found.append(f"the same rounds, to the nanosecond: {', '.join(shared)}; one is a copy")
    same = not hardware_differences(one.facts, other.facts)
    if same and one.created < other.ended and other.created < one.ended:
        found.append("ran at the same time on what looks like the same machine")
    return found


def _measured(run: Run) -> list[Mapping[str, Any]]:
    """Records with rounds of their own: no two runs can have the same."""
    return [
        item for item in run.results.checks
        if any((cell["evidence"] or {}).get("rounds") for cell in item["cells"])
    ]  # fmt: skip


def base_marks(base: Run, new: Run) -> tuple[Mark, ...]:
    """What must be said where one run is the base of the other. Both are on the same machine."""
    both = (base.name, new.name)
    found = []
    if base.created > new.created:
        found.append(Mark(both, "the base is the later run"))
    for fact in FACTS:
        mine, others = base.facts[fact.name], new.facts[fact.name]
        # Other commits are marked already.
        if not fact.measured and fact.name != "commit" and differ(fact.name, mine, others):
            texts = (value_text(fact.name, mine), value_text(fact.name, others))
            found.append(Mark(both, f"{fact.name}: {texts[0]} in the base, {texts[1]} in the new run"))
    return tuple(found)


def refuse_other_machine(base: Run, new: Run) -> None:
    """Raises ComparisonError, naming what differs, when two runs cannot have been on one machine."""
    names = hardware_differences(base.facts, new.facts)
    if names:
        said = "; ".join(
            f"{name}: {value_text(name, base.facts[name])} against {value_text(name, new.facts[name])}"
            for name in names
        )
        raise ComparisonError(
            f"--base: {base.results.directory} and {new.results.directory} are of different machines: {said}"
        )
