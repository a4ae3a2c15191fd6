"""GGUF to .cflow: every block arrives where it belongs, and what cannot be converted is named."""

from contextlib import nullcontext
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType

from engine.convert_gguf import convert
from engine.enums import Activation, Role, Type
from engine.errors import FileError, FormatError, NonFiniteError, UnsupportedError
from engine.format import CflowFile, read_file
from engine.gguf_names import adjacent_order, half_split_order
from engine.gguf_source import GgufSource
from engine.tiles import TileShape, dequantise, dequantise_tiles, unpack
from engine.tokenizer import Tokenizer
from tests.engine.gguf_files import END, RELATIVES, VOCAB, LlamaGguf


def converted(model: LlamaGguf, tmp_path: Path, **options: object) -> CflowFile:
    source = model.write(tmp_path / "model.gguf")
    target = tmp_path / "model.cflow"
    convert(source, target, **options)  # type: ignore[arg-type]
    return read_file(target)


def parts(
    file: CflowFile, role: Role, block: int | None = None, expert: int | None = None
) -> list[np.ndarray]:
    entry = file.entry(role, block, expert)
    assert entry is not None
    return list(unpack(entry.spec.layout(file.hparams.tile_shape), file.data(entry)))


def source_rows(model: LlamaGguf, name: str) -> np.ndarray:
    data = np.ascontiguousarray(model.tensors[name][1])
    return data.view(np.uint8).reshape(*data.shape[:-1], -1)


def in_half_split_order(rows: np.ndarray, head_dim: int) -> np.ndarray:
    """Written out row by row, apart from the code under test."""
    out = np.zeros_like(rows)
    half = head_dim // 2
    for row in range(rows.shape[0]):
        head, place = divmod(row, head_dim)
        out[row] = rows[head * head_dim + (2 * place if place < half else 2 * (place - half) + 1)]
    return out


@pytest.mark.parametrize("kind", list(Type))
def test_dense_model_is_block_exact(tmp_path: Path, kind: Type) -> None:
    model = LlamaGguf(kind=kind, tied=False)
    file = converted(model, tmp_path)
    for block in range(model.layers):
        name = f"blk.{block}."
        q, k, v = parts(file, Role.ATTN_QKV, block)
        assert np.array_equal(q, in_half_split_order(source_rows(model, f"{name}attn_q.weight"), 16))
        assert np.array_equal(k, in_half_split_order(source_rows(model, f"{name}attn_k.weight"), 16))
        assert np.array_equal(v, source_rows(model, f"{name}attn_v.weight"))
        (output,) = parts(file, Role.ATTN_OUTPUT, block)
        assert np.array_equal(output, source_rows(model, f"{name}attn_output.weight"))
        gate, up = parts(file, Role.FFN_GATE_UP, block)
        assert np.array_equal(gate, source_rows(model, f"{name}ffn_gate.weight"))
        assert np.array_equal(up, source_rows(model, f"{name}ffn_up.weight"))
        (down,) = parts(file, Role.FFN_DOWN, block)
        assert np.array_equal(down, source_rows(model, f"{name}ffn_down.weight"))
    (embedding,) = parts(file, Role.EMBEDDING)
    assert np.array_equal(embedding, source_rows(model, "token_embd.weight"))
    (head,) = parts(file, Role.HEAD)
    assert np.array_equal(head, source_rows(model, "output.weight"))


def test_norms_and_header(tmp_path: Path) -> None:
    model = LlamaGguf()
    model.metadata["tokenizer.ggml.bos_token_id"] = 3
    file = converted(model, tmp_path, tile_shape=TileShape(32, 64))
    h = file.hparams
    assert (h.layers, h.blocks, h.d_model, h.heads, h.kv_heads, h.head_dim) == (2, 2, 64, 4, 2, 16)
    assert (h.ffn_hidden, h.experts, h.vocab, h.context) == (96, 0, len(VOCAB), 64)
    assert (h.activation, h.norm_topk, h.tied_head) == (Activation.SWIGLU, True, True)
    assert (h.tile_rows, h.tile_cols) == (32, 64)
    assert (h.bos, h.eos) == (3, END)
    assert h.rms_eps == np.float32(1e-5)
    assert h.rope_base == 10000.0
    assert file.name == "test model"
    for role, name in ((Role.ATTN_NORM, "blk.1.attn_norm.weight"), (Role.FFN_NORM, "blk.1.ffn_norm.weight")):
        entry = file.entry(role, 1)
        assert entry is not None
        assert np.array_equal(file.data(entry)[: 4 * 64].view(np.float32), model.tensors[name][1])


