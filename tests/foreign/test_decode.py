"""The engine of another processor, emulated, against that of this machine: instruction sets, whole models.

`tox -e aarch64` builds it and says where it is (CFLOW_FOREIGN); elsewhere these tests are skipped.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from engine.enums import Isa, Layout, Prefetch, Residency, Role, Type
from engine.geometry import Geometry
from engine.model import Model
from engine.session import Session
from tests.engine.models import write_random_model

Floats = npt.NDArray[np.float32]

FOLDER = os.environ.get("CFLOW_FOREIGN")
pytestmark = [
    pytest.mark.no_sanitizer,
    pytest.mark.skipif(
        FOLDER is None, reason="CFLOW_FOREIGN names no engine of another processor: tox -e aarch64"
    ),
]

EMULATOR = ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu")
NEW, OLD = "max", "cortex-a72"
"""Processors with the dot product instructions and without them."""
TOKENS = [int(token) for token in np.random.default_rng(5).integers(0, 131, 21)]
MIXED = {
    Role.EMBEDDING: Type.F16,
    Role.HEAD: Type.Q8_0,
    Role.ATTN_QKV: Type.Q4_1,
    Role.ATTN_OUTPUT: Type.Q8_0,
    Role.FFN_GATE_UP: Type.Q4_0,
    Role.FFN_DOWN: Type.F16,
}


def run(cpu: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    settings = {name: value for name, value in os.environ.items() if name != "CFLOW_ISA"}
    return subprocess.run(
        [*EMULATOR, f"{FOLDER}/cflow_decode", *arguments],
        env={**settings, "QEMU_CPU": cpu, **environment},
        capture_output=True,
        timeout=100,
    )


def foreign_logits(cpu: str, path: Path, **options: int) -> Floats:
    """Of all tokens, as rows."""
    words = [f"{name}={int(value)}" for name, value in {"threads": 2, **options}.items()]
    done = run(cpu, str(path), *words, *map(str, TOKENS))
    assert done.returncode == 0, done.stderr.decode()
    return np.frombuffer(done.stdout, np.float32).reshape(len(TOKENS), -1)


def native_logits(path: Path, **options: int) -> Floats:
    with Model(path) as model, Session(model, threads=2, **options) as session:
        logits: Floats = session.decode_all(TOKENS)
        return logits


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    folder = tmp_path_factory.mktemp("foreign")
    moe, dense = Geometry.named("tiny_arch2_4_combined"), Geometry.named("tiny_standard")
    return {
        "moe": write_random_model(folder / "moe.cflow", moe, 4),
        "mixed": write_random_model(folder / "mixed.cflow", dense, 1, MIXED),
        "f32": write_random_model(folder / "f32.cflow", dense, 1, Type.F32),
    }


@pytest.mark.parametrize(
    ("cpu", "wanted", "shown"),
    [
        (NEW, None, "scalar neondot neondot"),
        (NEW, "scalar", "scalar neondot scalar"),
        (NEW, "avx2", "scalar neondot neondot"),
        (OLD, None, "scalar scalar"),
        (OLD, "neondot", "scalar scalar"),
    ],
)
def test_the_default_is_the_best_set_of_the_processor(cpu: str, wanted: str | None, shown: str) -> None:
    done = run(cpu, "isa", **({} if wanted is None else {"CFLOW_ISA": wanted}))
    assert done.stdout.decode().strip() == shown


@pytest.mark.parametrize(("cpu", "isa"), [(OLD, Isa.NEONDOT), (NEW, Isa.AVX2)])
def test_a_set_that_the_processor_lacks_is_refused_by_name(
    models: Mapping[str, Path], cpu: str, isa: Isa
) -> None:
    done = run(cpu, str(models["moe"]), f"isa={int(isa)}", "1")
    assert done.returncode == 2 and not done.stdout
    assert f"option isa is {isa.name.lower()}, which this CPU does not have" in done.stderr.decode()


@pytest.mark.parametrize(
    "options", [{"q8_activations": 1}, {"q8_activations": 0, "kv_f32": 1}], ids=["q8", "f32"]
)
@pytest.mark.parametrize("name", ["moe", "mixed", "f32"])
@pytest.mark.parametrize(("cpu", "isa"), [(NEW, Isa.NEONDOT), (NEW, Isa.SCALAR), (OLD, Isa.SCALAR)])
def test_logits_are_those_of_this_machine(
    models: Mapping[str, Path], name: str, cpu: str, isa: Isa, options: Mapping[str, int]
) -> None:
    """Up to the order of sums and, for both, the last bit of the mathematical library's sines."""
    found = foreign_logits(cpu, models[name], isa=isa, **options)
    expected = native_logits(models[name], isa=Isa.SCALAR, **options)
    error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    assert error < (1e-6 if isa is Isa.SCALAR else 1e-5)
    np.testing.assert_array_equal(found.argmax(axis=1), expected.argmax(axis=1))


@pytest.mark.parametrize(
    "options",
    [
        {"threads": 1},
        {"prompt_batch": 1},
        {"fused": 0},
        {"prefetch_hint": Prefetch.T0, "read_streams": 1},
        {"prefetch_hint": Prefetch.NTA, "read_streams": 4},
        {"residency": Residency.COPY},
        {"residency": Residency.DIRECT},
    ],
    ids=lambda options: " ".join(options),
)
@pytest.mark.parametrize("q8", [0, 1])
def test_ways_of_running_give_the_same_bits(
    models: Mapping[str, Path], options: Mapping[str, int], q8: int
) -> None:
    plain = foreign_logits(NEW, models["moe"], q8_activations=q8)
    found = foreign_logits(NEW, models["moe"], q8_activations=q8, **options)
    np.testing.assert_array_equal(found.view(np.uint32), plain.view(np.uint32))


def test_row_major_weights_are_computed_too(models: Mapping[str, Path]) -> None:
    exact = {"q8_activations": 0, "kv_f32": 1}
    tiled = foreign_logits(NEW, models["moe"], **exact)
    row_major = {"layout": Layout.ROW_MAJOR, "residency": Residency.COPY, **exact}
    for rows in (1, 2, 4, 8):
        found = foreign_logits(NEW, models["moe"], rows_per_pass=rows, **row_major)
        assert np.linalg.norm(found - tiled) < 1e-5 * np.linalg.norm(tiled)
