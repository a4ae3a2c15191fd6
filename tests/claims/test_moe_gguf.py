"""The GGUF with experts: where they lie, what is kept, what is made anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize

from claims.experts import geometries, random_ids
from claims.models import remove_cached
from claims.moe_gguf import ExpertFile, expert_gguf
from engine.errors import FileError

GEOMETRY = geometries("smoke")["64 top-4"]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> ExpertFile:
    return expert_gguf(tmp_path_factory.mktemp("models"), "moe", GEOMETRY)


def expert_tensors(file: ExpertFile) -> Iterator[gguf.ReaderTensor]:
    return (tensor for tensor in gguf.GGUFReader(file.path).tensors if "_exps" in tensor.name)


def test_experts_lie_where_another_reader_finds_them(file: ExpertFile) -> None:
    found = {(int(tensor.data_offset), int(tensor.n_bytes)) for tensor in expert_tensors(file)}
    assert {(tensor.offset, tensor.bytes) for tensor in file.tensors} == found
    assert len(file.tensors) == 3 * GEOMETRY.layers
    assert all(tensor.offset % 4096 == 0 for tensor in file.tensors)
    assert file.bank_bytes == file.expert_bytes * GEOMETRY.experts * GEOMETRY.layers


def test_weights_have_no_mean_and_the_deviation_of_their_columns(file: ExpertFile) -> None:
    for tensor in expert_tensors(file):
        values = dequantize(tensor.data, tensor.tensor_type)
        sigma = values.shape[-1] ** -0.5
        assert abs(values.mean()) < 0.01 * sigma
        assert values.std() == pytest.approx(sigma, rel=0.01)
        assert np.abs(values).max() > 1.5 * sigma


def test_the_file_is_kept_and_a_damaged_one_made_anew(tmp_path: Path) -> None:
    made = expert_gguf(tmp_path, "moe", GEOMETRY)
    data, stamp = made.path.read_bytes(), made.path.stat().st_mtime_ns
    assert expert_gguf(tmp_path, "moe", GEOMETRY) == made
    assert made.path.stat().st_mtime_ns == stamp
    made.path.write_bytes(data[: len(data) // 2])
    assert expert_gguf(tmp_path, "moe", GEOMETRY) == made
    assert made.path.read_bytes() == data
    assert remove_cached(tmp_path) == (1, -(-len(data) // 4096) * 4096)


def test_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "models").touch()
    with pytest.raises((FileError, OSError), match="models"):
        expert_gguf(tmp_path / "models", "moe", GEOMETRY)


def test_ids_are_inside_the_vocabulary() -> None:
    assert max(random_ids(GEOMETRY.vocab, 100)) < GEOMETRY.vocab