def test_experts_share_the_norm_and_replace_the_dense_network(tmp_path: Path) -> None:
    model = LlamaGguf(experts=3)
    file = converted(model, tmp_path)
    h = file.hparams
    assert (h.experts, h.experts_per_token, h.expert_hidden, h.ffn_hidden) == (3, 2, 96, 0)
    assert file.entry(Role.FFN_NORM, 0) is None
    norm = file.entry(Role.MOE_NORM, 0)
    assert norm is not None
    assert np.array_equal(
        file.data(norm)[: 4 * 64].view(np.float32), model.tensors["blk.0.ffn_norm.weight"][1]
    )
    (router,) = parts(file, Role.ROUTER, 1)
    assert np.array_equal(router, source_rows(model, "blk.1.ffn_gate_inp.weight"))
    for expert in range(3):
        gate, up = parts(file, Role.EXPERT_GATE_UP, 1, expert)
        (down,) = parts(file, Role.EXPERT_DOWN, 1, expert)
        assert np.array_equal(gate, source_rows(model, "blk.1.ffn_gate_exps.weight")[expert])
        assert np.array_equal(up, source_rows(model, "blk.1.ffn_up_exps.weight")[expert])
        assert np.array_equal(down, source_rows(model, "blk.1.ffn_down_exps.weight")[expert])


def test_a_half_precision_router_becomes_f32_without_loss(tmp_path: Path) -> None:
    model = LlamaGguf(experts=3)
    name = "blk.0.ffn_gate_inp.weight"
    values = model.tensors[name][1].astype(np.float16)
    model.tensors[name] = GGMLQuantizationType.F16, values
    (router,) = parts(converted(model, tmp_path), Role.ROUTER, 0)
    assert np.array_equal(router.view(np.float32), values.astype(np.float32))


def test_biases_are_permuted_like_their_rows(tmp_path: Path) -> None:
    model = LlamaGguf(bias=True)
    file = converted(model, tmp_path)
    entry = file.entry(Role.ATTN_QKV_BIAS, 0)
    assert entry is not None
    found = file.data(entry)[: 4 * 128].view(np.float32)
    q, k, v = (model.tensors[f"blk.0.attn_{part}.bias"][1] for part in "qkv")
    expected = [in_half_split_order(q, 16), in_half_split_order(k, 16), v]
    assert np.array_equal(found, np.concatenate(expected))


@pytest.mark.parametrize("head_dim", [2, 4, 64])
@pytest.mark.parametrize("heads", [1, 3])
def test_half_split_order_keeps_rotary_attention_scores(head_dim: int, heads: int) -> None:
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((2, heads * head_dim))
    order = half_split_order(heads * head_dim, head_dim)
    assert np.array_equal(order[adjacent_order(heads * head_dim, head_dim)], np.arange(heads * head_dim))
    for q_at, k_at in ((0, 0), (5, 2), (7, 7)):
        adjacent = _rotate(q, q_at, head_dim, True) * _rotate(k, k_at, head_dim, True)
        halves = _rotate(q[order], q_at, head_dim, False) * _rotate(k[order], k_at, head_dim, False)
        np.testing.assert_allclose(
            adjacent.reshape(heads, -1).sum(1), halves.reshape(heads, -1).sum(1), atol=1e-12
        )


def _rotate(x: np.ndarray, position: int, head_dim: int, adjacent: bool) -> np.ndarray:
    out = x.reshape(-1, head_dim).copy()
    half = head_dim // 2
    for i in range(half):
        a, b = (2 * i, 2 * i + 1) if adjacent else (i, i + half)
        angle = position * 10000.0 ** (-2 * i / head_dim)
        first, second = out[:, a].copy(), out[:, b].copy()
        out[:, a] = first * np.cos(angle) - second * np.sin(angle)
        out[:, b] = first * np.sin(angle) + second * np.cos(angle)
    return out.reshape(-1)


