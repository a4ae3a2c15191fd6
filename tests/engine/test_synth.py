"""Synthetic models: valid files, the same bytes however they are written, nothing left after a failure."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from engine import synth
from engine.enums import Role, Type
from engine.errors import ArgumentError, FileError
from engine.format import CflowFile, read_file
from engine.geometry import Geometry
from engine.synth import synthesise
from engine.tiles import dequantise_tiles, pack, unpack

TINY = Geometry.named("tiny_arch3")


def matrices(file: CflowFile, role: Role, block: int | None = None) -> list[np.ndarray]:
    entry = file.entry(role, block)
    assert entry is not None
    return list(dequantise_tiles(entry.spec.layout(file.hparams.tile_shape), file.data(entry)))


@pytest.mark.parametrize("kind", [kind.name.lower() for kind in Type])
@pytest.mark.parametrize(("tile_rows", "tile_cols"), [(128, 256), (48, 96)])
def test_file_is_valid(tmp_path: Path, kind: str, tile_rows: int, tile_cols: int) -> None:
    path = tmp_path / "m.cflow"
    result = synthesise(path, TINY, 1, kind, tile_rows=tile_rows, tile_cols=tile_cols, name="tiny")
    file = read_file(path)
    file.verify()
    assert file.hparams == TINY.hyperparameters(tile_rows, tile_cols)
    assert file.name == "tiny"
    assert result.file_bytes == path.stat().st_size
    assert {entry.spec.kind.name.lower() for entry in file.tensors if entry.spec.role is Role.HEAD} == {kind}
    assert os.listdir(tmp_path) == ["m.cflow"]


def test_a_role_can_have_a_type_of_its_own(tmp_path: Path) -> None:
    synthesise(tmp_path / "m", TINY, 1, "f16", kinds={Role.FFN_DOWN: Type.Q4_0, Role.ROUTER: Type.Q4_0})
    file = read_file(tmp_path / "m")
    file.verify()
    found = {entry.spec.role: entry.spec.kind for entry in file.tensors}
    assert (found[Role.FFN_DOWN], found[Role.FFN_GATE_UP]) == (Type.Q4_0, Type.F16)
    assert found[Role.ROUTER] is Type.F32  # always


@pytest.mark.parametrize("tile_cols", [64, 96])
def test_bytes_depend_on_neither_threads_nor_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tile_cols: int
) -> None:
    """Windows of one page cut through groups, tensors and the gaps between them."""
    found = []
    for window_bytes, threads in ((16 << 20, 1), (4096, 1), (4096, 3), (12288, 2)):
        monkeypatch.setattr(synth, "WINDOW_BYTES", window_bytes)
        synthesise(tmp_path / "m.cflow", TINY, 5, tile_cols=tile_cols, threads=threads)
        found.append((tmp_path / "m.cflow").read_bytes())
    assert all(other == found[0] for other in found[1:])


def test_the_seed_matters_and_tensors_differ(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    synthesise(first, TINY, 1)
    synthesise(second, TINY, 2)
    a, b = read_file(first), read_file(second)
    assert a.entry(Role.HEAD) != b.entry(Role.HEAD)
    digests = [entry.digest for entry in a.tensors if not entry.spec.is_vector]
    assert len(set(digests)) == len(digests)


def test_deviations_and_symmetry(tmp_path: Path) -> None:
    wide = Geometry.parse("d=512,layers=1,vocab=2000,ffn=1024,experts=8,top_k=2,expert_hidden=64")
    synthesise(tmp_path / "m", wide, 3)
    file = read_file(tmp_path / "m")
    (embedding,) = matrices(file, Role.EMBEDDING)
    assert np.std(embedding) == pytest.approx(16, rel=0.03)
    gate, up = matrices(file, Role.FFN_GATE_UP, 0)
    (down,) = matrices(file, Role.FFN_DOWN, 0)
    (router,) = matrices(file, Role.ROUTER, 0)
    assert np.std(gate) == pytest.approx(512**-0.5, rel=0.03)
    assert np.std(down) == pytest.approx(1024**-0.5, rel=0.03)
    assert np.std(router) == pytest.approx(512**-0.5, rel=0.05)
    for values in (embedding, gate, up, down):
        assert abs(np.mean(values)) < 6 * np.std(values) / np.sqrt(values.size)
        assert abs(np.mean(values, axis=1)).max() < 6 * np.std(values) / np.sqrt(values.shape[1])
    synthesise(tmp_path / "m", wide, 3, matrix_sigma=0.5, embedding_sigma=2)
    file = read_file(tmp_path / "m")
    assert np.std(matrices(file, Role.EMBEDDING)[0]) == pytest.approx(2, rel=0.03)
    assert np.std(matrices(file, Role.FFN_DOWN, 0)[0]) == pytest.approx(0.5, rel=0.03)


def test_codes_are_symmetric_about_eight(tmp_path: Path) -> None:
    synthesise(tmp_path / "m", TINY, 3)
    file = read_file(tmp_path / "m")
    entry = file.entry(Role.EMBEDDING)
    assert entry is not None
    (rows,) = unpack(entry.spec.layout(file.hparams.tile_shape), file.data(entry))
    codes = rows.reshape(-1, 18)[:, 2:]
    counts = np.bincount(np.concatenate([codes & 15, codes >> 4], axis=None), minlength=16)
    assert counts[0] == 0
    assert counts[8] > 1.5 * counts[1:8].max()


def test_biases_are_random_and_norms_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = Geometry.parse("tiny_dense,qkv_bias=1,qk_norm=1,head_dim=320,layers=2")
    synthesise(tmp_path / "m", shape, 3)
    monkeypatch.setattr(synth, "WINDOW_BYTES", 4096)  # cuts through the biases
    synthesise(tmp_path / "n", shape, 3)
    assert (tmp_path / "m").read_bytes() == (tmp_path / "n").read_bytes()
    file = read_file(tmp_path / "m")
    biases = []
    for block in range(2):
        entry = file.entry(Role.ATTN_QKV_BIAS, block)
        assert entry is not None
        biases.append(file.data(entry).view(np.float32)[: entry.spec.part_rows[0]])
        for role in (Role.ATTN_Q_NORM, Role.ATTN_K_NORM):
            norm = file.entry(role, block)
            assert norm is not None
            assert file.data(norm).view(np.float32)[:320].tolist() == [1.0] * 320
    assert np.std(biases) == pytest.approx(0.5, rel=0.05)
    assert abs(np.corrcoef(*biases)[0, 1]) < 0.1


def test_gains_are_one_and_registers_zero(tmp_path: Path) -> None:
    synthesise(tmp_path / "m", TINY, 3)
    file = read_file(tmp_path / "m")
    for entry in file.tensors:
        if entry.spec.is_vector:
            values = file.data(entry).view(np.float32)[: entry.spec.part_rows[0]]
            assert set(values) == {0.0 if entry.spec.role is Role.REGISTER else 1.0}


@pytest.mark.parametrize("kind", [kind.name.lower() for kind in Type])
def test_padding_rows_are_zero(tmp_path: Path, kind: str) -> None:
    """131 rows of the vocabulary: 13 rows of padding, which packing again would restore as zero."""
    synthesise(tmp_path / "m", TINY, 3, kind, tile_rows=64, tile_cols=32)
    file = read_file(tmp_path / "m")
    for role, block in ((Role.HEAD, None), (Role.ROUTER, 1)):
        entry = file.entry(role, block)
        assert entry is not None
        layout = entry.spec.layout(file.hparams.tile_shape)
        stored = file.data(entry)
        np.testing.assert_array_equal(pack(layout, unpack(layout, stored)), stored)


def test_progress_ends_at_the_total(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synth, "WINDOW_BYTES", 4096)
    calls: list[tuple[int, int]] = []
    synthesise(tmp_path / "m", TINY, progress=lambda done, total: calls.append((done, total)))
    assert calls[-1][0] == calls[-1][1] > 0
    assert calls == sorted(calls)


def test_ctrl_c_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(synth, "WINDOW_BYTES", 4096)
    with pytest.raises(KeyboardInterrupt):
        synthesise(tmp_path / "m", TINY, progress=interrupt)
    assert os.listdir(tmp_path) == []


def test_a_failing_worker_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second write fails; the other worker, waiting for its turn to hash, ends too."""
    monkeypatch.setattr(synth, "WINDOW_BYTES", 4096)
    real, writes = os.pwrite, []

    def fail_later(fd: int, data: memoryview, offset: int) -> int:
        writes.append(offset)
        if len(writes) > 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", fail_later)
    with pytest.raises(FileError, match="no space left"):
        synthesise(tmp_path / "m", TINY, threads=3)
    assert os.listdir(tmp_path) == []


def test_space_is_checked_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=1, f_frsize=4096))
    with pytest.raises(FileError, match=r"needs [\d,]+ bytes, the file system has 4,096 bytes free"):
        synthesise(tmp_path / "m", Geometry.named("arch2_4_8k_16l"))
    assert os.listdir(tmp_path) == []


def test_a_refused_o_direct_is_said_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synthesise(tmp_path / "a", TINY, 1)
    real = fcntl.fcntl

    def refuse(fd: int, command: int, value: int = 0) -> int:
        if command == fcntl.F_SETFL and value & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(fd, command, value)

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    result = synthesise(tmp_path / "b", TINY, 1)
    assert not result.direct_io
    assert "O_DIRECT is refused" in result.note
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": -1}, "seed is -1"),
        ({"threads": 0}, "threads is 0"),
        ({"type": "q5_k"}, "type 'q5_k' is unknown"),
        ({"tile_rows": 8}, "tile_rows is 8"),
        ({"embedding_sigma": 0.0}, "sigma 0"),
    ],
)
def test_bad_options_are_named(tmp_path: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        synthesise(tmp_path / "m", TINY, **options)  # type: ignore[arg-type]
    assert os.listdir(tmp_path) == []
