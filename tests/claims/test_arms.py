"""Arms of timed checks: what a sample holds, and that the cache precondition is restored before it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from claims import arms
from claims.arms import DECODE_COUNTERS, decode_arm, fill_matrix, gemv_arm
from claims.l1 import kernel_of
from claims.recorded import EQUAL_PARTS
from engine.enums import Isa, Type
from engine.kernels import tiles_bytes, unpack_tiles
from engine.model import Model
from engine.probes import Arena, Pool
from engine.session import Session
from engine.synth import synthesise
from harness.rounds import weight_bytes


def test_a_decoding_sample_holds_what_was_decoded(tmp_path: Path) -> None:
    path = tmp_path / "m.cflow"
    synthesise(path, EQUAL_PARTS)
    with Model(path) as model, Session(model, threads=1, context=8) as session:
        arm = decode_arm("plain", session, path, 11, 3)
        first, second = arm.run(), arm.run()
    assert first.digest == second.digest == arm.expected_digest
    assert first.work == 3
    assert set(first.counters) == set(DECODE_COUNTERS)
    assert first.bytes == weight_bytes(first.counters) > 0
    assert arm.resident == (1.0, 1.0)


def test_a_file_that_lost_pages_is_read_again_before_the_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.cflow"
    synthesise(path, EQUAL_PARTS)
    resident, read = [True], []

    def read_whole(which: Path) -> None:
        read.append(which)
        resident[0] = True

    monkeypatch.setattr(arms, "residency", lambda _: SimpleNamespace(share=1.0 if resident[0] else 0.9))
    monkeypatch.setattr(arms, "read_whole", read_whole)
    with Model(path) as model, Session(model, threads=1, context=8) as session:
        arm = decode_arm("plain", session, path, 11, 2)
        assert read == []
        resident[0] = False
        assert arm.run().resident == 1.0
    assert read == [path]


def test_both_layouts_of_a_matrix_give_the_same_product() -> None:
    rows, columns = 48, 512
    size = tiles_bytes(Type.Q4_0, rows, columns)
    with Pool(1, pin=False) as pool, Arena(pool, size) as tiles, Arena(pool, size) as blocks:
        assert fill_matrix(tiles, rows, columns) == size
        blocks.data()[:size] = unpack_tiles(Type.Q4_0, [rows], columns, tiles.data()[:size])[0].ravel()
        tiled, row_major = kernel_of(Isa.SCALAR, True, 0), kernel_of(Isa.SCALAR, True, 1)
        # The scalar kernels with 8-bit activations add in the same order: the bits must be the same.
        first = gemv_arm("tiles", pool, tiles, tiled, rows, columns, 2)
        second = gemv_arm("row-major", pool, blocks, row_major, rows, columns, 2)
        assert first.expected_digest == second.expected_digest
        sample = first.run()
    assert (sample.bytes, sample.work) == (2 * size, 2)
