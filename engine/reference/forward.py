"""The forward pass of one token, for all six architectures of the paper and for llama models.

Read from top to bottom; the equations are those of design.md, "The forward pass", in its notation: layer l
reads x[l-1], x[-1] is the embedding, X(j) = x[max(j, -1)], Na, Nf, Nm and Nz are RMSNorms. Delays count
layers of the same token. Which equations are the paper's and which are this project's reading is said at
each function.

Everything is computed in the dtype of the weights (float64 by default). Vectors are 1-D: d = d_model values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from engine.enums import Activation, Architecture, Route
from engine.errors import ArgumentError, ContextError
from engine.reference.quant import Q8_WEIGHT_TYPES, Array, Matrix, through_q8
from engine.reference.weights import Block, GatedFfn, Weights

_erf = np.frompyfunc(math.erf, 1, 1)


class Reference:
    """Decodes tokens one by one with a KV cache.

    activations: "f32" = as they are; "q8" = the input of every quantised matrix goes through 8 bits as the
    C engine does it (the router and f16 and f32 matrices take it as it is).
    kv: "exact", or "f16" = keys and values are rounded to f16 as the C engine stores them by default.
    dense_delay, expert_delay, route: override the file, as the session options of the C engine do.
    Raises ArgumentError for a delay with an architecture other than DELAYED, and for a delay below 0.
    """

    def __init__(
        self,
        weights: Weights,
        activations: Literal["f32", "q8"] = "f32",
        kv: Literal["exact", "f16"] = "exact",
        dense_delay: int | None = None,
        expert_delay: int | None = None,
        route: Route | None = None,
    ) -> None:
        h = weights.hparams
        self.weights = weights
        self._q8 = activations == "q8"
        self._kv_f16 = kv == "f16"
        self._dense_delay = h.dense_delay if dense_delay is None else dense_delay
        self._expert_delay = h.expert_delay if expert_delay is None else expert_delay
        self._route = h.route if route is None else route
        if min(self._dense_delay, self._expert_delay) < 0:
            raise ArgumentError("dense_delay and expert_delay must be at least 0")
        if h.architecture is not Architecture.DELAYED and (self._dense_delay or self._expert_delay):
            raise ArgumentError(f"dense_delay and expert_delay must be 0 for {h.architecture.name.lower()}")
        self.reset()

    def reset(self) -> None:
        """Back to position 0 with an empty KV cache."""
        layers = self.weights.hparams.layers
        self.position = 0
        self._keys: list[list[Array]] = [[] for _ in range(layers)]
        self._values: list[list[Array]] = [[] for _ in range(layers)]
        #: Of the last token: per layer the chosen experts, ascending, and their weights.
        self.routing: list[tuple[NDArray[np.int64], Array]] = []
        #: Of the last token: norm of the residual stream after each layer (arch1: of s, then of t).
        self.residual_norms: list[float] = []

    def decode(self, tokens: Sequence[int]) -> Array:
        """Feeds `tokens`; the logits, [vocab], of the last one. Raises ContextError, ArgumentError."""
        h = self.weights.hparams
        if not tokens or not all(0 <= token < h.vocab for token in tokens):
            raise ArgumentError(f"tokens must be one or more ids in 0..{h.vocab - 1}")
        if self.position + len(tokens) > h.context:
            raise ContextError(f"position {self.position} + {len(tokens)} tokens exceed context {h.context}")
        for token in tokens:
            residual = self._residual(self.weights.embedding.values[token])
            self.position += 1
        return self._times(self.weights.head, self._norm(residual, self.weights.output_norm))

    def generate(self, prompt: Sequence[int], count: int) -> list[int]:
        """The greedy continuation of `prompt`: `count` ids; equal logits: the lower id."""
        logits = self.decode(prompt)
        out = [int(np.argmax(logits))]
        while len(out) < count:
            out.append(int(np.argmax(self.decode(out[-1:]))))
        return out[:count]

    # ---- one token ----

    def _residual(self, embedding: Array) -> Array:
        """y, [d_model]: what the final norm and the head read."""
        self.routing, self.residual_norms = [], []
        by_architecture = {
            Architecture.DELAYED: self._delayed,
            Architecture.TWO_STREAM: self._two_stream,
            Architecture.REGISTER: self._register,
        }
        return by_architecture[self.weights.hparams.architecture](embedding)

    def _delayed(self, embedding: Array) -> Array:
        """DelayedSum and AsyncExperts.

        The paper's: the delays, and pre-dense routing. This project's reading: X(j) at negative j, the
        experts that are still due after the last layer, current routing for combined and sync, and arch5 as
        (0, 0) with current routing where layer l uses block l mod `blocks`.

            h[l] = x[l-1] + Attn_l(Na(x[l-1]))
            u[l] = h[l] if dd = 0 else X(l-dd)
            r[l] = x[l-1] if route = pre_dense else h[l]
            x[l] = (h[l] + Dense(Nf(u[l]))) + e[l-de],   e[l] = MoE(Nm(r[l]));   no e when l < de
            y    = x[L-1] + e[L-de] + ... + e[L-1]
        """
        layers, dd, de = self.weights.hparams.layers, self._dense_delay, self._expert_delay
        x = {-1: embedding}
        e: dict[int, Array] = {}
        for layer in range(layers):
            block = self._block(layer)
            h = x[layer - 1] + self._attention(layer, block, x[layer - 1])
            u = h if dd == 0 else x[max(layer - dd, -1)]
            r = x[layer - 1] if self._route is Route.PRE_DENSE else h
            e[layer] = self._experts(block, r)
            x[layer] = h + self._dense(block, u)
            if layer >= de:
                x[layer] = x[layer] + e[layer - de]
            self.residual_norms.append(float(np.linalg.norm(x[layer])))
        y = x[layers - 1]
        for layer in range(max(layers - de, 0), layers):
            y = y + e[layer]
        return y

    def _two_stream(self, embedding: Array) -> Array:
        """ParallelSqrt2, arch1. The name of the combine style is the paper's; the equations are our reading.

        s[-1] = t[-1] = embedding
        s[l] = s[l-1] + Attn_l(Na((s[l-1] + t[l-1]) / sqrt 2))
        v    = (s[l] + t[l-1]) / sqrt 2
        t[l] = t[l-1] + Dense(Nf(v)) + MoE(Nm(v))
        y    = (s[L-1] + t[L-1]) / sqrt 2
        """
        s = t = embedding
        norms_of_t = []
        for layer in range(self.weights.hparams.layers):
            block = self._block(layer)
            s = s + self._attention(layer, block, (s + t) / math.sqrt(2))
            v = (s + t) / math.sqrt(2)
            t = t + self._dense(block, v) + self._experts(block, v)
            self.residual_norms.append(float(np.linalg.norm(s)))
            norms_of_t.append(float(np.linalg.norm(t)))
        self.residual_norms += norms_of_t
        return (s + t) / math.sqrt(2)

    def _register(self, embedding: Array) -> Array:
        """Pipeline registers, arch3. The paper names them; the equations are our reading.

        p[-1] = 0
        h[l] = x[l-1] + Attn_l(Na(x[l-1]))
        p[l] = a * p[l-1] + (1 - a) * h[l],   a = sigmoid(w_l), per channel
        x[l] = h[l] + Dense(Nf(p[l])) + MoE(Nm(p[l]))
        """
        x, p = embedding, np.zeros_like(embedding)
        for layer in range(self.weights.hparams.layers):
            block = self._block(layer)
            assert block.register is not None  # read_file has checked that it is there
            h = x + self._attention(layer, block, x)
            a = _sigmoid(block.register)
            p = a * p + (1 - a) * h
            x = h + self._dense(block, p) + self._experts(block, p)
            self.residual_norms.append(float(np.linalg.norm(x)))
        return x

    # ---- the parts of a layer: each takes a residual vector and norms it ----

    def _attention(self, layer: int, block: Block, x: Array) -> Array:
        """Attn_l(Na(x)): causal attention with grouped queries; scores are scaled by 1 / sqrt(head_dim).

        Where the block has norms of q and k (Qwen3), each head is normed over its head_dim values, behind
        the bias and before the rotation.
        """
        h = self.weights.hparams
        n = self._norm(x, block.attn_norm)
        projections = [self._times(matrix, n) for matrix in (block.query, block.key, block.value)]
        if block.qkv_bias is not None:
            cuts = np.cumsum([len(projection) for projection in projections])[:-1]
            biases = np.split(block.qkv_bias, cuts)
            projections = [projection + bias for projection, bias in zip(projections, biases, strict=True)]
        query, key, value = (projection.reshape(-1, h.head_dim) for projection in projections)  # [heads, dh]
        if block.query_norm is not None and block.key_norm is not None:
            query, key = self._norm(query, block.query_norm), self._norm(key, block.key_norm)
        query, key = self._rotate(query), self._rotate(key)
        self._keys[layer].append(self._stored(key))
        self._values[layer].append(self._stored(value))
        keys, values = np.stack(self._keys[layer]), np.stack(self._values[layer])  # [position, kv_heads, dh]
        group = h.heads // h.kv_heads
        out = np.empty_like(query)
        for head in range(h.heads):
            scores = keys[:, head // group] @ query[head] / math.sqrt(h.head_dim)
            out[head] = _softmax(scores) @ values[:, head // group]
        return self._times(block.output, out.reshape(-1))

    def _dense(self, block: Block, u: Array) -> Array:
        """Wd(act(Wg Nf(u)) * Wu Nf(u)); zero when the model has no dense FFN."""
        if block.dense is None or block.ffn_norm is None:
            return np.zeros_like(u)
        return self._gated(block.dense, self._norm(u, block.ffn_norm))

    def _experts(self, block: Block, r: Array) -> Array:
        """Sum over the chosen experts i, ascending, of p_i Expert_i(Nm(r)); zero when the model has none.

        p = softmax over all logits of the router, renormalised over the chosen when norm_topk; the k
        largest are chosen, equal logits: the lower index.
        """
        if block.router is None or block.moe_norm is None:
            return np.zeros_like(r)
        h = self.weights.hparams
        n = self._norm(r, block.moe_norm)
        logits = block.router.values @ n
        chosen = np.sort(np.argsort(-logits, kind="stable")[: h.experts_per_token])
        p = _softmax(logits)[chosen]
        if h.norm_topk:
            p = p / p.sum()
        self.routing.append((chosen, p))
        out = np.zeros_like(r)
        for expert, weight in zip(chosen, p, strict=True):
            out = out + weight * self._gated(block.experts[expert], n)
        return out

    # ---- small things ----

    def _block(self, layer: int) -> Block:
        return self.weights.blocks[layer % self.weights.hparams.blocks]

    def _norm(self, x: Array, gain: Array) -> Array:
        """RMSNorm over the last axis: x / sqrt(mean(x^2) + eps) * gain."""
        mean = np.mean(x * x, axis=-1, keepdims=True)
        out: Array = x / np.sqrt(mean + self.weights.hparams.rms_eps) * gain
        return out

    def _times(self, matrix: Matrix, x: Array) -> Array:
        """W x, [rows]."""
        seen = through_q8(x) if self._q8 and matrix.kind in Q8_WEIGHT_TYPES else x
        out: Array = matrix.values @ seen
        return out

    def _gated(self, ffn: GatedFfn, n: Array) -> Array:
        gate, up = self._times(ffn.gate, n), self._times(ffn.up, n)
        act = _gelu if self.weights.hparams.activation is Activation.GEGLU else _silu
        return self._times(ffn.down, act(gate) * up)

    def _rotate(self, heads: Array) -> Array:
        """RoPE: rotates the pairs (i, i + head_dim / 2) of each head by position * base^(-2 i / head_dim)."""
        half = heads.shape[1] // 2
        angles = self.position * self.weights.hparams.rope_base ** (-np.arange(half) / half)
        cos, sin = np.cos(angles).astype(heads.dtype), np.sin(angles).astype(heads.dtype)
        low, high = heads[:, :half], heads[:, half:]
        return np.concatenate([low * cos - high * sin, low * sin + high * cos], axis=1)

    def _stored(self, x: Array) -> Array:
        return x.astype(np.float16).astype(x.dtype) if self._kv_f16 else x


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max())
    out: Array = e / e.sum()
    return out


def _sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), in a form that does not overflow."""
    out: Array = 0.5 + 0.5 * np.tanh(0.5 * x)
    return out


def _silu(x: Array) -> Array:
    return x * _sigmoid(x)


def _gelu(x: Array) -> Array:
    """The exact GELU: x (1 + erf(x / sqrt 2)) / 2."""
    out: Array = 0.5 * x * (1 + _erf(x / math.sqrt(2)).astype(x.dtype))
    return out
