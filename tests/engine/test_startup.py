"""Opening, copying and their probes: what is touched, what is checked, and the tool that times them."""

import resource
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.enums import Role, Status
from engine.errors import ArgumentError, ChecksumError
from engine.format import read_file
from engine.geometry import Geometry
from engine.model import Model
from engine.native import lib
from engine.probes import MIB, Pool
from engine.session import Session
from engine.synth import synthesise
from tests.engine.models import write_random_model
from tools import startup

TINY = Geometry.parse("tiny_standard")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_random_model(tmp_path / "model.cflow", TINY, seed=5)


def _faults() -> int:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_minflt + usage.ru_majflt


def test_opening_touches_tables_and_no_weights(tmp_path: Path) -> None:
    big = tmp_path / "big.cflow"
    synthesise(big, Geometry.parse("d=512,layers=8,experts=8,top_k=2,expert_hidden=512,ffn=2048,vocab=8000"))
    pages = big.stat().st_size // 4096
    table_pages = min(entry.offset for entry in read_file(big).tensors) // 4096 + 1
    with Model(big):  # the interpreter's and the library's own first times
        pass
    before = _faults()
    with Model(big) as model:
        opened = _faults()
        with Session(model, threads=1, context=1):
            started = _faults()
    assert pages > 10_000
    assert opened - before <= table_pages + 100
    assert started - opened <= 1_000


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_copy_computes_the_same(path: Path, threads: int) -> None:
    with Model(path) as model:
        with Session(model, threads=1) as mapped:
            expected = mapped.decode([1, 2, 3])
        with Session(model, threads=threads, residency="copy", pin=False) as copied:
            assert (copied.decode([1, 2, 3]) == expected).all()


@pytest.mark.parametrize("role", [Role.EMBEDDING, Role.ATTN_NORM, Role.ROUTER, Role.EXPERT_DOWN])
def test_a_copy_names_the_tensor_with_a_flipped_bit(path: Path, role: Role) -> None:
    entry = next(entry for entry in read_file(path).tensors if entry.spec.role is role)
    data = bytearray(path.read_bytes())
    data[entry.offset + entry.length - 1] ^= 1
    path.write_bytes(data)
    with Model(path) as model, pytest.raises(ChecksumError) as error:
        Session(model, threads=2, residency="copy")
    assert f"tensor {entry.spec.name} " in str(error.value)


def test_probes_of_a_copy(path: Path) -> None:
    with Pool(2) as pool, Model(path) as model:
        assert pool.touch(3 * MIB + 1) > 0
        elapsed_ns, direct_bytes = pool.load(model)
        assert elapsed_ns > 0
        assert 0 <= direct_bytes <= model.file_bytes
        with pytest.raises(ArgumentError, match="0 bytes"):
            pool.touch(0)


def test_a_kernel_without_run_queue_delay_gives_none(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> int:
        return Status.ERR_UNSUPPORTED

    monkeypatch.setattr(lib(), "cflow_pool_run_delay", refuse)
    monkeypatch.setattr(lib(), "cflow_session_run_delay", refuse)
    with Pool(2) as pool, Model(path) as model, Session(model, threads=2) as session:
        assert pool.run_delays_ns() is None
        assert session.run_delays_ns() is None


@pytest.mark.parametrize("arguments", [[], ["--warm"]])
def test_the_tool_prints_every_part(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    command = ["startup", str(path), "--rounds", "2", "--threads", "2", *arguments]
    monkeypatch.setattr(sys, "argv", command)
    startup.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:7]] == ["open", "session", "touch", "read", "copy"]
    assert lines[7].startswith("copy / slower of touch and read: median ")
