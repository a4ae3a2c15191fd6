"""Opening, reading and verifying models through the C library."""

import signal
from pathlib import Path

import numpy as np
import pytest

from engine.enums import Advice, Param, Role, Type
from engine.errors import (
    ArgumentError,
    CflowError,
    ChecksumError,
    FileError,
    FormatError,
    NonFiniteError,
)
from engine.format import read_file
from engine.geometry import Geometry
from engine.model import Model
from engine.session import Session
from engine.synth import synthesise
from harness.cachestate import CacheStateError, evict, residency
from tests.engine.models import write_random_model

GEOMETRY = Geometry.named("tiny_arch2_4_combined")
TOKENIZER = '{"a": "tokenizer of another kind, é"}'


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_model(
        tmp_path_factory.mktemp("model") / "m.cflow", GEOMETRY, seed=1, tokenizer_json=TOKENIZER
    )


def test_parameters_equal_the_python_reader(path: Path) -> None:
    expected = read_file(path)
    with Model(path) as model:
        assert list(model.params.values()) == expected.hparams.words()
        assert list(model.params) == [param.name.lower() for param in Param]
        assert model.name == expected.name
        assert model.file_bytes == path.stat().st_size
        assert (model.vocab, model.context) == (GEOMETRY.vocab, GEOMETRY.context)
        assert (model.bos, model.eos) == (None, None)
        assert model.rms_eps == expected.hparams.rms_eps
        assert model.rope_base == expected.hparams.rope_base


def test_tensors_equal_the_python_reader(path: Path) -> None:
    expected = read_file(path)
    with Model(path) as model:
        found = model.tensors
        assert len(found) == len(expected.tensors)
        for index, (tensor, entry) in enumerate(zip(found, expected.tensors, strict=True)):
            spec = entry.spec
            assert (tensor.name, tensor.role, tensor.block, tensor.expert) == (spec.name, *spec.key)
            assert (tensor.type, tensor.rows, tensor.columns) == (spec.kind, spec.part_rows, spec.columns)
            assert (tensor.offset, tensor.bytes, tensor.hash) == (entry.offset, entry.length, entry.digest)
            assert np.array_equal(model.tensor_data(index), expected.data(entry))


def test_weights_of_the_tensors_sum_to_the_geometry(path: Path) -> None:
    with Model(path) as model:
        matrices = sum(tensor.weights for tensor in model.tensors if tensor.columns > 1)
    assert matrices == GEOMETRY.parameters


def test_tokenizer_text(path: Path, tmp_path: Path) -> None:
    with Model(path) as model:
        assert model.tokenizer_json == TOKENIZER
    with Model(write_random_model(tmp_path / "n.cflow", GEOMETRY, seed=1)) as model:
        assert model.tokenizer_json is None


def test_closed_model_is_refused_and_closing_twice_is_allowed(path: Path) -> None:
    model = Model(path)
    session = Session(model)
    model.close()
    model.close()
    session.close()
    with pytest.raises(ArgumentError, match=r"m\.cflow: the model is closed"):
        _ = model.params
    with pytest.raises(ArgumentError, match="closed"):
        session.decode([1])


def test_a_session_keeps_a_dropped_model_alive(path: Path) -> None:
    session = Session(Model(path))
    assert np.isfinite(session.decode([1, 2])).all()
    session.close()


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="absent.cflow"):
        Model(tmp_path / "absent.cflow")


def test_a_directory_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(CflowError, match=str(tmp_path)):
        Model(tmp_path)