@pytest.mark.parametrize("source_kind", [Type.F16, Type.F32])
@pytest.mark.parametrize("kind", [Type.Q4_0, Type.Q4_1, Type.Q8_0])
def test_quantising_plain_sources(tmp_path: Path, source_kind: Type, kind: Type) -> None:
    model = LlamaGguf(kind=source_kind)
    file = converted(model, tmp_path, quantize=kind)
    entry = file.entry(Role.FFN_DOWN, 0)
    assert entry is not None
    assert entry.spec.kind is kind
    (rows,) = parts(file, Role.FFN_DOWN, 0)
    values = model.tensors["blk.0.ffn_down.weight"][1].astype(np.float32)
    expected = gguf.quants.quantize(values, GGMLQuantizationType[kind.name])
    assert np.array_equal(rows, expected)
    (found,) = dequantise_tiles(entry.spec.layout(file.hparams.tile_shape), file.data(entry))
    assert np.abs(found - values).max() < 0.1 * np.abs(values).max()


def test_quantising_leaves_quantised_sources_alone(tmp_path: Path) -> None:
    model = LlamaGguf(kind=Type.Q8_0)
    file = converted(model, tmp_path, quantize=Type.Q4_0)
    (down,) = parts(file, Role.FFN_DOWN, 0)
    assert np.array_equal(down, source_rows(model, "blk.0.ffn_down.weight"))


def test_the_tokenizer_is_carried_along(tmp_path: Path) -> None:
    file = converted(LlamaGguf(), tmp_path)
    assert file.tokenizer_json is not None
    tokenizer = Tokenizer.from_json(file.tokenizer_json)
    assert tokenizer.encode("the the<|end|>") == [VOCAB.index("the"), VOCAB.index("Ġthe"), END]


@pytest.mark.parametrize(
    ("model", "reason"), [("none", "no tokenizer"), ("llama", "'llama' is not supported")]
)
def test_a_tokenizer_that_cannot_be_built_is_left_out_with_a_note(
    tmp_path: Path, model: str, reason: str
) -> None:
    gguf_file = LlamaGguf()
    gguf_file.metadata["tokenizer.ggml.model"] = model
    done = convert(gguf_file.write(tmp_path / "m.gguf"), tmp_path / "m.cflow")
    assert reason in done.tokenizer_note
    assert "--token-ids" in done.tokenizer_note
    assert read_file(done.path).tokenizer_json is None


