"""The reference against a second writing of the equations, over whole sequences, and known answers."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Protocol

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special

from engine.enums import Activation, Architecture, Role, Route, Type
from engine.errors import ArgumentError, ContextError
from engine.geometry import GEOMETRIES, Geometry
from engine.reference import Reference, Weights, load_weights
from engine.reference.quant import Matrix
from engine.reference.weights import Block, GatedFfn
from tests.engine.models import write_random_model

Sequence = NDArray[np.floating]
TINY = [name for name in GEOMETRIES if name.startswith("tiny_")]
TOKENS = [3, 130, 0, 77, 77, 12]


class Loader(Protocol):
    """A random model of mixed types; the same call gives the same weights."""

    def __call__(self, geometry: Geometry, bias: bool = False, qk_norm: bool = False) -> Weights: ...


@pytest.fixture(scope="module")
def weights_of(tmp_path_factory: pytest.TempPathFactory) -> Loader:
    types = {Role.ATTN_OUTPUT: Type.Q8_0, Role.FFN_DOWN: Type.Q4_1, Role.HEAD: Type.F16}
    folder = tmp_path_factory.mktemp("models")

    @cache
    def load(geometry: Geometry, bias: bool = False, qk_norm: bool = False) -> Weights:
        return load_weights(write_random_model(folder / "m.cflow", geometry, 1, types, 48, 96, bias, qk_norm))

    return load


class WholeSequence:
    """All positions at once with a causal mask: no cache, no loop over heads or tokens. x: [T, d_model]."""

    def __init__(self, weights: Weights) -> None:
        self.w = weights
        self.h = weights.hparams

    def logits(self, tokens: list[int]) -> Sequence:
        x = self.w.embedding.values[tokens]
        y = {
            Architecture.DELAYED: self.delayed,
            Architecture.TWO_STREAM: self.two_stream,
            Architecture.REGISTER: self.register,
        }[self.h.architecture](x)
        out: Sequence = self.norm(y, self.w.output_norm) @ self.w.head.values.T
        return out

    def delayed(self, embedding: Sequence) -> Sequence:
        dd, de, total = self.h.dense_delay, self.h.expert_delay, self.h.layers
        outputs = [embedding] * (dd + 1)  # outputs[-1] is x[l-1], outputs[-dd] is X(l-dd)
        due: list[Sequence] = [np.zeros_like(embedding)] * de
        for layer in range(total):
            b = self.w.blocks[layer % self.h.blocks]
            x = outputs[-1]
            h = x + self.attention(b, x)
            due.append(self.moe(b, x if self.h.route is Route.PRE_DENSE else h))
            outputs.append(h + self.dense(b, outputs[-dd] if dd else h) + due.pop(0))
        return np.asarray(outputs[-1] + sum(due))

    def two_stream(self, embedding: Sequence) -> Sequence:
        s, t = embedding, embedding
        for b in self.w.blocks:
            s = s + self.attention(b, (s + t) * 0.5**0.5)
            v = (s + t) * 0.5**0.5
            t = t + self.dense(b, v) + self.moe(b, v)
        return np.asarray((s + t) * 0.5**0.5)

    def register(self, embedding: Sequence) -> Sequence:
        x, p = embedding, np.zeros_like(embedding)
        for b in self.w.blocks:
            assert b.register is not None
            a = special.expit(b.register)
            h = x + self.attention(b, x)
            p = p * a + h * (1 - a)
            x = h + self.dense(b, p) + self.moe(b, p)
        return x

    def norm(self, x: Sequence, gain: Sequence) -> Sequence:
        return np.asarray(x * gain / np.sqrt((x**2).mean(-1, keepdims=True) + self.h.rms_eps))

    def rotate(self, x: Sequence) -> Sequence:
        """x [T, heads, dh] as complex numbers (i, i + dh/2), turned by position * base^(-2i/dh)."""
        half = self.h.head_dim // 2
        pairs = x[..., :half] + 1j * x[..., half:]
        rate = self.h.rope_base ** (-2 * np.arange(half) / self.h.head_dim)
        turned = pairs * np.exp(1j * np.arange(len(x))[:, None, None] * rate)
        return np.concatenate([turned.real, turned.imag], axis=-1)

    def attention(self, b: Block, x: Sequence) -> Sequence:
        n = self.norm(x, b.attn_norm)
        q, k, v = (n @ m.values.T for m in (b.query, b.key, b.value))
        if b.qkv_bias is not None:
            wide, narrow = q.shape[1], k.shape[1]
            q, k, v = q + b.qkv_bias[:wide], k + b.qkv_bias[wide:][:narrow], v + b.qkv_bias[wide + narrow :]
        q, k, v = (m.reshape(len(x), -1, self.h.head_dim) for m in (q, k, v))
        if b.query_norm is not None and b.key_norm is not None:
            q, k = self.norm(q, b.query_norm), self.norm(k, b.key_norm)
        share = self.h.heads // self.h.kv_heads
        keys, values = self.rotate(k).repeat(share, axis=1), v.repeat(share, axis=1)
        scores = np.einsum("thc,shc->hts", self.rotate(q), keys) * self.h.head_dim**-0.5
        scores[:, ~np.tri(len(x), dtype=bool)] = -np.inf
        mixed = np.einsum("hts,shc->thc", special.softmax(scores, axis=-1), values)
        out: Sequence = mixed.reshape(len(x), -1) @ b.output.values.T
        return out

    def gated(self, ffn: GatedFfn, n: Sequence) -> Sequence:
        g, u = n @ ffn.gate.values.T, n @ ffn.up.values.T
        gelu = g * special.ndtr(g)
        silu = g * special.expit(g)
        act = gelu if self.h.activation is Activation.GEGLU else silu
        out: Sequence = (act * u) @ ffn.down.values.T
        return out

    def dense(self, b: Block, x: Sequence) -> Sequence:
        if b.dense is None:
            return np.zeros_like(x)
        assert b.ffn_norm is not None
        return self.gated(b.dense, self.norm(x, b.ffn_norm))

    def moe(self, b: Block, x: Sequence) -> Sequence:
        """All experts are computed; a dense matrix of weights [T, E] picks."""
        if b.router is None:
            return np.zeros_like(x)
        assert b.moe_norm is not None
        n = self.norm(x, b.moe_norm)
        p = special.softmax(n @ b.router.values.T, axis=-1)
        smallest_kept = np.sort(p, axis=-1)[:, -self.h.experts_per_token][:, None]
        kept = np.where(p >= smallest_kept, p, 0)
        if self.h.norm_topk:
            kept /= kept.sum(-1, keepdims=True)
        return np.asarray(sum(kept[:, [i]] * self.gated(ffn, n) for i, ffn in enumerate(b.experts)))


def distance(found: NDArray[np.floating], wanted: NDArray[np.floating]) -> float:
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize(("bias", "qk_norm"), [(False, False), (True, False), (False, True), (True, True)])
def test_equals_the_whole_sequence(weights_of: Loader, name: str, bias: bool, qk_norm: bool) -> None:
    """Token by token with the cache, in one call and in several, gives the masked whole-sequence result."""
    weights = weights_of(Geometry.named(name), bias, qk_norm)
    wanted = WholeSequence(weights).logits(TOKENS)
    reference = Reference(weights)
    assert distance(reference.decode(TOKENS), wanted[-1]) < 1e-12
    reference.reset()
    for token, row in zip(TOKENS, wanted, strict=True):
        assert distance(reference.decode([token]), row) < 1e-12
    assert reference.position == len(TOKENS)


@pytest.mark.parametrize("delays", [(0, 0), (1, 0), (1, 2), (0, 2), (2, 3), (9, 9)])
@pytest.mark.parametrize("route", Route)
def test_delays(weights_of: Loader, delays: tuple[int, int], route: Route) -> None:
    """From the file, and as an override of a file with others."""
    dd, de = delays
    geometry = Geometry.named("tiny_standard")
    in_file = weights_of(replace(geometry, dd=dd, de=de, route=route))
    wanted = WholeSequence(in_file).logits(TOKENS)[-1]
    assert distance(Reference(in_file).decode(TOKENS), wanted) < 1e-12
    plain = weights_of(geometry)
    overridden = Reference(plain, dense_delay=dd, expert_delay=de, route=route)
    assert distance(overridden.decode(TOKENS), wanted) < 1e-12


def test_delays_and_routes_change_the_result(weights_of: Loader) -> None:
    weights = weights_of(Geometry.named("tiny_standard"))
    settings = [(0, 0, 0), (1, 0, 0), (2, 0, 0), (0, 1, 0), (0, 2, 0), (0, 0, 1)]
    results = [
        Reference(weights, dense_delay=dd, expert_delay=de, route=Route(route)).decode(TOKENS)
        for dd, de, route in settings
    ]
    for i, first in enumerate(results):
        assert all(distance(first, second) > 1e-3 for second in results[i + 1 :])


def test_with_one_layer_an_expert_delay_changes_nothing(weights_of: Loader) -> None:
    """What is due after the last layer is added before the head."""
    weights = weights_of(replace(Geometry.named("tiny_standard"), layers=1, blocks=1))
    assert (
        distance(Reference(weights, expert_delay=1).decode(TOKENS), Reference(weights).decode(TOKENS)) < 1e-12
    )


def test_a_register_that_keeps_nothing_is_the_standard_block(weights_of: Loader) -> None:
    weights = weights_of(Geometry.named("tiny_arch3"))
    blocks = tuple(replace(block, register=np.full(64, -800.0)) for block in weights.blocks)
    standard = replace(weights.hparams, architecture=Architecture.DELAYED)
    wanted = Reference(replace(weights, hparams=standard)).decode(TOKENS)
    assert distance(Reference(replace(weights, blocks=blocks)).decode(TOKENS), wanted) < 1e-12
    assert distance(Reference(weights).decode(TOKENS), wanted) > 1e-3


def test_shared_blocks_are_the_same_as_copies_of_them(weights_of: Loader) -> None:
    """Each application has a KV cache of its own."""
    weights = weights_of(Geometry.named("tiny_arch5"))
    assert len(weights.blocks) == 2
    copies = replace(weights, hparams=replace(weights.hparams, blocks=4), blocks=weights.blocks * 2)
    np.testing.assert_array_equal(Reference(weights).decode(TOKENS), Reference(copies).decode(TOKENS))


def test_equal_router_logits_choose_the_lower_indices(weights_of: Loader) -> None:
    weights = weights_of(Geometry.named("tiny_standard"))
    routers = np.zeros((4, 64))
    blocks = tuple(replace(block, router=Matrix(Type.F32, routers)) for block in weights.blocks)
    reference = Reference(replace(weights, blocks=blocks))
    reference.decode([5])
    for chosen, p in reference.routing:
        assert list(chosen) == [0, 1]
        np.testing.assert_allclose(p, [0.5, 0.5], rtol=1e-15)
    sums = Reference(replace(weights, blocks=blocks, hparams=replace(weights.hparams, norm_topk=False)))
    sums.decode([5])
    assert [p.sum() for _, p in sums.routing] == pytest.approx([0.5] * 4)


def test_routing_and_norms_are_of_the_last_token(weights_of: Loader) -> None:
    weights = weights_of(Geometry.named("tiny_arch1"))
    reference = Reference(weights)
    reference.decode(TOKENS)
    assert len(reference.routing) == 4
    assert all(list(chosen) == sorted(set(chosen)) and len(chosen) == 2 for chosen, _ in reference.routing)
    assert all(p.sum() == pytest.approx(1) for _, p in reference.routing)
    assert len(reference.residual_norms) == 8, "arch1: of s, then of t"
    single = Reference(replace(weights, hparams=replace(weights.hparams, architecture=Architecture.DELAYED)))
    single.decode(TOKENS)
    assert len(single.residual_norms) == 4


def test_first_position_is_not_rotated_and_attends_to_itself(weights_of: Loader) -> None:
    """At position 0 attention returns the value, so the base of RoPE does not matter; later it does."""
    weights = weights_of(Geometry.named("tiny_dense"))
    other = replace(weights, hparams=replace(weights.hparams, rope_base=50.0))
    np.testing.assert_array_equal(Reference(weights).decode([7]), Reference(other).decode([7]))
    assert distance(Reference(weights).decode([7, 8, 9]), Reference(other).decode([7, 8, 9])) > 1e-6


def test_tied_head_is_the_embedding(weights_of: Loader) -> None:
    weights = weights_of(Geometry.named("tiny_dense"))
    assert weights.head is weights.embedding


def test_float32_stays_float32_and_close(tmp_path: Path) -> None:
    path = write_random_model(tmp_path / "m", Geometry.named("tiny_arch4"), 1)
    single = Reference(load_weights(path, np.float32)).decode(TOKENS)
    assert single.dtype == np.float32
    assert distance(single, Reference(load_weights(path)).decode(TOKENS)) < 1e-5


def test_q8_activations_and_f16_cache_are_near_but_different(weights_of: Loader) -> None:
    weights = weights_of(Geometry.named("tiny_dense"))
    exact = Reference(weights).decode(TOKENS)
    assert 1e-4 < distance(Reference(weights, activations="q8").decode(TOKENS), exact) < 0.1
    assert 1e-6 < distance(Reference(weights, kv="f16").decode(TOKENS), exact) < 2e-3


def test_q8_leaves_f16_and_f32_matrices_alone(tmp_path: Path) -> None:
    path = write_random_model(tmp_path / "m", Geometry.named("tiny_standard"), 1, Type.F16)
    weights = load_weights(path)
    np.testing.assert_array_equal(
        Reference(weights, activations="q8").decode(TOKENS), Reference(weights).decode(TOKENS)
    )


def test_generate_is_greedy(weights_of: Loader) -> None:
    weights = weights_of(Geometry.named("tiny_arch2_4_sync"))
    found = Reference(weights).generate(TOKENS, 5)
    sequence = list(TOKENS)
    for _ in range(5):
        sequence.append(int(np.argmax(WholeSequence(weights).logits(sequence)[-1])))
    assert found == sequence[len(TOKENS) :]


def test_large_gates_do_not_overflow(weights_of: Loader) -> None:
    """SiLU and GELU at +-1,000: 0 below, identity above."""
    weights = weights_of(Geometry.named("tiny_moe"))
    blocks = tuple(
        replace(block, moe_norm=block.moe_norm * 1e4)
        for block in weights.blocks
        if block.moe_norm is not None
    )
    with np.errstate(all="raise", under="ignore"):
        assert np.isfinite(Reference(replace(weights, blocks=blocks)).decode(TOKENS)).all()


@pytest.mark.parametrize("tokens", [[], [131], [-1], [1, 200]])
def test_tokens_are_checked(weights_of: Loader, tokens: list[int]) -> None:
    reference = Reference(weights_of(Geometry.named("tiny_dense")))
    with pytest.raises(ArgumentError, match=r"0\.\.130"):
        reference.decode(tokens)
    assert reference.position == 0


def test_context_is_checked_before_anything_is_computed(weights_of: Loader) -> None:
    reference = Reference(weights_of(Geometry.named("tiny_dense")))
    reference.decode([1])
    with pytest.raises(ContextError, match="position 1 \\+ 48 tokens exceed context 48"):
        reference.decode([1] * 48)
    assert reference.position == 1


def test_delays_need_the_delayed_architecture(weights_of: Loader) -> None:
    weights = weights_of(Geometry.named("tiny_arch1"))
    with pytest.raises(ArgumentError, match="must be 0 for two_stream"):
        Reference(weights, dense_delay=1)
    with pytest.raises(ArgumentError, match="at least 0"):
        Reference(weights, expert_delay=-1)


def test_rms_norm_of_a_known_vector(weights_of: Loader) -> None:
    """One layer whose matrices are zero: logits = head . (x / rms(x) * gain)."""
    weights = weights_of(replace(Geometry.named("tiny_dense"), layers=1, blocks=1))
    zero = Matrix(Type.F32, np.zeros((64, 64)))
    block = replace(weights.blocks[0], output=zero, dense=None, ffn_norm=None)
    x = weights.embedding.values[9]
    rms = math.sqrt(sum(float(value) ** 2 for value in x) / 64 + float(np.float32(1e-6)))
    wanted = weights.head.values @ (x / rms * weights.output_norm)
    assert distance(Reference(replace(weights, blocks=(block,))).decode([9]), wanted) < 1e-14
