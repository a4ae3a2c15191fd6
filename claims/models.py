"""Models that the claims measure: made once per machine, cached beside the runs, verified before use."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from claims.run import SEED
from engine.convert_gguf import convert
from engine.enums import Order, Role, Type
from engine.errors import ChecksumError, FileError, FormatError, NonFiniteError
from engine.export_gguf import export
from engine.geometry import Geometry
from engine.gguf_source import GgufSource
from engine.layout import plan
from engine.model import Model
from engine.session import OptionValue, Session
from engine.smollm2 import gguf_path
from engine.stages import blank_session
from engine.synth import synthesise
from engine.tensors import model_specs

_FORMAT: Final = 2
"""Counts changes of what the writers put into a file of the same geometry."""
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
LAYOUTS_PREFIX: Final = ".layouts-"
"""Of folders with files that live as long as a check, unless it is killed."""
_CACHED_NAME: Final = re.compile(r"\.?.+-[0-9a-f]{12}\.(cflow|vflow|gguf)(\.\d+\.tmp)?")


def written_line(what: str) -> Callable[[int, int], None] | None:
    """Bytes that are written, on one line of a terminal, which is empty again at the end; None elsewhere."""
    if not sys.stderr.isatty():
        return None
    shown = -1

    def show(done: int, total: int) -> None:
        nonlocal shown
        percent = 100 * done // max(total, 1)
        if percent != shown:
            shown = percent
            said = f"writing {what}: {done / 1e9:.1f} of {total / 1e9:.1f} GB " if done < total else ""
            sys.stderr.write(f"\r{said}\x1b[K")
            sys.stderr.flush()

    return show


def _cached(folder: Path, name: str, key: str, suffix: str = "cflow") -> Path:
    digest = hashlib.sha256(key.encode()).hexdigest()[:12]
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}-{digest}.{suffix}"


@cache
def _verify(path: Path, size_bytes: int, changed_ns: int, inode: int) -> None:
    """Every checksum of a file, once per process and state of the file."""
    with Model(path) as model:
        model.verify()


def _verified(path: Path) -> None:
    status = path.stat()
    _verify(path, status.st_size, status.st_mtime_ns, status.st_ino)


def _made(path: Path, make: Callable[[Path], object]) -> Path:
    """The cached model at `path`; made when it is missing, and made anew when its checksums do not hold."""
    if path.exists():
        try:
            _verified(path)
            return path
        except (ChecksumError, FormatError, NonFiniteError) as error:
            warnings.warn(f"cached model is damaged and made anew: {error}", stacklevel=3)
            path.unlink()
    make(path)
    return path


def synthetic(
    folder: Path,
    name: str,
    geometry: Geometry,
    kinds: Mapping[Role, Type] | None = None,
    order: Order = Order.LAYER,
) -> Path:
    """A q4_0 model of that geometry with seeded random weights, the same in every order of the file.

    kinds: of the roles with another type.
    """
    others = [f" {role.name}={kind.name}" for role, kind in sorted((kinds or {}).items())]
    staged = "" if order is Order.LAYER else f" {order.name}"
    suffix = "cflow" if order is Order.LAYER else "vflow"
    path = _cached(folder, name, f"synth {_FORMAT} {geometry} {SEED}{''.join(others)}{staged}", suffix)
    shown = written_line(path.name)
    return _made(
        path,
        lambda target: synthesise(
            target, geometry, SEED, name=name, kinds=kinds, order=order, progress=shown
        ),
    )


def as_gguf(model: Path) -> Path:
    """The weights of a cached model as GGUF, beside it; made when it is missing or cannot be read.

    Its tensors begin on pages, so that a page holds weights of one tensor only. Raises UnsupportedError for a
    model that GGUF cannot describe, and FileError.
    """
    path = model.with_suffix(".gguf")
    try:
        GgufSource(path)
    except (FileError, FormatError):
        export(model, path, align_bytes=PAGE_BYTES, progress=written_line(path.name))
    return path


def smollm2(folder: Path) -> Path:
    """SmolLM2-135M-Instruct, converted block for block. Raises FileError when its package is missing."""
    source = gguf_path()
    path = _cached(folder, "smollm2-135m-instruct", f"gguf {_FORMAT} {source.stat().st_size}")
    return _made(path, lambda target: convert(source, target))


def from_gguf(folder: Path, source: Path) -> Path:
    """A GGUF file, converted block for block; made anew when the file has changed. Raises FileError,
    FormatError or UnsupportedError for one that cannot be converted.
    """
    try:
        status = source.stat()
    except OSError as error:
        raise FileError(f"{source}: cannot be read: {error.strerror}") from error
    key = f"gguf {_FORMAT} {source.resolve()} {status.st_size} {status.st_mtime_ns}"
    return _made(_cached(folder, source.stem, key), lambda target: convert(source, target))


def cached_model(folder: Path, name: str, key: str, make: Callable[[Path], object]) -> Path:
    """The cached model `name` of `key`, all that its bytes depend on; `make` writes it when it is missing."""
    return _made(_cached(folder, name, f"{_FORMAT} {key}"), make)


def remove_cached(folder: Path) -> tuple[int, int]:
    """Removes the cached models of a folder, unfinished ones too, and nothing else: (files, bytes freed)."""
    files = freed_bytes = 0
    found, left = [], []
    for path in folder.iterdir() if folder.is_dir() else []:
        if _CACHED_NAME.fullmatch(path.name):
            found.append(path)
        elif path.name.startswith(LAYOUTS_PREFIX) and path.is_dir():
            left.append(path)
            found += [inner for inner in path.rglob("*") if not inner.is_dir()]
    for path in found:
        freed_bytes += path.lstat().st_blocks * 512
        path.unlink()
        files += 1
    for path in left:
        shutil.rmtree(path)
    return files, freed_bytes


@contextmanager
def schedule_session(geometry: Geometry, folder: Path, **options: OptionValue) -> Iterator[Session]:
    """A session of which only the schedule is used: header and tables over a sparse file without weights.

    options: of the session, beside one thread and a context of one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    hparams = geometry.hyperparameters()
    specs = model_specs(hparams, lambda role: Type.F32 if role is Role.ROUTER else Type.Q4_0)
    with blank_session(plan(hparams, specs, "schedule only"), folder, **options) as session:
        yield session


def undelayed(geometry: Geometry) -> Geometry:
    """The same weights under the schedule (0, 0)."""
    return replace(geometry, dd=0, de=0)
