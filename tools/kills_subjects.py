"""What is killed: commands, what must hold of their files at any moment, and what must come out of them."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import xxhash
from safetensors import SafetensorError, safe_open

from harness import load
from harness.check import check
from harness.errors import HarnessError

ROOT: Final = Path(__file__).resolve().parent.parent
GEOMETRY: Final = "dense_246m,layers=3,vocab=8192"
CHECKS: Final = ("1.bytes", "4.bytes", "5.order_delayed", "6.hint_places", "7.path", "7.traffic")
"""Of profile smoke: counted ones, which give the same on every run, with models that are made on the way."""
TRAINING_STEPS: Final = 40
_VARYING: Final = ("started_ns", "finished_ns", "finished_utc")
_STAYS: Final = (".results.lock", ".lock")


@dataclass(frozen=True)
class Subject:
    """A command that is killed and started again until it is done.

    command: MODULE ARGUMENT... for a folder and whether it is resumed. prepare: makes what it reads, once, in
    the folder of all runs. whole: raises ValueError for a file that is not what its name says. outcome: what
    must be equal in the end. ends: exit codes of a run that is done. watched: a file that must be whole while
    it runs.
    """

    name: str
    command: Callable[[Path, bool], Sequence[str]]
    prepare: Sequence[str]
    whole: Callable[[Path], object]
    outcome: Callable[[Path], Mapping[str, Any]]
    ends: tuple[int, ...] = (0,)
    watched: str | None = None
    python: str = field(default=sys.executable)


def visible(folder: Path) -> list[Path]:
    """The files below a folder that have their final name."""
    found = [path for path in folder.rglob("*") if path.is_file()]
    return sorted(
        path for path in found if not any(p.startswith(".") for p in path.relative_to(folder).parts)
    )


def left(folder: Path) -> list[str]:
    """Temporary names below a folder."""
    hidden = [path for path in folder.rglob(".*") if path.name not in _STAYS]
    return sorted(str(path.relative_to(folder)) for path in hidden)


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of each file."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in visible(folder)
    }


def _any(path: Path) -> None:
    """Files that are the same in every run are compared with those of the first."""


def _synth(folder: Path, resume: bool) -> list[str]:
    model = str(folder / "m.cflow")
    return ["cli.main", "synth", model, "--geometry", GEOMETRY, "--gguf", str(folder / "m.gguf")]


def _convert(folder: Path, resume: bool) -> list[str]:
    return ["cli.main", "convert", str(folder.parent / "source/m.gguf"), str(folder / "m.vflow")]


def _folder(folder: Path, resume: bool) -> list[str]:
    return ["cli.main", "convert", str(folder.parent / "source/m.cflow"), str(folder / "m"), "--hf", "int8"]


_SOURCE: Final = ("cli.main", "synth", "source/m.cflow", "--geometry", GEOMETRY, "--gguf", "source/m.gguf")


def _claims(folder: Path, resume: bool) -> list[str]:
    chosen = [word for name in CHECKS for word in ("--only", name)]
    words = ["pytest", "claims/", "--profile", "smoke", "-q", "-p", "no:cacheprovider", *chosen]
    return [*words, "--out", str(folder / "run"), *(["--resume"] if resume else [])]


def _whole_run(path: Path) -> None:
    try:
        if path.name == "results.json":
            problems = check(path.parent)["problems"]
            if problems:
                raise ValueError(f"{path}: {problems}")
        elif path.suffix == ".html" and not path.read_text(encoding="utf-8").endswith("</html>\n"):
            raise ValueError(f"{path}: ends early")
    except HarnessError as error:
        raise ValueError(str(error)) from error


def _verdicts(folder: Path) -> dict[str, Any]:
    """Verdicts and evidence of all checks, and the models, which two runs share byte for byte."""
    records = load(folder / "run").checks
    kept = [{key: value for key, value in record.items() if key not in _VARYING} for record in records]
    return {"checks": kept, "models": digests(folder / "models")}


def _train(folder: Path, resume: bool) -> list[str]:
    words = ["tests.architectures.training", str(folder / "run"), str(folder.parent / "source/tokens")]
    return [*words, str(TRAINING_STEPS), *(["resume"] if resume else [])]


def _whole_training(path: Path) -> None:
    try:
        if path.suffix == ".json":
            json.loads(path.read_text(encoding="utf-8"))
        elif path.suffix == ".safetensors":
            with safe_open(path, "np") as tensors:
                list(tensors.keys())
        elif path.name == "checkpoint.bin":
            head, _, body = path.read_bytes().partition(b"\n")
            if json.loads(head)["xxh64"] != xxhash.xxh64(body).hexdigest():
                raise ValueError("its hash does not match")
        elif path.suffix == ".svg" and not path.read_text(encoding="utf-8").endswith("</svg>\n"):
            raise ValueError("ends early")
    except (ValueError, SafetensorError) as error:
        raise ValueError(f"{path}: {error}") from error


def _trained(folder: Path) -> dict[str, Any]:
    """Everything but how long it took."""
    found: dict[str, Any] = digests(folder / "run")
    found["result.json"] = json.loads((folder / "run/result.json").read_text())
    del found["result.json"]["elapsed_s"]
    return found


_TEXT: Final = ("tests.architectures.texts", "source")

SUBJECTS: Final = {
    one.name: one
    for one in (
        Subject("synth", _synth, (), _any, digests),
        Subject("convert", _convert, _SOURCE, _any, digests),
        Subject("folder", _folder, _SOURCE, _any, digests),
        Subject("claims", _claims, (), _whole_run, _verdicts, ends=(0, 1), watched="run/results.json"),
        Subject("train", _train, _TEXT, _whole_training, _trained),
    )
}
