"""An x86-64 processor without AVX, or without AVX-512 (emulated), runs what it has and never gets more."""

from __future__ import annotations

import platform
import shutil
import subprocess

import pytest

from engine.enums import Isa
from engine.kernels import kernels
from engine.native import DRIVER_NAME, built_beside_library

pytestmark = [
    pytest.mark.no_sanitizer,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the engine of another processor"),
    pytest.mark.skipif(shutil.which("qemu-x86_64") is None, reason="no qemu-x86_64 (apt install qemu-user)"),
]

VECTOR_SETS = (Isa.AVX2, Isa.AVX512, Isa.AVX512VNNI)


def multiply(cpu: str, kernel: str) -> subprocess.CompletedProcess[str]:
    """One product on that processor, in a program of its own."""
    sizes = ("64", "512", "128", "256")
    command = ["qemu-x86_64", "-cpu", cpu, str(built_beside_library(DRIVER_NAME)), kernel, *sizes]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("cpu", "isa"),
    [("Nehalem", isa) for isa in VECTOR_SETS] + [("Haswell", isa) for isa in VECTOR_SETS if isa > Isa.AVX2],
    ids=lambda value: value.name.lower() if isinstance(value, Isa) else value,
)
def test_a_kernel_that_the_processor_lacks_is_refused_by_name(cpu: str, isa: Isa) -> None:
    kernel = next(found.name for found in kernels() if found.isa is isa and found.rows_per_pass == 0)
    done = multiply(cpu, kernel)
    assert done.returncode == 2, "an illegal instruction would have ended it by a signal"
    assert f"this CPU does not run {kernel} ({isa.name.lower()})" in done.stderr


@pytest.mark.parametrize("cpu", ["Nehalem", "Haswell"])
def test_the_scalar_kernels_run_everywhere(cpu: str) -> None:
    for kernel in kernels():
        if kernel.isa is Isa.SCALAR:
            assert multiply(cpu, kernel.name).returncode == 0, kernel.name
