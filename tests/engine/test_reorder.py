"""Stage-major files: where tensors lie, that nothing else changes, that readers go by the tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.enums import Order, PieceKind, Role, Type
from engine.errors import FileError, FormatError
from engine.format import CflowFile, TensorSpec, read_file
from engine.geometry import Geometry
from engine.model import Model
from engine.reference import Reference, load_weights
from engine.reorder import reorder
from engine.session import Session
from engine.stages import arrangement_of
from engine.synth import synthesise
from tests.engine.models import geometries, write_random_model

STAGED = (Order.PHASE, Order.KIND)


def by_offset(file: CflowFile) -> list[TensorSpec]:
    return [entry.spec for entry in sorted(file.tensors, key=lambda entry: entry.offset)]


def contents(file: CflowFile) -> dict[str, tuple[TensorSpec, int, int]]:
    return {entry.spec.name: (entry.spec, entry.length, entry.digest) for entry in file.tensors}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(geometry=geometries(8), bias=st.booleans(), norm=st.booleans(), order=st.sampled_from(STAGED))
def test_there_and_back_again(
    tmp_path_factory: pytest.TempPathFactory, geometry: Geometry, bias: bool, norm: bool, order: Order
) -> None:
    folder = tmp_path_factory.mktemp("reorder")
    source = write_random_model(
        folder / "m.cflow", geometry, 7, qkv_bias=bias, qk_norm=norm, tokenizer_json='{"a": 1}'
    )
    reorder(source, folder / "m.vflow", order)
    before, after = read_file(source), read_file(folder / "m.vflow")
    after.verify()
    assert contents(after) == contents(before)
    assert [digest for *_, digest in after.experts] == [digest for *_, digest in before.experts]
    assert (after.hparams, after.name, after.tokenizer_json) == (before.hparams, before.name, '{"a": 1}')
    assert (before.order, after.order) == (Order.LAYER, order)
    reorder(folder / "m.vflow", folder / "back.cflow", Order.LAYER)
    assert (folder / "back.cflow").read_bytes() == source.read_bytes()

    tokens = [token % geometry.vocab for token in (3, 1, 4, 1)]
    found = []
    for path in (source, folder / "m.vflow"):
        for residency in ("mmap", "copy"):
            with Model(path) as model, Session(model, threads=2, residency=residency) as session:
                found.append(session.decode(tokens))
    assert all(np.array_equal(logits, found[0]) for logits in found[1:])
    with Model(folder / "m.vflow") as model:
        model.verify()
        assert model.order is order


@settings(max_examples=25, deadline=None)
@given(geometry=geometries(4))
def test_phases_ascend_in_the_file(tmp_path_factory: pytest.TempPathFactory, geometry: Geometry) -> None:
    folder = tmp_path_factory.mktemp("phases")
    path = synthesise(folder / "m.vflow", geometry, 1, order=Order.PHASE).path
    with Model(path) as model:
        places = {(t.role, t.block): t.offset for t in model.tensors if t.expert is None}
        with Session(model, threads=1, context=1) as session:
            pieces = session.schedule()
    head = Role.EMBEDDING if geometry.tied else Role.HEAD
    roles = {
        PieceKind.QKV: Role.ATTN_QKV,
        PieceKind.OUTPUT: Role.ATTN_OUTPUT,
        PieceKind.GATE_UP: Role.FFN_GATE_UP,
        PieceKind.DOWN: Role.FFN_DOWN,
        PieceKind.ROUTER: Role.ROUTER,
        PieceKind.HEAD: head,
    }
    first: dict[tuple[Role, int | None], tuple[int, int]] = {}
    for piece in pieces:
        if piece.kind in roles:
            key = roles[piece.kind], None if piece.layer is None else piece.layer % geometry.blocks
            first[key] = min(first.get(key, (piece.phase, piece.index)), (piece.phase, piece.index))
    used = sorted(first, key=lambda key: first[key])
    assert [places[key] for key in used] == sorted(places[key] for key in used)
    if not geometry.tied:
        assert places[Role.EMBEDDING, None] == min(places.values())


def test_vectors_lie_before_the_matrices_of_their_phase(tmp_path: Path) -> None:
    geometry = replace(Geometry.named("tiny_arch2_4_combined"), layers=2, blocks=2)
    source = write_random_model(tmp_path / "m.cflow", geometry, 1, qkv_bias=True, qk_norm=True)
    reorder(source, tmp_path / "m.vflow", Order.PHASE)
    names = [spec.name for spec in by_offset(read_file(tmp_path / "m.vflow"))]
    # dd = 1: the dense network of a layer runs beside its attention. The router of layer 0 runs when the
    # attention has ended, beside q, k, v of layer 1.
    assert names[:18] == [
        "embedding",
        *(f"blk.0.{name}" for name in ("attn_norm", "attn_qkv_bias", "ffn_norm", "attn_qkv", "ffn_gate_up")),
        *(f"blk.0.{name}" for name in ("attn_q_norm", "attn_k_norm", "ffn_down", "attn_output")),
        *("blk.0.moe_norm", "blk.1.attn_norm", "blk.1.attn_qkv_bias", "blk.1.ffn_norm"),
        *("blk.0.router", "blk.1.attn_qkv", "blk.1.ffn_gate_up", "blk.1.attn_q_norm"),
    ]


def test_kinds_lie_side_by_side(tmp_path: Path) -> None:
    geometry = replace(Geometry.named("tiny_arch2_4_combined"), layers=2, blocks=2, experts=2)
    source = write_random_model(tmp_path / "m.cflow", geometry, 1)
    reorder(source, tmp_path / "m.vflow", Order.KIND)
    file = read_file(tmp_path / "m.vflow")
    kinds = (
        "attn_norm",
        "attn_qkv",
        "attn_output",
        "ffn_norm",
        "moe_norm",
        "ffn_gate_up",
        "router",
        "ffn_down",
    )
    bank = [f"blk.{block}.exp.{expert}" for expert in range(2) for block in range(2)]
    assert [spec.name for spec in by_offset(file)] == [
        "embedding",
        *(f"blk.{block}.{kind}" for kind in kinds for block in range(2)),
        *("output_norm", "head"),
        *(f"{expert}.{part}" for expert in bank for part in ("gate_up", "down")),
    ]
    entries = {entry.spec.name: entry for entry in file.tensors}
    for index, (offset, _, _) in enumerate(file.experts):
        assert offset % 4096 == 0
        assert offset == entries[f"blk.{index // 2}.exp.{index % 2}.gate_up"].offset


@pytest.mark.parametrize("name", ["tiny_arch1", "tiny_arch3", "tiny_arch5", "tiny_dense", "tiny_arch4"])
@pytest.mark.parametrize("order", STAGED)
def test_synthesis_in_any_order_has_the_same_weights(tmp_path: Path, name: str, order: Order) -> None:
    geometry = Geometry.named(name)
    synthesise(tmp_path / "m.cflow", geometry, 5)
    synthesise(tmp_path / "m.vflow", geometry, 5, order=order)
    reorder(tmp_path / "m.cflow", tmp_path / "again.vflow", order)
    assert (tmp_path / "m.vflow").read_bytes() == (tmp_path / "again.vflow").read_bytes()


def test_the_reference_goes_by_the_tables(tmp_path: Path) -> None:
    source = write_random_model(tmp_path / "m.cflow", Geometry.named("tiny_arch2_4_combined"), 1, Type.F32)
    reorder(source, tmp_path / "m.vflow", Order.KIND)
    expected, found = (
        Reference(load_weights(path)).decode([3, 1, 4]) for path in (source, tmp_path / "m.vflow")
    )
    assert np.array_equal(expected, found)


def test_a_model_may_be_replaced_by_its_other_order(tmp_path: Path) -> None:
    path = write_random_model(tmp_path / "m.vflow", Geometry.named("tiny_standard"), 1)
    before = path.read_bytes()
    reorder(path, path, Order.KIND)
    assert read_file(path).order is Order.KIND
    reorder(path, path, Order.LAYER)
    assert path.read_bytes() == before


def test_refusals_leave_nothing(tmp_path: Path) -> None:
    source = write_random_model(tmp_path / "m.cflow", Geometry.named("tiny_standard"), 1)
    file = read_file(source)
    with pytest.raises(FileError, match="absent"):
        arrangement_of(Order.PHASE, file.hparams, by_offset(file), tmp_path / "absent")
    with pytest.raises(FileError, match="absent"):
        reorder(source, tmp_path / "absent" / "m.vflow", Order.KIND)
    with pytest.raises(FormatError):
        reorder(Path(__file__), tmp_path / "m.vflow", Order.PHASE)
    assert [path.name for path in tmp_path.iterdir()] == ["m.cflow"]