def test_truncated_file_is_refused(path: Path, tmp_path: Path) -> None:
    data = path.read_bytes()
    for size in (0, 100, 511, 512, len(data) // 2, len(data) - 1):
        cut = tmp_path / f"{size}.cflow"
        cut.write_bytes(data[:size])
        with pytest.raises(FormatError, match=cut.name):
            Model(cut)


def test_wrong_magic_is_a_format_error(path: Path, tmp_path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    bad = tmp_path / "bad.cflow"
    bad.write_bytes(data)
    with pytest.raises(FormatError, match="magic"):
        Model(bad)


def test_verify_accepts_a_good_file(path: Path) -> None:
    with Model(path) as model:
        model.verify()


@pytest.mark.parametrize("role", [Role.EMBEDDING, Role.FFN_DOWN, Role.EXPERT_DOWN])
def test_verify_names_the_tensor_with_a_flipped_bit(path: Path, tmp_path: Path, role: Role) -> None:
    entry = next(entry for entry in read_file(path).tensors if entry.spec.role is role)
    data = bytearray(path.read_bytes())
    data[entry.offset + entry.length - 1] ^= 1
    bad = tmp_path / "flipped.cflow"
    bad.write_bytes(data)
    with Model(bad) as model, pytest.raises(ChecksumError) as error:
        model.verify()
    assert f"tensor {entry.spec.name} " in str(error.value)


def test_flipped_tokenizer_is_a_checksum_error(path: Path, tmp_path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[data.index(TOKENIZER.encode())] ^= 1
    bad = tmp_path / "flipped.cflow"
    bad.write_bytes(data)
    with Model(bad) as model, pytest.raises(ChecksumError, match="tokenizer"):
        _ = model.tokenizer_json


def test_verify_can_be_interrupted(tmp_path: Path) -> None:
    big = tmp_path / "big.cflow"
    synthesise(big, Geometry.parse("d=1024,layers=12,vocab=32000"))

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with Model(big) as model, pytest.raises(KeyboardInterrupt):
            # Signals again and again: one of them must end the call, however fast the disk is.
            signal.setitimer(signal.ITIMER_REAL, 0.001)
            while True:
                model.verify()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    # Closing has waited for the C call, which would have read an unmapped file; the next verification passes.
    with Model(big) as model:
        model.verify()


def test_unverified_non_finite_scale_ends_the_token(path: Path, tmp_path: Path) -> None:
    entry = next(entry for entry in read_file(path).tensors if entry.spec.role is Role.ATTN_OUTPUT)
    assert entry.spec.kind is Type.Q4_0
    data = bytearray(path.read_bytes())
    data[entry.offset : entry.offset + 2] = np.float16(np.nan).tobytes()
    bad = tmp_path / "nan.cflow"
    bad.write_bytes(data)
    with Model(bad) as model, Session(model) as session, pytest.raises(NonFiniteError, match="layer 0"):
        session.decode([1])


def test_a_head_whose_square_overflows_ends_the_token(tmp_path: Path) -> None:
    """Its norm would make zeros of it, and the logits would be finite."""
    good = write_random_model(
        tmp_path / "good.cflow", Geometry.named("tiny_dense"), 2, Type.F32, qk_norm=True
    )
    entry = read_file(good).entry(Role.ATTN_QKV, 1)
    assert entry is not None
    data = np.fromfile(good, np.uint8)
    data[entry.offset : entry.offset + entry.length].view(np.float32)[:] *= np.float32(1e25)
    data.tofile(tmp_path / "bad.cflow")
    with (
        Model(tmp_path / "bad.cflow") as model,
        Session(model) as session,
        pytest.raises(NonFiniteError, match="normalised in layer 1 of"),
    ):
        session.decode([1])


@pytest.mark.parametrize("advice", list(Advice))
def test_advice_is_accepted_and_changes_nothing_that_is_read(path: Path, advice: Advice) -> None:
    with Model(path) as model, Session(model, threads=1) as session:
        expected = session.decode([3])
    with Model(path) as model, Session(model, threads=1) as session:
        model.advise(advice)
        assert np.array_equal(session.decode([3]), expected)


def test_random_advice_ends_readahead(tmp_path: Path) -> None:
    path = write_random_model(tmp_path / "cold.cflow", GEOMETRY, seed=2)
    try:
        evict(path)
    except CacheStateError as error:
        pytest.skip(str(error))
    with Model(path) as model:
        model.advise(Advice.RANDOM)
        evict(path, allowed_share=1.0)
        before = residency(path)
        model.tensor_data(len(model.tensors) - 1)
        # Whole pages of the tensor and none beside them.
        read = residency(path).resident_pages - before.resident_pages
        assert 0 < read <= model.tensors[-1].bytes // 4096 + 2


def test_wrong_advice_and_a_closed_model_are_refused(path: Path) -> None:
    with Model(path) as model, pytest.raises(ArgumentError, match="advice is 9; allowed: 0 to 2"):
        model.advise(9)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="closed"):
        model.advise(Advice.RANDOM)
