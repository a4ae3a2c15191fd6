"""The C engine's forward pass against the NumPy reference, and its invariants: threads, fusion, residency."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from engine.enums import Role, Route, Type
from engine.format import CflowWriter, read_file
from engine.geometry import Geometry
from engine.model import Model
from engine.native import lib
from engine.reference import Reference, load_weights
from engine.session import Session
from tests.engine.models import geometries, write_random_model

PROMPT = [3, 77, 130, 5, 0, 64, 12, 99, 3]
ARCHITECTURES = ["arch1", "arch2_4_combined", "arch2_4_sync", "arch3", "arch4", "arch5"]
DELAYS = [(0, 0), (1, 0), (1, 2), (0, 2), (2, 3)]


def relative_error(actual: np.ndarray, expected: np.ndarray) -> float:
    """Norm of the difference over the norm of the expected vector."""
    return float(np.linalg.norm(actual - expected) / np.linalg.norm(expected))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module", params=ARCHITECTURES)
def architecture(request: pytest.FixtureRequest, folder: Path) -> Path:
    name = str(request.param)
    return write_random_model(folder / f"{name}.cflow", Geometry.named(f"tiny_{name}"), seed=7)


@pytest.fixture(scope="module")
def standard(folder: Path) -> Path:
    # A seed whose router has no near tie: a rounding that turns a choice of experts moves more than itself.
    return write_random_model(folder / "standard.cflow", Geometry.named("tiny_standard"), seed=1)


def check_against_reference(path: Path, reference_options: dict[str, object], **options: int | str) -> None:
    reference = Reference(load_weights(path), **reference_options)  # type: ignore[arg-type]
    with Model(path) as model, Session(model, threads=2, **options) as session:
        for token in PROMPT:
            expected = reference.decode([token])
            actual = session.decode([token])
            assert relative_error(actual, expected) < 1e-4
            assert int(np.argmax(actual)) == int(np.argmax(expected))
            np.testing.assert_allclose(session.residual_norms(), reference.residual_norms, rtol=1e-4)
            if reference.routing:
                experts, weights = session.routing()
                np.testing.assert_array_equal(experts, [chosen for chosen, _ in reference.routing])
                np.testing.assert_allclose(weights, [w for _, w in reference.routing], rtol=1e-3)


def test_six_architectures_equal_the_reference(architecture: Path) -> None:
    check_against_reference(architecture, {}, q8_activations=0, kv_f32=1)


def test_scalar_kernels_equal_the_reference(architecture: Path) -> None:
    check_against_reference(architecture, {}, q8_activations=0, kv_f32=1, isa="scalar")


@pytest.mark.parametrize("route", list(Route))
@pytest.mark.parametrize(("dense_delay", "expert_delay"), DELAYS)
def test_delays_equal_the_reference(
    standard: Path, dense_delay: int, expert_delay: int, route: Route
) -> None:
    schedule = {"dense_delay": dense_delay, "expert_delay": expert_delay, "route": route}
    check_against_reference(standard, dict(schedule), q8_activations=0, kv_f32=1, **schedule)


def test_q8_activations_and_f16_cache_equal_the_reference_that_rounds_alike(standard: Path) -> None:
    # A value within float error of a rounding boundary may fall to its other side and move what follows:
    # most tokens agree to float precision, none differs by more than rounding itself does.
    rounded = Reference(load_weights(standard), activations="q8", kv="f16")
    exact = Reference(load_weights(standard))
    errors = []
    with Model(standard) as model, Session(model) as session:
        for token in PROMPT:
            actual = session.decode([token])
            like, unlike = rounded.decode([token]), exact.decode([token])
            errors.append(relative_error(actual, like))
            assert errors[-1] < 2 * relative_error(unlike, like)
    assert np.median(errors) < 1e-5


@pytest.mark.parametrize("kind", list(Type))
def test_every_weight_type(folder: Path, kind: Type) -> None:
    path = write_random_model(
        folder / f"{kind.name}.cflow", Geometry.named("tiny_standard"), seed=3, types=_types(kind)
    )
    check_against_reference(path, {}, q8_activations=0, kv_f32=1)


def _types(kind: Type) -> dict[Role, Type]:
    return {role: Type.F32 if role is Role.ROUTER else kind for role in Role}


def test_biases_tied_head_and_odd_tiles(folder: Path) -> None:
    path = write_random_model(
        folder / "dense.cflow",
        Geometry.named("tiny_dense"),
        seed=5,
        tile_rows=48,
        tile_cols=96,
        qkv_bias=True,
    )
    check_against_reference(path, {}, q8_activations=0, kv_f32=1)


@pytest.mark.parametrize("name", ["tiny_dense", "tiny_arch2_4_combined", "tiny_moe"])
@pytest.mark.parametrize("bias", [False, True])
def test_norms_of_q_and_k(folder: Path, name: str, bias: bool) -> None:
    path = write_random_model(folder / "m.cflow", Geometry.named(name), 5, qkv_bias=bias, qk_norm=True)
    check_against_reference(path, {}, q8_activations=0, kv_f32=1)
    check_against_reference(path, {}, q8_activations=0, kv_f32=1, residency="copy", isa="scalar")
    with Model(path) as model, Session(model, threads=3, prompt_batch=4) as session:
        in_chunks = session.decode(PROMPT)
        session.reset()
        one_by_one = [session.decode([token]) for token in PROMPT][-1]
    assert in_chunks.tobytes() == one_by_one.tobytes()


@pytest.mark.parametrize("q8", [0, 1])
def test_results_are_bit_identical_for_any_thread_count_fusion_and_residency(
    architecture: Path, q8: int
) -> None:
    with Model(architecture) as model:

        def run(**options: int | str) -> tuple[bytes, list[int]]:
            with Session(model, q8_activations=q8, **options) as session:
                logits = session.decode(PROMPT)
                tokens, _ = session.generate(int(np.argmax(logits)), 8)
                return logits.tobytes(), tokens.tolist()

        expected = run(threads=1)
        for threads in range(2, 9):
            assert run(threads=threads) == expected
        for streams in (1, 2, 3):
            assert run(threads=2, read_streams=streams) == expected
        assert run(threads=2, fused=0) == expected
        assert run(threads=3, residency="copy") == expected
        assert run(threads=2, prefetch_hint="none") == expected
        assert run(threads=2, read_all_experts=1) == expected


@pytest.mark.parametrize("rows_per_pass", [1, 2, 4, 8])
def test_row_major_twins(standard: Path, rows_per_pass: int) -> None:
    check_against_reference(
        standard,
        {},
        q8_activations=0,
        kv_f32=1,
        layout="row_major",
        residency="copy",
        rows_per_pass=rows_per_pass,
    )


def test_generate_is_greedy_decode(standard: Path) -> None:
    with Model(standard) as model, Session(model) as one, Session(model) as other:
        token = int(np.argmax(one.decode(PROMPT)))
        other.decode(PROMPT)
        generated, ns = other.generate(token, 12)
        expected = []
        for _ in range(12):
            token = int(np.argmax(one.decode([token])))
            expected.append(token)
        assert generated.tolist() == expected
        assert len(ns) == 12
        assert (ns > 0).all()
        assert one.position == other.position == len(PROMPT) + 12


def test_equal_router_logits_choose_the_lower_indices(folder: Path) -> None:
    path = write_random_model(folder / "equal.cflow", Geometry.named("tiny_standard"), seed=2)
    source = read_file(path)
    equal = folder / "equal_router.cflow"
    with CflowWriter(equal, source.hparams, [entry.spec for entry in source.tensors], name="equal") as writer:
        for spec, entry in zip(writer.specs, source.tensors, strict=True):
            data = source.data(entry)
            writer.write(spec, np.zeros_like(data) if spec.role is Role.ROUTER else data)
    with Model(equal) as model, Session(model) as session:
        session.decode(PROMPT)
        experts, weights = session.routing()
        assert (experts == [0, 1]).all()
        np.testing.assert_allclose(weights, 0.5, rtol=1e-6)  # renormalised over the chosen two


@hypothesis_settings(max_examples=40)
@given(
    geometry=geometries(context=8),
    tile=st.sampled_from([(128, 256), (16, 32), (48, 64)]),
    threads=st.integers(1, 5),
    streams=st.integers(1, 4),
)
def test_any_shape_equals_the_reference(
    tmp_path_factory: pytest.TempPathFactory,
    geometry: Geometry,
    tile: tuple[int, int],
    threads: int,
    streams: int,
) -> None:
    path = tmp_path_factory.mktemp("shape") / "model.cflow"
    write_random_model(path, geometry, seed=1, tile_rows=tile[0], tile_cols=tile[1])
    reference = Reference(load_weights(path))
    tokens = [token % geometry.vocab for token in (0, 16, 30, 5)]
    options = {"threads": threads, "read_streams": streams, "q8_activations": 0, "kv_f32": 1}
    with Model(path) as model, Session(model, **options) as session:
        assert relative_error(session.decode(tokens), reference.decode(tokens)) < 1e-4


def test_vocabulary_of_50257_and_longest_context(folder: Path) -> None:
    geometry = replace(Geometry.named("tiny_standard"), vocab=50257, layers=1, blocks=1, context=5)
    path = write_random_model(folder / "vocab.cflow", geometry, seed=9)
    check = Reference(load_weights(path))
    with Model(path) as model, Session(model, q8_activations=0, kv_f32=1) as session:
        tokens = [50256, 0, 50255, 1, 49999]
        assert relative_error(session.decode(tokens), check.decode(tokens)) < 1e-4
        with pytest.raises(Exception, match="do not fit in the context of 5"):
            session.decode([1])


def test_library_is_the_one_under_test() -> None:
    assert lib().cflow_abi_version() == 1