def test_progress_counts_all_bytes_once(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    converted(LlamaGguf(), tmp_path, progress=lambda done, total: seen.append((done, total)))
    assert len({total for _, total in seen}) == 1
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == seen[-1][1]


def _spoil(key: str, value: object) -> LlamaGguf:
    model = LlamaGguf()
    if value is None:
        del model.metadata[key]
    else:
        model.metadata[key] = value
    return model


@pytest.mark.parametrize(
    ("key", "value", "error", "fault"),
    [
        (
            "general.architecture",
            "gemma3",
            UnsupportedError,
            "'gemma3' is not supported; these work: llama, qwen2, qwen3, qwen3moe",
        ),
        ("llama.block_count", None, FormatError, "llama.block_count is missing"),
        ("llama.embedding_length", 63, FormatError, "model.gguf: d_model is 63"),
        ("llama.feed_forward_length", 100, FormatError, "ffn_hidden is 100, must be a multiple of 32"),
        ("llama.attention.head_count", 0, FormatError, "head_count is 0"),
        ("llama.attention.head_count_kv", 3, FormatError, "kv_heads is 3, must divide"),
        ("llama.attention.head_count", "4", FormatError, "head_count is a str, int is needed"),
        ("llama.block_count", 3, FormatError, r"tensor blk\.2\.\S+ is missing"),
        ("llama.block_count", 1, UnsupportedError, r"tensor blk\.1\.\S+ belongs to no supported part"),
        ("llama.rope.dimension_count", 8, UnsupportedError, "dimension_count is 8"),
        ("llama.rope.scaling.type", "yarn", UnsupportedError, "scaling.type is 'yarn'; only 'none' works"),
        ("llama.rope.scaling.factor", 4.0, UnsupportedError, "scaling.factor is 4.0; only 0.0 or 1.0 works"),
        ("llama.rope.scaling.yarn_log_multiplier", 0.1, UnsupportedError, "key llama.rope.scaling.yarn_log"),
        ("llama.expert_weights_scale", 2.5, UnsupportedError, "expert_weights_scale is 2.5"),
        ("llama.expert_gating_func", 2, UnsupportedError, "expert_gating_func is 2; only 1 works"),
        ("llama.expert_weights_norm", False, UnsupportedError, "expert_weights_norm is False"),
        ("llama.attention.sliding_window", 4096, UnsupportedError, "sliding_window is 4096; only 0 works"),
        ("llama.attention.value_length", 8, UnsupportedError, "value_length is 8; only whole heads"),
        ("llama.something_new", 1, UnsupportedError, "key llama.something_new is not supported"),
        ("llama.rope.freq_base", 10000, FormatError, "freq_base is a int, float is needed"),
        ("llama.context_length", None, FormatError, "context_length is missing"),
        ("llama.vocab_size", 7, FormatError, "vocab_size is 7, but tokenizer.ggml.tokens has"),
        ("llama.expert_count", 4, FormatError, "expert_used_count is missing"),
        ("tokenizer.ggml.eos_token_id", 10**6, FormatError, "eos is 1000000"),
    ],
)
def test_what_cannot_be_converted_is_named(
    tmp_path: Path, key: str, value: object, error: type[Exception], fault: str
) -> None:
    source = _spoil(key, value).write(tmp_path / "model.gguf")
    with pytest.raises(error, match=fault):
        convert(source, tmp_path / "model.cflow")
    assert [path.name for path in tmp_path.iterdir()] == ["model.gguf"]


@pytest.mark.parametrize(
    ("relative", "key", "value", "error", "fault"),
    [
        ("qwen2", "expert_count", 4, UnsupportedError, "qwen2.expert_count is 4; only 0 works"),
        ("qwen3moe", "expert_count", 0, FormatError, "qwen3moe.expert_count is 0 or missing"),
        (
            "qwen3moe",
            "expert_feed_forward_length",
            None,
            FormatError,
            "expert_feed_forward_length is missing",
        ),
        ("qwen3moe", "expert_shared_count", 1, UnsupportedError, "expert_shared_count is 1; only 0 works"),
        ("qwen3", "rope.dimension_count", 16, UnsupportedError, r"count is 16; only whole heads \(32\)"),
    ],
)
def test_what_cannot_be_converted_of_relatives(
    tmp_path: Path, relative: str, key: str, value: object, error: type[Exception], fault: str
) -> None:
    model = LlamaGguf(**RELATIVES[relative])
    model.metadata[f"{model.architecture}.{key}"] = value
    if value is None:
        del model.metadata[f"{model.architecture}.{key}"]
    with pytest.raises(error, match=fault):
        convert(model.write(tmp_path / "m.gguf"), tmp_path / "m.cflow")


@pytest.mark.parametrize(
    ("relative", "architecture", "error", "tensor"),
    [
        ("qwen2", "llama", None, ""),
        ("llama with experts", "qwen3moe", FormatError, r"attn_q_norm\.weight is missing"),
        ("qwen3", "llama", UnsupportedError, r"attn_q_norm\.weight belongs to no supported part"),
        ("qwen3", "qwen2", UnsupportedError, r"attn_q_norm\.weight belongs to no supported part"),
        ("llama with biases", "qwen3", UnsupportedError, r"attn_q\.bias belongs to no supported part"),
    ],
)
def test_each_architecture_has_its_tensors(
    tmp_path: Path, relative: str, architecture: str, error: type[Exception] | None, tensor: str
) -> None:
    arguments = {**RELATIVES[relative], "architecture": architecture}
    source = LlamaGguf(**arguments).write(tmp_path / "m.gguf")
    with pytest.raises(error, match=tensor) if error else nullcontext():
        convert(source, tmp_path / "m.cflow")


def test_a_dense_network_beside_experts_is_refused(tmp_path: Path) -> None:
    model = LlamaGguf(experts=3)
    model.matrix("blk.1.ffn_up.weight", 96, 64)
    with pytest.raises(UnsupportedError, match=r"blk\.1\.ffn_up\.weight belongs to no supported part"):
        convert(model.write(tmp_path / "m.gguf"), tmp_path / "m.cflow")


@pytest.mark.parametrize("relative", RELATIVES)
def test_relatives_of_llama(tmp_path: Path, relative: str) -> None:
    """Only llama orders the rows of q and k for adjacent pairs; experts are blocks of a stack."""
    model = LlamaGguf(**RELATIVES[relative], rope_base=1e6, eps=1e-6)
    adjacent = model.architecture == "llama"
    file = converted(model, tmp_path)
    h = file.hparams
    head_dim = model.head_dim or 16
    assert (h.head_dim, h.experts, h.experts_per_token) == (head_dim, model.experts, 2 * bool(model.experts))
    assert (h.ffn_hidden, h.expert_hidden) == ((0, 96) if model.experts else (96, 0))
    assert (h.rope_base, h.rms_eps, h.context, h.tied_head) == (1e6, np.float32(1e-6), 64, model.tied)
    for block in range(model.layers):
        rows = [source_rows(model, f"blk.{block}.attn_{part}.weight") for part in "qkv"]
        wanted = [in_half_split_order(part, head_dim) if adjacent else part for part in rows[:2]]
        for found, expected in zip(parts(file, Role.ATTN_QKV, block), [*wanted, rows[2]], strict=True):
            assert np.array_equal(found, expected)
        for role, part in ((Role.ATTN_Q_NORM, "q"), (Role.ATTN_K_NORM, "k")):
            entry = file.entry(role, block)
            assert (entry is not None) == model.qk_norm
            if entry is not None:
                gain = model.tensors[f"blk.{block}.attn_{part}_norm.weight"][1]
                assert np.array_equal(file.data(entry).view(np.float32)[:head_dim], gain)
        bias = file.entry(Role.ATTN_QKV_BIAS, block)
        assert (bias is not None) == model.bias
        if bias is not None and not adjacent:
            values = [model.tensors[f"blk.{block}.attn_{part}.bias"][1] for part in "qkv"]
            assert np.array_equal(file.data(bias).view(np.float32), np.concatenate(values))
        for expert in range(model.experts):
            (down,) = parts(file, Role.EXPERT_DOWN, block, expert)
            assert np.array_equal(down, source_rows(model, f"blk.{block}.ffn_down_exps.weight")[expert])


def test_fused_matrices_of_two_types_are_refused(tmp_path: Path) -> None:
    model = LlamaGguf()
    model.matrix("blk.1.attn_v.weight", 32, 64, Type.Q8_0)
    with pytest.raises(UnsupportedError, match=r"blk\.1\.attn_qkv.*attn_v\.weight q8_0"):
        convert(model.write(tmp_path / "m.gguf"), tmp_path / "m.cflow")


def test_scaled_rotary_tables_are_refused(tmp_path: Path) -> None:
    model = LlamaGguf()
    model.vector("rope_freqs.weight", 8)
    with pytest.raises(UnsupportedError, match=r"rope_freqs\.weight"):
        convert(model.write(tmp_path / "m.gguf"), tmp_path / "m.cflow")


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_non_finite_scale_is_named_and_nothing_stays(tmp_path: Path, bad: float) -> None:
    model = LlamaGguf()
    kind, rows = model.tensors["blk.1.ffn_down.weight"]
    rows[37, 2 * 18 : 2 * 18 + 2] = np.frombuffer(np.float16(bad).tobytes(), np.uint8)
    source = model.write(tmp_path / "m.gguf")
    with pytest.raises(NonFiniteError, match=r"blk\.1\.ffn_down.*row 37.*block 2"):
        convert(source, tmp_path / "m.cflow")
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]


def test_unwritable_target_is_named(tmp_path: Path) -> None:
    source = LlamaGguf().write(tmp_path / "m.gguf")
    with pytest.raises(FileError, match="absent"):
        convert(source, tmp_path / "absent" / "m.cflow")


def test_rows_of_a_tensor_equal_the_package_values(tmp_path: Path) -> None:
    model = LlamaGguf(kind=Type.Q4_1)
    path = model.write(tmp_path / "m.gguf")
    rows = GgufSource(path).rows("blk.0.ffn_up.weight", (96, 64))
    expected = gguf.quants.dequantize(model.tensors["blk.0.ffn_up.weight"][1], GGMLQuantizationType.Q4_1)
    assert np.array_equal(dequantise(rows, Type.Q4_1), expected)
