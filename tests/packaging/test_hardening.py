"""The libraries as built: protected against faults of memory, and the same bytes wherever they are built."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from engine.native import library_candidates
from tools.build_engine import ROOT, build_engine

pytestmark = [
    pytest.mark.no_sanitizer,
    pytest.mark.skipif(shutil.which("readelf") is None, reason="readelf (binutils) is not installed"),
]


def library() -> Path:
    """The one that the tests run on."""
    return next(path for path in library_candidates() if path.is_file())


def readelf(*options: str) -> str:
    command = ["readelf", "--wide", *options, str(library())]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_relocations_are_done_at_load_and_then_read_only() -> None:
    segments = readelf("--program-headers")
    assert "GNU_RELRO" in segments
    dynamic = readelf("--dynamic")
    assert "BIND_NOW" in dynamic or re.search(r"FLAGS.*NOW", dynamic)
    assert "TEXTREL" not in dynamic and "RPATH" not in dynamic and "RUNPATH" not in dynamic


def test_no_memory_is_writable_and_executable() -> None:
    lines = readelf("--program-headers").splitlines()
    (stack,) = [line.split() for line in lines if "GNU_STACK" in line]
    assert "E" not in stack[6]
    loads = [line for line in lines if line.split()[:1] == ["LOAD"]]
    assert len(loads) >= 2 and [line for line in loads if re.search(r"\bRWE\b", line)] == []


def test_stack_protector_and_checked_calls_are_in_use() -> None:
    symbols = readelf("--dyn-syms")
    assert "__stack_chk_fail" in symbols
    assert re.search(r"__\w+_chk\b(?<!__stack_chk)", symbols.replace("__stack_chk_fail", ""))


def test_paths_of_the_machine_that_built_it_are_not_inside() -> None:
    data = library().read_bytes()
    assert str(ROOT).encode() not in data
    assert readelf("--notes").count("Build ID") == 1


def test_no_source_asks_for_the_time_of_its_build() -> None:
    sources = [path for path in (ROOT / "engine").rglob("*") if path.suffix in {".c", ".h", ".inl"}]
    assert len(sources) > 100
    assert [path.name for path in sources if re.search(r"__(DATE|TIME|TIMESTAMP)__", path.read_text())] == []


def compile_in(tree: Path, build: Path) -> dict[str, str]:
    """SHA-256 of the objects of a few sources, compiled as the build of that folder says."""
    build_engine(build, {"CFLOW_WERROR": "ON"}, source_dir=tree, configure_only=True)
    hashes = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        name = Path(entry["file"]).name
        if name in SAMPLED and name not in hashes:
            command = shlex.split(entry["command"])
            target = Path(entry["directory"]) / command[command.index("-o") + 1]
            target.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(command, cwd=entry["directory"], check=True)
            hashes[name] = hashlib.sha256(target.read_bytes()).hexdigest()
    return hashes


SAMPLED = {"error.c", "load.c", "reader.c"}
"""One of each kind of flags that builds in a second; `python -m tools.reproduce` compares whole libraries."""


@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")
def test_another_folder_gives_the_same_objects(tmp_path: Path) -> None:
    found = []
    for name in ("one", "two/deeper"):
        tree = tmp_path / name / "tree"
        for part in ("cmake", "engine", "docs/claims"):
            shutil.copytree(ROOT / part, tree / part)
        shutil.copy(ROOT / "CMakeLists.txt", tree)
        found.append(compile_in(tree, tmp_path / name / "build"))
    assert found[0] == found[1] and found[0].keys() == SAMPLED
