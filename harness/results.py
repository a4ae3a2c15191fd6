"""results.json: written whole after every check, read back with every field checked."""

from __future__ import annotations

import fcntl
import importlib.resources
import itertools
import json
import math
import os
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import jsonschema_rs

from engine.held import create_file, remove_left, temporary_name
from harness.borrowed import lend, refuse_other_rounds
from harness.errors import RegistryError, ResultsError
from harness.evidence import Evidence
from harness.kinds import Verdict
from harness.registry import Check, Registry, parse_registry
from harness.verdict import (
    NotMeasurable,
    absent_check,
    judge_check,
    judge_claim,
    refuse_other_rounds_wanted,
    to_json,
)

if TYPE_CHECKING:
    import pandas

FILE_NAME: Final = "results.json"
LOCK_NAME: Final = ".results.lock"
"""Held by the run that writes the folder. The file stays: removing it would let two runs lock two files."""
SCHEMA_VERSION: Final = 1


@dataclass(frozen=True)
class RunInfo:
    """What a run was asked for. A resumed run must have the same profile, options, commit and dirty flag.

    options: as parsed; "only" is None unless the run was cut down to some checks. command: as typed, to
    repeat the run. commit, dirty: None outside a git checkout.
    """

    profile: str
    options: Mapping[str, Any]
    commit: str | None
    dirty: bool | None
    command: str


def utc_now() -> str:
    """Now, as ISO 8601 in UTC with whole seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of results.json."""
    text = importlib.resources.files("harness").joinpath("schema/results-1.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def write_atomically(path: Path, content: str | bytes) -> None:
    """Writes to a temporary name in the same folder, fsyncs, renames, fsyncs the folder. Nothing half-written
    stays; what a process left that was killed meanwhile goes first. Text is written as UTF-8. Raises OSError
    that names `path`.
    """
    remove_left(path)
    temporary = temporary_name(path)
    try:
        descriptor = create_file(temporary)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    try:
        with open(descriptor, "wb") as file:
            file.write(content.encode("utf-8") if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
            temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):  # the name that the user knows; a full disk comes without one
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _fault(error: jsonschema_rs.ValidationError) -> str:
    """The deepest cause of a schema fault, by field."""
    while branches := getattr(error.kind, "context", None):
        error = max(itertools.chain(*branches), key=lambda inner: len(inner.instance_path))
    field = "$" + "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path
    )
    return f"{field}: {error.message[:300]}"


def validate(data: object, part: str | None = None) -> None:
    """Checks data against the schema, or against one of its $defs. Raises ResultsError naming the field."""
    whole = schema()
    wanted = whole if part is None else {"$ref": f"#/$defs/{part}", "$defs": whole["$defs"]}
    try:
        errors = list(jsonschema_rs.Draft202012Validator(wanted).iter_errors(data))
    except ValueError as error:  # what no JSON text holds: a lone surrogate, an object of ours
        raise ResultsError(f"{FILE_NAME}: cannot hold this: {error}") from error
    if errors:
        first = min(errors, key=lambda error: list(map(str, error.instance_path)))
        raise ResultsError(f"{FILE_NAME}: {_fault(first)}")


