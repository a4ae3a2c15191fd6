"""What goes wrong while experts are read: the token ends with a sentence, and the session goes on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.enums import Fault, Role
from engine.errors import CancelledError, CflowError, ChecksumError, FileError, NonFiniteError
from engine.faults import ALL, faults
from engine.geometry import Geometry
from engine.model import Model
from engine.native import fault_library
from engine.session import OptionValue, Session
from tests.engine.experts import blobs, prompt_of
from tests.engine.models import write_random_model
from tools.build_engine import ROOT

pytestmark = pytest.mark.filterwarnings("error")
GEOMETRY = Geometry.parse(
    "d=64,layers=6,heads=2,ffn=64,experts=8,top_k=2,expert_hidden=96,vocab=300,context=64,dd=1,de=2"
)
READERS = ["auto", "threads"]
# An expert is several requests of the device.
SMALL: dict[str, OptionValue] = {"read_bytes": 4096}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_model(tmp_path_factory.mktemp("faults") / "m.cflow", GEOMETRY, seed=6)


@pytest.fixture(scope="module")
def expected(path: Path) -> NDArray[np.float32]:
    """Logits after the prompt."""
    with Model(path) as model, Session(model) as session:
        return session.decode(prompt_of(model, 5))


@pytest.fixture
def model(path: Path) -> Iterator[Model]:
    """On the library whose reads fail when told to."""
    with fault_library(), Model(path) as opened:
        yield opened


def direct(model: Model, **options: OptionValue) -> Session:
    return Session(model, residency="direct", **options)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def assert_goes_on(session: Session, model: Model, expected: NDArray[np.float32]) -> None:
    """What came before the fault stands, and nothing of the fault is taken for an expert."""
    session.decode(prompt_of(model, 5)[session.position :])
    np.testing.assert_array_equal(session.logits(), expected)


# ---- the device ----


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("reads", ["staged", "sync"])
@pytest.mark.parametrize(
    ("kind", "after", "count"),
    [(Fault.SHORT, 0, 12), (Fault.INTERRUPTED, 1, 7), (Fault.AGAIN, 0, 9), (Fault.DELAY, 2, 3)],
)
def test_what_can_be_mended_is(
    model: Model, expected: NDArray[np.float32], reader: str, reads: str, kind: Fault, after: int, count: int
) -> None:
    with direct(model, reader=reader, expert_reads=reads, threads=2) as session:
        with faults(kind, after=after, count=count):
            logits = session.decode(prompt_of(model, 5))
        np.testing.assert_array_equal(logits, expected)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("reads", ["staged", "sync"])
@pytest.mark.parametrize("ram_budget", [0, 1 << 40])
@pytest.mark.parametrize("after", [0, 1, 11, 30, 50])
def test_an_error_of_the_device_names_file_offset_and_expert(
    model: Model, expected: NDArray[np.float32], reader: str, reads: str, ram_budget: int, after: int
) -> None:
    before = descriptors()
    with direct(
        model, reader=reader, expert_reads=reads, ram_budget=ram_budget, threads=2, **SMALL
    ) as session:
        with (
            faults(Fault.ERROR, after=after, count=1),
            pytest.raises(FileError) as error,
        ):
            session.decode(prompt_of(model, 5))
        text = str(error.value)
        assert str(model.path) in text
        assert f"token at position {session.position}" in text
        assert "Input/output error" in text
        places = {
            f"expert {expert} of block {block}": place for (block, expert), place in blobs(model).items()
        }
        named = next(name for name in places if name in text)
        offset = int(text.split("offset ")[1].split()[0].rstrip(":,;"))
        begin, size = places[named]
        assert begin <= offset < begin + size
        assert_goes_on(session, model, expected)
    assert descriptors() == before


@pytest.mark.parametrize("reader", READERS)
def test_a_file_that_ends_early(model: Model, expected: NDArray[np.float32], reader: str) -> None:
    with direct(model, reader=reader) as session:
        with (
            faults(Fault.END, after=4, count=ALL),
            pytest.raises(FileError, match="expert . of block ."),
        ):
            session.decode(prompt_of(model, 5))
        assert_goes_on(session, model, expected)


@pytest.mark.parametrize("reader", READERS)
def test_a_truncated_file(path: Path, tmp_path: Path, expected: NDArray[np.float32], reader: str) -> None:
    """Cut to the expert bank's beginning while it is open, and whole again afterwards."""
    copy = tmp_path / "m.cflow"
    shutil.copy(path, copy)
    data = copy.read_bytes()
    with Model(copy) as model, direct(model, reader=reader) as session:
        with copy.open("r+b") as file:
            file.truncate(min(offset for offset, _ in blobs(model).values()))
        with pytest.raises(FileError, match="expert . of block 0"):
            session.decode(prompt_of(model, 5))
        assert session.position == 0
        with copy.open("r+b") as file:
            file.write(data)
        assert_goes_on(session, model, expected)


