"""The library as Python finds it, and the wheel that carries it."""

import contextlib
import importlib.metadata
import importlib.resources
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from tools.build_engine import ROOT

PACKAGES = ("architectures", "baselines", "claims", "cli", "engine", "harness", "reports")
LIBRARIES = ("libcflow.so", "libcflow_record.so", "libcflow_fault.so")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from the checkout, without a network."""
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    backend = pytest.importorskip("scikit_build_core.build", reason="scikit-build-core is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    with contextlib.chdir(ROOT):
        return folder / backend.build_wheel(str(folder), {"build-dir": str(folder / "build")})


@pytest.mark.no_sanitizer
def test_wheel_holds_the_packages_and_nothing_else(wheel: Path) -> None:
    assert re.fullmatch(r"cflow_claims-[\d.]+-py3-none-\w+\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    sources = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file()
        and path.suffix in {".py", ".toml", ".json", ".j2", ".css", ".sh", ".txt", ".cflow", ".npz"}
    }
    sources = {name for name in sources if not name.startswith("reports/runs/")}
    libraries = {f"engine/{name}" for name in LIBRARIES}
    built = libraries | {"engine/cflow_gemv_driver", "engine/cflow_reads_driver"}
    pages = {f"claims/pages/{path.name}" for path in (ROOT / "docs/claims").glob("*.md")}
    assert names == sources | built | pages | {"engine/include/cflow.h"}


@pytest.mark.no_sanitizer
@pytest.mark.skipif(shutil.which("nm") is None, reason="nm (binutils) is not installed")
@pytest.mark.parametrize("name", LIBRARIES)
def test_library_exports_exactly_what_the_header_declares(wheel: Path, tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(wheel) as archive:
        library = archive.extract(f"engine/{name}", tmp_path)
    listed = subprocess.run(
        ["nm", "--dynamic", "--defined-only", "--format=posix", library],
        check=True,
        capture_output=True,
        text=True,
    )
    exported = {line.split()[0] for line in listed.stdout.splitlines()}
    header = re.sub(r"/\*.*?\*/", "", (ROOT / "engine/include/cflow.h").read_text(), flags=re.DOTALL)
    declared = set(re.findall(r"CFLOW_API [^;(]*?\b(cflow_\w+)\(", header))
    assert exported == declared


@pytest.mark.no_sanitizer
@pytest.mark.skipif(shutil.which("nm") is None, reason="nm (binutils) is not installed")
def test_the_driver_keeps_the_names_of_its_kernels(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        driver = Path(archive.extract("engine/cflow_gemv_driver", tmp_path))
        mode = archive.getinfo("engine/cflow_gemv_driver").external_attr >> 16
    assert mode & 0o111, "not executable once installed"
    listed = subprocess.run(["nm", "--format=posix", driver], check=True, capture_output=True, text=True)
    assert {"q4_0f32", "q4_0f32_rows_r1"} <= {line.split()[0] for line in listed.stdout.splitlines()}


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
