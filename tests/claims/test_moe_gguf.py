"""The GGUF with experts: where they lie, what is kept, what is made anew."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import gguf
import pytest

from claims.experts import geometries, random_ids
from claims.models import as_gguf, remove_cached, synthetic
from claims.moe_gguf import ExpertFile, expert_file
from engine.enums import Activation
from engine.errors import FormatError
from engine.model import Model

GEOMETRY = replace(geometries("smoke")["64 top-4"], activation=Activation.SWIGLU)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic(tmp_path_factory.mktemp("models"), "moe", GEOMETRY)


@pytest.fixture(scope="module")
def file(model: Path) -> ExpertFile:
    return expert_file(as_gguf(model), GEOMETRY)


def expert_tensors(file: ExpertFile) -> Iterator[gguf.ReaderTensor]:
    return (tensor for tensor in gguf.GGUFReader(file.path).tensors if "_exps" in tensor.name)


def test_experts_lie_where_another_reader_finds_them(file: ExpertFile) -> None:
    found = {(int(tensor.data_offset), int(tensor.n_bytes)) for tensor in expert_tensors(file)}
    assert {(tensor.offset, tensor.bytes) for tensor in file.tensors} == found
    assert len(file.tensors) == 3 * GEOMETRY.layers
    assert all(tensor.offset % 4096 == 0 for tensor in file.tensors)
    assert file.bank_bytes == file.expert_bytes * GEOMETRY.experts * GEOMETRY.layers


def test_both_engines_have_as_many_bytes_of_experts(model: Path, file: ExpertFile) -> None:
    with Model(model) as opened:
        ours = sum(tensor.bytes for tensor in opened.tensors if tensor.expert is not None)
    assert ours == file.bank_bytes  # these shapes need no padding


def test_the_file_is_kept_and_a_damaged_one_made_anew(tmp_path: Path) -> None:
    model = synthetic(tmp_path, "moe", GEOMETRY)
    made = as_gguf(model)
    data, stamp = made.read_bytes(), made.stat().st_mtime_ns
    assert as_gguf(model) == made
    assert made.stat().st_mtime_ns == stamp
    made.write_bytes(data[: len(data) // 2])
    with pytest.raises(FormatError, match=made.name):
        expert_file(made, GEOMETRY)
    assert as_gguf(model) == made
    assert made.read_bytes() == data
    assert remove_cached(tmp_path)[0] == 2
    assert not list(tmp_path.iterdir())


def test_ids_are_inside_the_vocabulary() -> None:
    assert max(random_ids(GEOMETRY.vocab, 100)) < GEOMETRY.vocab