@pytest.mark.parametrize("reader", READERS)
def test_a_file_that_is_replaced_while_it_is_open(
    path: Path, tmp_path: Path, expected: NDArray[np.float32], reader: str
) -> None:
    """By another file of the same name, before the session and during it: what was opened is what is read."""
    copy, other = tmp_path / "m.cflow", tmp_path / "other.cflow"
    shutil.copy(path, copy)
    with Model(copy) as model:
        write_random_model(other, GEOMETRY, seed=7).replace(copy)
        with direct(model, reader=reader) as session:
            session.decode(prompt_of(model, 5)[:2])
            copy.write_bytes(b"")
            assert_goes_on(session, model, expected)
            copy.unlink()
            session.reset()
            assert_goes_on(session, model, expected)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", [Fault.AGAIN, Fault.DELAY])
@pytest.mark.parametrize("reads", ["staged", "sync"])
def test_cancelled_while_a_token_waits(
    model: Model, expected: NDArray[np.float32], reader: str, kind: Fault, reads: str
) -> None:
    """A device that never answers, or takes 50 ms for every 4 KiB: the call ends all the same."""
    with direct(model, reader=reader, expert_reads=reads, threads=2, **SMALL) as session:
        with faults(kind, count=ALL):
            timer = threading.Timer(0.2, session.cancel)
            timer.start()
            with pytest.raises(CancelledError):
                session.decode(prompt_of(model, 5) * 8)
            timer.join()
        done = session.position
        assert done < 40
        session.reset()
        assert_goes_on(session, model, expected)


def test_cancelled_while_experts_are_read_alone(model: Model, expected: NDArray[np.float32]) -> None:
    with direct(model) as session:
        session.cancel()
        with pytest.raises(CancelledError, match="reading of experts cancelled"):
            session.read_experts(np.zeros((4, 6, 2), np.int32))
        with faults(Fault.ERROR, after=3), pytest.raises(FileError, match="expert 0 of block ."):
            session.read_experts(np.zeros((4, 6, 2), np.int32))
        assert_goes_on(session, model, expected)


def test_a_session_can_be_closed_while_the_device_is_away(model: Model) -> None:
    before = descriptors()
    session = direct(model, **SMALL)
    with faults(Fault.AGAIN, count=ALL):
        work = threading.Thread(target=lambda: _ends(session, model))
        work.start()
        session.cancel()
        work.join(60)
        assert not work.is_alive()
        session.close()
    assert descriptors() == before


def _ends(session: Session, model: Model) -> None:
    with pytest.raises(CflowError):
        session.decode(prompt_of(model, 5))


# ---- the file ----


@pytest.fixture
def damaged(path: Path, tmp_path: Path) -> Path:
    """The first scale of every expert of block 2 has the other sign; the rest is whole."""
    copy = tmp_path / "damaged.cflow"
    data = bytearray(path.read_bytes())
    with Model(path) as model:
        for (block, _), (begin, _) in blobs(model).items():
            if block == 2:
                data[begin + 1] ^= 0x80
    copy.write_bytes(data)
    return copy


@pytest.mark.parametrize("verify", ["first", "always"])
@pytest.mark.parametrize("ram_budget", [0, 1 << 40])
def test_a_damaged_expert_is_named(damaged: Path, verify: str, ram_budget: int) -> None:
    with Model(damaged) as model, direct(model, verify=verify, ram_budget=ram_budget) as session:
        for _ in range(2):  # the second time, too: what was refused is not kept
            with pytest.raises(
                ChecksumError,
                match=f"token at position 0: {damaged}: expert . of block 2 does not match its hash",
            ):
                session.decode([1])
            assert session.position == 0


def test_what_is_never_verified_is_computed_with(damaged: Path, path: Path) -> None:
    with Model(damaged) as model, direct(model, verify="never") as session, Session(model) as mapped:
        np.testing.assert_array_equal(session.decode([1, 2]), mapped.decode([1, 2]))
        with Model(path) as whole, Session(whole) as other:
            assert not np.array_equal(other.decode([1, 2]), mapped.logits())


