"""The PyTorch decoder against the NumPy reference: same equations, two writings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from architectures.config import Config
from engine.enums import Architecture, Type
from engine.errors import ContextError
from engine.geometry import Geometry
from engine.reference import Reference, Weights
from engine.reference.quant import Array, Matrix
from engine.reference.weights import Block, GatedFfn

torch = pytest.importorskip("torch")

from architectures.model import Decoder, Trace  # noqa: E402
from tests.architectures.small import all_names, random_model, small_geometry  # noqa: E402

TOKENS = [3, 60, 0, 17, 17, 12, 41]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def reference_weights(model: Decoder) -> Weights:
    """The weights of a decoder as the reference takes them, in f64."""
    state = {name: value.double().numpy() for name, value in model.state_dict().items()}

    def matrix(values: Array) -> Matrix:
        return Matrix(Type.F32, values)

    def block(b: int) -> Block:
        def of(name: str) -> Array:
            return state[f"blocks.{b}.{name}"]

        def ffn(gate: Array, up: Array, down: Array) -> GatedFfn:
            return GatedFfn(matrix(gate), matrix(up), matrix(down))

        return Block(
            attn_norm=of("attn_norm.weight"),
            query=matrix(of("attention.query.weight")),
            key=matrix(of("attention.key.weight")),
            value=matrix(of("attention.value.weight")),
            qkv_bias=None,
            query_norm=None,
            key_norm=None,
            output=matrix(of("attention.output.weight")),
            ffn_norm=of("ffn_norm.weight"),
            dense=ffn(*(of(f"dense.{part}.weight") for part in ("gate", "up", "down"))),
            moe_norm=of("moe_norm.weight"),
            router=matrix(of("moe.router.weight")),
            experts=tuple(
                ffn(*parts)
                for parts in zip(*(of(f"moe.{part}") for part in ("gate", "up", "down")), strict=True)
            ),
            register=of("register") if f"blocks.{b}.register" in state else None,
        )

    geometry = model.config.geometry
    return Weights(
        hparams=geometry.hyperparameters(),
        embedding=matrix(state["embedding.weight"]),
        blocks=tuple(block(b) for b in range(geometry.blocks)),
        output_norm=state["output_norm.weight"],
        head=matrix(state["head.weight"]),
    )


def assert_equals_reference(model: Decoder) -> None:
    trace = Trace()
    with torch.no_grad():
        logits = model(torch.tensor([TOKENS]), trace)[0].numpy()
    reference = Reference(reference_weights(model))
    for position, token in enumerate(TOKENS):
        wanted = reference.decode([token])
        error = np.linalg.norm(logits[position] - wanted) / np.linalg.norm(wanted)
        assert error < 2e-6, (position, error)
        norms = [float(residual[0, position].norm()) for residual in trace.residuals]
        np.testing.assert_allclose(norms, reference.residual_norms, rtol=2e-6)
        for routed, (chosen, _) in zip(trace.router_logits, reference.routing, strict=True):
            top = routed[0, position].topk(len(chosen)).indices.sort().values
            assert top.tolist() == chosen.tolist()


@pytest.mark.parametrize("name", all_names())
def test_equals_the_reference(name: str) -> None:
    assert_equals_reference(random_model(small_geometry(name), name=name))


@pytest.mark.parametrize(
    "changes",
    [
        {"dd": 2, "de": 3},
        {"dd": 7, "de": 7},
        {"layers": 2, "blocks": 1},
        {"heads": 4, "kv_heads": 2, "head_dim": 16},
        {"norm_topk": False, "experts_per_token": 3},
        {"experts": 1, "experts_per_token": 1},
        {"experts": 3, "experts_per_token": 3},
    ],
)
def test_other_shapes_equal_the_reference(changes: dict[str, int]) -> None:
    shape: Geometry = replace(small_geometry("arch4"), **changes)  # type: ignore[arg-type]
    assert_equals_reference(random_model(shape))


@pytest.mark.parametrize("name", all_names())
def test_sequences_and_positions_do_not_see_what_they_must_not(name: str) -> None:
    model = random_model(small_geometry(name), name=name)
    ids = torch.randint(0, 61, (3, 10), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        together, first, alone = model(ids), model(ids[:, :4]), model(ids[1:2])
    torch.testing.assert_close(together[:, :4], first)
    torch.testing.assert_close(together[1:2], alone)


@pytest.mark.parametrize("name", all_names())
def test_every_parameter_gets_a_gradient_even_of_experts_without_tokens(name: str) -> None:
    model = random_model(small_geometry(name), name=name)
    model(torch.tensor([[5, 6]])).square().sum().backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


def test_stored_weights_are_as_many_as_the_geometry_says_beside_the_gains() -> None:
    model = random_model(small_geometry("arch5"), name="arch5")
    matrices = sum(p.numel() for p in model.parameters() if p.dim() > 1)
    assert matrices == small_geometry("arch5").parameters


def test_the_register_exists_in_arch3_only_and_starts_at_zero() -> None:
    for name in all_names():
        shape = small_geometry(name)
        torch.manual_seed(0)
        registers = [p for key, p in Decoder(_config(shape)).named_parameters() if "register" in key]
        assert len(registers) == (shape.blocks if shape.architecture is Architecture.REGISTER else 0)
        assert not any(bool(register.any()) for register in registers)


def test_too_many_positions_are_refused() -> None:
    model = random_model(small_geometry("arch4"))
    with pytest.raises(ContextError, match="25 tokens exceed context 24"):
        model(torch.zeros(1, 25, dtype=torch.long))


def _config(shape: Geometry) -> Config:
    return Config("arch4", shape)