def _encode(data: object) -> str:
    try:
        return json.dumps(data, indent=1, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ResultsError(f"{FILE_NAME}: cannot hold this: {error}") from error


def _no_constant(name: str) -> float:
    raise ValueError(f"found the number {name[:40]}, allowed: finite numbers")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _no_constant(text)


def _integer(text: str) -> int:
    _finite(text)
    return int(text)


def parse_json(text: str, where: Path | str = FILE_NAME) -> Any:
    """JSON as plain data, of finite numbers that a float can hold. Raises ResultsError that names `where`."""
    try:
        data = json.loads(text, parse_constant=_no_constant, parse_float=_finite, parse_int=_integer)
        if "\\ud" in text.lower():  # an escape may be half of a surrogate pair, which is no text
            json.dumps(data, ensure_ascii=False).encode("utf-8")
        return data
    except (json.JSONDecodeError, RecursionError) as error:
        raise ResultsError(f"{where}: not JSON: {error}") from error
    except ValueError as error:
        raise ResultsError(f"{where}: {error}") from error


def read_json(directory: Path) -> dict[str, Any]:
    """results.json of a run as plain data, schema-checked. Raises ResultsError."""
    path = directory / FILE_NAME
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ResultsError(f"{directory}: no {FILE_NAME} in this folder") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ResultsError(f"{path}: cannot be read: {error}") from error
    data = parse_json(text, path)
    if isinstance(data, dict) and data.get("schema_version") != SCHEMA_VERSION:
        raise ResultsError(
            f"{path}: $.schema_version: found {data.get('schema_version')!r}, allowed: {SCHEMA_VERSION}"
        )
    validate(data)
    loaded: dict[str, Any] = data
    return loaded


@dataclass(frozen=True)
class Results:
    """A run as read back. `data` is results.json; `registry` is parsed from the text inside it."""

    directory: Path
    data: Mapping[str, Any]
    registry: Registry

    @property
    def run(self) -> Mapping[str, Any]:
        """Profile, options, commit, times, command."""
        found: Mapping[str, Any] = self.data["run"]
        return found

    @property
    def claims(self) -> Sequence[Mapping[str, Any]]:
        """id, title, built, verdict and reason of every claim, in the order of the registry."""
        found: Sequence[Mapping[str, Any]] = self.data["claims"]
        return found

    @property
    def checks(self) -> Sequence[Mapping[str, Any]]:
        """The records of the checks that ran, in the order of the registry."""
        order = {check.id: index for index, check in enumerate(self.registry.checks)}
        return sorted(self.data["checks"], key=lambda record: order[record["id"]])

    def record(self, check_id: str) -> Mapping[str, Any] | None:
        """The record of a check, None when it did not run."""
        return next((record for record in self.data["checks"] if record["id"] == check_id), None)

    def interrupted(self, check_id: str) -> Sequence[Mapping[str, Any]]:
        """Earlier records of a check that were cut short, oldest first; they decide nothing."""
        return [record for record in self.data.get("interrupted", []) if record["id"] == check_id]

    def verdict(self, check_id: str) -> tuple[Verdict | None, str]:
        """Verdict and reason of any declared check, whether it ran or not."""
        record = self.record(check_id)
        if record is None:
            return absent_check(self.registry.check(check_id), self.run["profile"])
        return record["verdict"], record["reason"]

    def to_frame(self) -> pandas.DataFrame:
        """One row per declared check; figures of checks that did not run are missing."""
        import pandas

        return pandas.DataFrame([self._row(check) for check in self.registry.checks])

    def _row(self, check: Check) -> dict[str, Any]:
        record = self.record(check.id) or {}
        verdict, reason = self.verdict(check.id)
        head = headline(record) if record else {}
        declared = next((cell for cell in check.cells if cell.label == head.get("label")), check.cells[0])
        summary = head.get("summary") or {}
        a_a = summary.get("a_a") or (None, None)
        target = declared.target or (None, None)
        return {
            "id": check.id,
            "claim": check.claim,
            "statement": check.statement,
            "kind": record.get("kind"),
            "verdict": verdict,
            "reason": reason,
            "metric": check.metric,
            "value": record.get("value"),
            "low": record.get("low"),
            "high": record.get("high"),
            "unit": declared.unit,
            "paper": declared.paper,
            "target_low": target[0],
            "target_high": target[1],
            "beyond": check.beyond,
            "valid_rounds": summary.get("valid"),
            "void_rounds": summary.get("void"),
            "a_a_low": a_a[0],
            "a_a_high": a_a[1],
        }

    def rounds_frame(self) -> pandas.DataFrame:
        """One row per timed check, cell, round and arm, void rounds too; rounds that several figures look at
        once, with the check that measured them.
        """
        import pandas

        columns = [
            "check",
            "cell",
            "seq",
            "arm",
            "position",
            "void",
            "ns",
            "bytes",
            "work",
            "run_delay_ns",
            "wall_ns",
        ]
        rows = [row for record in self.checks for row in _round_rows(record)]
        return pandas.DataFrame(rows, columns=columns)


def _interrupted(record: Mapping[str, Any]) -> bool:
    return any((cell["evidence"] or {}).get("interrupted", False) for cell in record["cells"])


def headline(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The cell whose figure stands for a check: the first with the verdict of the check."""
    cells: Sequence[Mapping[str, Any]] = record["cells"]
    return next((cell for cell in cells if cell["verdict"] == record["verdict"]), cells[0])


def _round_rows(record: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for cell in record["cells"]:
        evidence = cell["evidence"] or {}
        for one in () if "rounds_of" in evidence else evidence.get("rounds", ()):
            void = ", ".join(dict.fromkeys(item["rule"] for item in one["void"]))
            for position, arm in enumerate(one["order"]):
                sample = one["samples"][arm]
                figures = [sample[key] for key in ("ns", "bytes", "work", "run_delay_ns", "wall_ns")]
                rows.append((record["id"], cell["label"], one["seq"], arm, position, void, *figures))
    return rows


def load(directory: Path | str) -> Results:
    """Reads the results of a run; rounds that several figures look at are in the evidence of each.

    Raises:
        ResultsError: missing or damaged file, naming the field.
    """
    directory = Path(directory)
    data = read_json(directory)
    try:
        registry = parse_registry(data["registry"]["text"])
    except RegistryError as error:
        raise ResultsError(f"{directory / FILE_NAME}: $.registry.text: {error}") from error
    declared = {check.id for check in registry.checks}
    for index, record in enumerate(data["checks"]):
        if record["id"] not in declared:
            raise ResultsError(
                f"{directory / FILE_NAME}: $.checks[{index}].id: {record['id']!r} is not in claims.toml"
            )
    lend(data["checks"])
    return Results(directory, data, registry)


class Recorder:
    """Writes results.json after every check. One recorder at a time per folder: it holds a lock until it is
    closed, collected, or its process ends.
    """

    def __init__(
        self,
        directory: Path,
        registry: Registry,
        data: dict[str, Any],
        now: Callable[[], str],
        clock_ns: Callable[[], int],
    ) -> None:
        self._path = directory / FILE_NAME
        self._registry = registry
        self._data = data
        self._now = now
        self._clock_ns = clock_ns
        self._unlock: Callable[[], object] = lambda: None

    @classmethod
    def open(
        cls,
        directory: Path,
        registry: Registry,
        run: RunInfo,
        build: Mapping[str, Any],
        machine: Mapping[str, Any],
        *,
        resume: bool = False,
        now: Callable[[], str] = utc_now,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> Recorder:
        """Starts a run, or goes on with an interrupted one.

        Args:
            machine: its state before the first check.
            build: of the engine, flat.

        Raises:
            ResultsError: the folder holds results and resume is False; another run writes it; it cannot be
            written; or the run to be resumed had another registry, profile, options, commit, dirty flag,
            build, CPU model or kernel.
        """
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ResultsError(f"{directory}: cannot be created: {error.strerror}") from error
        with ExitStack() as held:
            held.callback(os.close, _locked(directory))
            exists = (directory / FILE_NAME).exists()
            if exists and not resume:
                raise ResultsError(
                    f"{directory}: holds {FILE_NAME} already; "
                    "continue it with --resume or name another folder"
                )
            if exists:
                data = read_json(directory)
                _same_run(directory, data, registry, run, build, machine)
                data["run"]["resumed_utc"].append(now())
                data["run"]["finished_utc"] = None
                data["machine"]["after"] = None
            else:
                started: dict[str, Any] = {"created_utc": now(), "resumed_utc": [], "finished_utc": None}
                data = {
                    "schema_version": SCHEMA_VERSION,
                    "run": {**_run_json(run), **started, "command": run.command},
                    "registry": {"text": registry.text, "sha256": registry.sha256},
                    "build": dict(build),
                    "machine": {"before": dict(machine), "after": None},
                    "claims": [],
                    "checks": [],
                }
                validate(json.loads(_encode(data)))
            recorder = cls(directory, registry, data, now, clock_ns)
            recorder._write()
            recorder._unlock = weakref.finalize(recorder, held.pop_all().close)
        return recorder

    def close(self) -> None:
        """Lets another run write the folder. Closing twice is allowed; nothing may be added afterwards."""
        self._unlock()

    @property
    def path(self) -> Path:
        """The results.json that is being written."""
        return self._path

    def record(self, check_id: str) -> Mapping[str, Any] | None:
        """The record of a check so far, None when there is none."""
        return next((record for record in self._data["checks"] if record["id"] == check_id), None)

    def done(self, check_id: str) -> bool:
        """Whether a check has a record that was not interrupted: --resume skips it."""
        record = self.record(check_id)
        if record is None:
            return False
        return not _interrupted(record)

    def verdict(self, check_id: str) -> tuple[Verdict | None, str]:
        """Verdict and reason of a declared check as things stand."""
        record = self.record(check_id)
        if record is None:
            return absent_check(self._registry.check(check_id), self._data["run"]["profile"])
        return record["verdict"], record["reason"]

    def add(
        self,
        check_id: str,
        found: Evidence | NotMeasurable | Mapping[str, Evidence | NotMeasurable],
        *,
        started_ns: int,
        command: str,
        limits: Sequence[str] = (),
    ) -> tuple[Verdict | None, str]:
        """Judges a check on its evidence and writes it. An interrupted record of the same check is set aside:
        it is kept under `interrupted` and decides nothing.

        Args:
            found: the evidence; a mapping from cell label when the check declares cells; or why there is
            none. started_ns: CLOCK_MONOTONIC when the check began. command: what repeats this check alone.
            limits: what the figure does not show.

        Returns:
            verdict (None: recorded, no target) and reason.

        Raises:
            RegistryError: not declared. EvidenceError: the evidence does not fit. ResultsError: already
            recorded, or the file cannot be written.
        """
        check = self._registry.check(check_id)
        if self.done(check_id):
            raise ResultsError(f"{check_id}: recorded already in {self._path}")
        cells = found if isinstance(found, Mapping) else {cell.label: found for cell in check.cells}
        result = judge_check(check, cells)
        refuse_other_rounds(check_id, cells, self._data["checks"])
        refuse_other_rounds_wanted(check, self._data["run"]["profile"], cells)
        record = {
            **to_json(result),
            "seq": 1 + max((old["seq"] for old in self._data["checks"]), default=-1),
            "started_ns": started_ns,
            "finished_ns": self._clock_ns(),
            "finished_utc": self._now(),
            "command": command,
            "limits": list(limits),
        }
        validate(json.loads(_encode(record)), "check")
        before = self.record(check_id)
        if before is not None:
            self._data["interrupted"] = [*self._data.get("interrupted", []), before]
        kept = [old for old in self._data["checks"] if old["id"] != check_id]
        self._data["checks"] = [*kept, record]
        self._write()
        return result.verdict, result.reason

    def claim_verdict(self, claim_id: str) -> tuple[Verdict, str]:
        """Verdict and reason of a claim as things stand."""
        checks = {check.id: (check, *self.verdict(check.id)) for check in self._registry.checks_of(claim_id)}
        return judge_claim(self._registry.claim(claim_id), checks)

    def finish(self, machine: Mapping[str, Any]) -> None:
        """Closes the run with the machine's state after the last check."""
        self._data["machine"]["after"] = dict(machine)
        self._data["run"]["finished_utc"] = self._now()
        self._write()

    def _write(self) -> None:
        rows = []
        for claim in self._registry.claims:
            verdict, reason = self.claim_verdict(claim.id)
            rows.append(
                {
                    "id": claim.id,
                    "title": claim.title,
                    "built": claim.built,
                    "verdict": verdict,
                    "reason": reason,
                }
            )
        self._data["claims"] = rows
        try:
            write_atomically(self._path, _encode(self._data) + "\n")
        except OSError as error:
            raise ResultsError(f"{self._path}: cannot be written: {error.strerror}") from error


def _locked(directory: Path) -> int:
    """A descriptor that holds the lock of the folder until it is closed."""
    path = directory / LOCK_NAME
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise ResultsError(f"{path}: cannot be written: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            raise ResultsError(f"{directory}: is being written by another run") from error
        raise ResultsError(f"{path}: cannot be locked: {error.strerror}") from error
    return descriptor


def _machine_facts(machine: Mapping[str, Any]) -> dict[str, Any]:
    """What of a machine state stays the same for as long as it is the same machine."""
    fields = (("cpu", "model"), ("kernel", "system"), ("kernel", "release"))
    return {f"machine {part}.{key}": (machine.get(part) or {}).get(key) for part, key in fields}


def _run_json(run: RunInfo) -> dict[str, Any]:
    return {"profile": run.profile, "options": dict(run.options), "commit": run.commit, "dirty": run.dirty}


def _same_run(
    directory: Path,
    data: Mapping[str, Any],
    registry: Registry,
    run: RunInfo,
    build: Mapping[str, Any],
    machine: Mapping[str, Any],
) -> None:
    wanted = {
        **_run_json(run),
        "claims.toml SHA-256": registry.sha256,
        "build": dict(build),
        **_machine_facts(machine),
    }
    found = {
        **data["run"],
        "claims.toml SHA-256": data["registry"]["sha256"],
        "build": data["build"],
        **_machine_facts(data["machine"]["before"]),
    }
    for key, value in wanted.items():
        if found[key] != value:
            raise ResultsError(f"{directory}: cannot be resumed: {key} was {found[key]!r}, now {value!r}")