def test_damage_behind_the_first_read_is_seen_by_always_alone(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "m.cflow"
    shutil.copy(path, copy)
    with (
        Model(copy) as model,
        direct(model, verify="first") as first,
        direct(model, verify="always") as always,
    ):
        for session in (first, always):
            session.decode([1])
        routed, _ = first.routing()
        begin, _ = blobs(model)[0, int(routed[0][0])]
        with copy.open("r+b") as file:
            file.seek(begin)
            byte = file.read(1)[0]
            file.seek(begin)
            file.write(bytes([byte ^ 1]))
        for session in (first, always):
            session.reset()
        first.decode([1])
        with pytest.raises(ChecksumError, match=f"expert {routed[0][0]} of block 0"):
            always.decode([1])


@pytest.mark.parametrize("threads", [1, 2])
def test_a_scale_that_is_not_finite_ends_the_token(path: Path, tmp_path: Path, threads: int) -> None:
    """Every expert of block 1 is spoilt; the layer whose attention first reads the sum with it is named."""
    copy = tmp_path / "nan.cflow"
    data = bytearray(path.read_bytes())
    with Model(path) as model:
        for tensor in model.tensors:
            if tensor.role is Role.EXPERT_DOWN and tensor.block == 1:
                data[tensor.offset : tensor.offset + 2] = np.float16(np.nan).tobytes()
    copy.write_bytes(data)
    with Model(copy) as model, direct(model, verify="never", threads=threads) as session:
        with pytest.raises(NonFiniteError, match="normalised in layer 4 of 6"):
            session.decode([1, 2])
        assert session.position == 0


def test_one_expert_that_is_not_finite_spoils_the_tokens_that_choose_it(path: Path, tmp_path: Path) -> None:
    def routed(session: Session, token: int) -> set[int]:
        session.reset()
        session.decode([token])
        return set(session.routing()[0][1].tolist())

    copy = tmp_path / "nan.cflow"
    data = bytearray(path.read_bytes())
    with Model(path) as model, Session(model) as session:
        chooser, other, spoilt = next(
            (chooser, other, min(routed(session, chooser) - routed(session, other)))
            for chooser, other in ((1, token) for token in range(2, 100))
            if routed(session, chooser) - routed(session, other)
        )
        session.reset()
        expected = session.decode([other])
        for tensor in model.tensors:
            if (tensor.role, tensor.block, tensor.expert) == (Role.EXPERT_DOWN, 1, spoilt):
                data[tensor.offset : tensor.offset + 2] = np.float16(np.nan).tobytes()
    copy.write_bytes(data)
    with Model(copy) as model, direct(model, verify="never") as session:
        with pytest.raises(NonFiniteError, match="token at position 0"):
            session.decode([chooser])
        np.testing.assert_array_equal(session.decode([other]), expected)


# ---- the machine ----

LIMITED = """
import os, resource, sys
from engine.errors import MemoryExhaustedError
from engine.model import Model
from engine.session import Session

with Model(sys.argv[1]) as model:
    with Session(model, residency="direct", ram_budget=1 << 40, stream_bytes=1 << 40) as session:
        needed = session.memory_bytes()[1]
        expected = session.decode([1, 2])
    held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    files = len(os.listdir("/proc/self/fd"))
    refused = 0
    for part in range(10):
        resource.setrlimit(resource.RLIMIT_AS, (held + needed * part // 8, resource.RLIM_INFINITY))
        try:
            with Session(model, residency="direct", ram_budget=1 << 40, stream_bytes=1 << 40) as session:
                assert (session.decode([1, 2]) == expected).all()
        except MemoryExhaustedError as error:
            assert str(error), error
            refused += 1
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert len(os.listdir("/proc/self/fd")) == files
    print(refused)
"""


@pytest.mark.no_sanitizer
def test_a_limit_of_memory_is_a_sentence(path: Path) -> None:
    """Whatever allocation meets it: refused, with nothing left behind."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs /proc/self/smaps")
def test_children_do_not_share_what_the_device_writes_to(model: Model) -> None:
    """Else, before Linux 6.5, a page copied for the parent during a read may keep its old bytes."""

    def kept() -> int:
        lines = Path("/proc/self/smaps").read_text().splitlines()
        return sum(line.startswith("VmFlags:") and " dc" in line for line in lines)

    before = kept()
    with direct(model, stream_bytes=1 << 24):
        assert kept() == before + 2
    assert kept() == before
