"""Models that the claims measure: made once per machine and cached beside the runs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from claims.run import SEED
from engine.convert_gguf import convert
from engine.enums import Role, Type
from engine.geometry import Geometry
from engine.layout import model_specs, plan
from engine.model import Model
from engine.session import Session
from engine.smollm2 import gguf_path
from engine.synth import synthesise


def _cached(folder: Path, name: str, key: str) -> Path:
    digest = hashlib.sha256(key.encode()).hexdigest()[:12]
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}-{digest}.cflow"


def _opens(path: Path) -> bool:
    """Whether a cached model is there and whole: only finished files are renamed; open checks the size."""
    if not path.exists():
        return False
    with Model(path):
        return True


def synthetic(folder: Path, name: str, geometry: Geometry) -> Path:
    """A q4_0 model of that geometry with seeded random weights."""
    path = _cached(folder, name, f"synth 1 {geometry} {SEED}")
    if not _opens(path):
        synthesise(path, geometry, SEED, name=name)
    return path


def smollm2(folder: Path) -> Path:
    """SmolLM2-135M-Instruct, converted block for block. Raises FileError when its package is missing."""
    source = gguf_path()
    path = _cached(folder, "smollm2-135m-instruct", f"gguf 1 {source.stat().st_size}")
    if not _opens(path):
        convert(source, path)
    return path


@contextmanager
def schedule_session(geometry: Geometry, folder: Path) -> Iterator[Session]:
    """A session of which only the schedule is used: header and tables over a sparse file without weights."""
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder) as temporary:
        path = Path(temporary) / "schedule.cflow"
        hparams = geometry.hyperparameters()
        specs = model_specs(hparams, lambda role: Type.F32 if role is Role.ROUTER else Type.Q4_0)
        layout = plan(hparams, specs, "schedule only")
        with path.open("wb") as file:
            file.write(layout.front([0] * len(layout.specs), [0] * len(layout.expert_regions)))
            file.truncate(layout.file_bytes)
        with Model(path) as model, Session(model, threads=1, context=1) as session:
            yield session


def undelayed(geometry: Geometry) -> Geometry:
    """The same weights under the schedule (0, 0)."""
    return replace(geometry, dd=0, de=0)
