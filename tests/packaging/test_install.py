"""The library as Python finds it, and the wheel that carries it."""

import importlib.metadata
import importlib.resources
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from tools.build_engine import ROOT, build_engine

needs_cmake = pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")


def declared_functions() -> set[str]:
    """The functions that cflow.h declares as exported."""
    header = re.sub(r"/\*.*?\*/", "", (ROOT / "engine/include/cflow.h").read_text(), flags=re.DOTALL)
    return set(re.findall(r"CFLOW_API [^;(]*?\b(cflow_\w+)\(", header))


@needs_cmake
@pytest.mark.no_sanitizer
@pytest.mark.skipif(shutil.which("nm") is None, reason="nm (binutils) is not installed")
def test_library_exports_exactly_what_the_header_declares(tmp_path: Path) -> None:
    library = build_engine(tmp_path)
    listed = subprocess.run(
        ["nm", "--dynamic", "--defined-only", "--format=posix", str(library)],
        check=True,
        capture_output=True,
        text=True,
    )
    exported = {line.split()[0] for line in listed.stdout.splitlines()}
    assert exported == declared_functions()


def installed_distribution() -> importlib.metadata.Distribution | None:
    """This project as installed in the running environment, if it is."""
    try:
        return importlib.metadata.distribution("cflow-claims")
    except importlib.metadata.PackageNotFoundError:
        return None


@pytest.mark.skipif(installed_distribution() is None, reason="runs from the source tree, not installed")
def test_installed_package_carries_library_and_command() -> None:
    with importlib.resources.as_file(importlib.resources.files("engine") / "libcflow.so") as library:
        assert library.is_file()
    (command,) = importlib.metadata.entry_points(group="console_scripts", name="cflow")
    assert callable(command.load())


@needs_cmake
@pytest.mark.no_sanitizer
def test_wheel_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = pytest.importorskip("scikit_build_core.build", reason="scikit-build-core is not installed")
    monkeypatch.chdir(ROOT)
    wheel = tmp_path / backend.build_wheel(str(tmp_path), {"build-dir": str(tmp_path / "build")})
    assert re.fullmatch(r"cflow_claims-[\d.]+-py3-none-\w+\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())

    sources = {
        path.relative_to(ROOT).as_posix()
        for package in ("baselines", "claims", "cli", "engine", "harness", "reports")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix in {".py", ".toml", ".json", ".j2", ".css"}
    }
    sources = {name for name in sources if not name.startswith("reports/runs/")}
    assert sources - names == set()
    assert {"engine/libcflow.so", "engine/include/cflow.h"} <= names
    extra = {name for name in names - sources if ".dist-info/" not in name}
    assert extra == {"engine/libcflow.so", "engine/include/cflow.h"}
