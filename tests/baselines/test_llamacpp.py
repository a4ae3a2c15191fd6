"""The real llama.cpp, where it is installed: the same function as our engine, and its account of itself."""

import os
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter
from gguf.quants import dequantize

from baselines.errors import BaselineError
from baselines.install import LLAMACPP, libraries
from baselines.llamacpp import LlamaCpp
from baselines.llamacpp_abi import VERSIONS
from engine import smollm2
from engine.convert_gguf import convert
from engine.errors import CflowError
from engine.model import Model
from engine.session import Session
from harness.counters import process_cpu_ns
from tests.engine.gguf_files import LlamaGguf

PROMPT = [6403, 1980, 253, 655]
"""SmolLM2's tokens of "Once upon a time"."""
N = 12
EXACT = {"q8_activations": 0, "kv_f32": 1}
# llama.cpp quantises activations to 8 bits wherever weights are quantised; ours does not under EXACT. On
# SmolLM2 that moves the gap between two logits by up to 0.4 (seen: +0.16 became -0.19); other continuations
# lie whole units behind.
NEAR_TIE = 0.5


@pytest.fixture
def baseline(llamacpp: LlamaCpp) -> Iterator[LlamaCpp]:
    with llamacpp:
        yield llamacpp


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Q4_0 weights in rows that llama.cpp can repack."""
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    return LlamaGguf(d_model=256, hidden=512).write(path)


@pytest.fixture(scope="module")
def smollm2_gguf() -> Path:
    try:
        return smollm2.gguf_path()
    except CflowError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def smollm2_cflow(smollm2_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("smollm2") / "smollm2.cflow"
    convert(smollm2_gguf, path)
    return path


@pytest.fixture(scope="module")
def smollm2_f32(smollm2_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """SmolLM2's weights, the very values of its blocks, as f32: on them llama.cpp rounds no activations."""
    path = tmp_path_factory.mktemp("smollm2") / "smollm2-f32.gguf"
    write_dequantised(smollm2_gguf, path)
    yield path
    path.unlink()  # 538 MB, which pytest would keep for three runs


def write_dequantised(source: Path, target: Path) -> None:
    """The same model with every tensor as f32, and without its tokenizer."""
    reader = GGUFReader(source)
    writer = GGUFWriter(target, "llama")
    for name, entry in reader.fields.items():
        if name.startswith("llama."):
            writer.add_key_value(name, entry.contents(), entry.types[0])
    writer.add_tokenizer_model("none")
    for tensor in reader.tensors:
        values = dequantize(tensor.data, GGMLQuantizationType(tensor.tensor_type))
        writer.add_tensor(tensor.name, np.ascontiguousarray(values, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def greedy(session: Session, prompt: list[int], n: int) -> list[int]:
    """Our greedy continuation of a prompt from position 0."""
    session.reset()
    if prompt[:-1]:
        session.decode(prompt[:-1])
    tokens, _ = session.generate(prompt[-1], n)
    return [int(token) for token in tokens]


@pytest.mark.parametrize("flash_attention", [False, True])
def test_f32_weights_give_our_logits(
    baseline: LlamaCpp, tiny: Path, tmp_path: Path, flash_attention: bool
) -> None:
    write_dequantised(tiny, tmp_path / "f32.gguf")
    convert(tiny, tmp_path / "tiny.cflow")
    prompt = [3, 14, 15, 92, 65]
    baseline.load(tmp_path / "f32.gguf", 1, flash_attention=flash_attention, kv_type="f32", context=64)
    with Model(tmp_path / "tiny.cflow") as model, Session(model, context=64, **EXACT) as session:
        ours = session.decode(prompt)
        theirs = baseline.decode(prompt, logits_of=range(model.vocab))
        assert theirs.logits == pytest.approx(ours.tolist(), abs=5e-3 if flash_attention else 1e-4)
        order = np.argsort(theirs.logits)[::-1]
        assert theirs.argmax == order[0]
        assert [token for token, _ in theirs.top] == order[: len(theirs.top)].tolist()
        assert [logit for _, logit in theirs.top] == sorted(theirs.logits, reverse=True)[: len(theirs.top)]
        assert theirs.finite


def test_smollm2_continues_like_our_engine(
    baseline: LlamaCpp, smollm2_f32: Path, smollm2_cflow: Path
) -> None:
    baseline.load(smollm2_f32, 1, flash_attention=False, kv_type="f32", context=64)
    baseline.decode(PROMPT[:-1])
    theirs = baseline.generate(PROMPT[-1], N)
    with Model(smollm2_cflow) as model, Session(model, context=64, **EXACT) as session:
        assert list(theirs.tokens) == greedy(session, PROMPT, N)
    assert len(theirs.ns) == N
    assert min(theirs.ns) > 0


@pytest.mark.parametrize("repack", [False, True])
def test_smollm2_quantised_differs_at_near_ties_only(
    baseline: LlamaCpp, smollm2_gguf: Path, smollm2_cflow: Path, repack: bool
) -> None:
    baseline.load(smollm2_gguf, 1, repack=repack, context=64)
    equal = 0
    with Model(smollm2_cflow) as model, Session(model, context=64, **EXACT) as session:
        tokens = PROMPT + greedy(session, PROMPT, N)
        session.reset()
        for position, token in enumerate(tokens[:-1]):
            logits = session.decode([token])
            ours = int(logits.argmax())
            theirs = baseline.decode([token], logits_of=[ours])
            if position < len(PROMPT) - 1:
                continue
            equal += theirs.argmax == ours
            assert float(logits[ours] - logits[theirs.argmax]) < NEAR_TIE
            assert theirs.top[0][1] - theirs.logits[0] < NEAR_TIE
    assert equal >= N - 2


def test_following_says_what_it_would_have_chosen(baseline: LlamaCpp, tiny: Path) -> None:
    baseline.load(tiny, 1, context=16, kv_type="f32", flash_attention=False)
    free = baseline.generate(5, 4).tokens
    baseline.reset()
    followed = baseline.follow([5, *free[:-1]])
    assert followed.argmax == free
    assert len(followed.ns) == 4
    assert min(followed.ns) > 0
    assert followed.run_delay_ns >= 0
    with pytest.raises(BaselineError, match="13 tokens at position 4 do not fit"):
        baseline.follow([1] * 13)


def test_a_resting_engine_uses_no_processor(baseline: LlamaCpp, tiny: Path) -> None:
    threads = len(os.sched_getaffinity(0))
    baseline.load(tiny, threads, poll=100)  # spins for long after its work
    baseline.generate(1, 2)
    baseline.rest()
    before = process_cpu_ns(baseline.pid)
    time.sleep(0.2)
    assert process_cpu_ns(baseline.pid) - before < 2_000_000
    baseline.rest()  # once more is nothing
    assert baseline.decode([1]).finite


def test_the_build_is_told_without_a_model(baseline: LlamaCpp, tiny: Path) -> None:
    build = baseline.build()
    assert build.commit == VERSIONS["commit"]
    baseline.load(tiny, 1, context=64)
    info = baseline.info().to_json()
    assert {key: info[key] for key in asdict(build)} == asdict(build)


def test_info_tells_what_runs(baseline: LlamaCpp, tiny: Path) -> None:
    baseline.load(tiny, 1, flash_attention=False, kv_type="f32", context=128, poll=0)
    info = baseline.info()
    assert (info.version, info.ggml_version) == (VERSIONS["llama.cpp"], VERSIONS["ggml"])
    assert (libraries(LLAMACPP) / f"libggml-cpu-{info.back_end}.so").is_file()
    assert info.features.startswith("CPU : ")
    assert info.model_bytes > 0
    assert (info.threads, len(info.cpus), info.context, info.kv_type, info.poll) == (1, 1, 128, "f32", 0)
    assert info.cpus[0] >= 0
    assert info.to_json()["back_end"] == info.back_end


def test_threads_are_bound_where_they_should_be(baseline: LlamaCpp, tiny: Path) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    baseline.load(tiny, 1, cpus=allowed[-1:])
    assert baseline.info().cpus == (allowed[-1],)
    # Loaded again, the threads are not left with the one CPU of before.
    baseline.load(tiny, len(allowed))
    assert baseline.info().cpus == tuple(allowed)


def test_repacking_and_mapping_are_proven_by_the_log(baseline: LlamaCpp, tiny: Path) -> None:
    baseline.load(tiny, 1, repack=False, mmap=False)
    plain = baseline.info()
    assert (plain.repack_allowed, plain.repack_mib, plain.mmap) == (False, 0.0, False)
    assert set(plain.buffers_mib) == {"CPU"}
    baseline.load(tiny, 1)
    other = baseline.info()
    assert (other.repack_allowed, other.mmap) == (True, True)
    # What AMX multiplies lies in a buffer of its own.
    assert other.repack_mib == sum(other.buffers_mib.get(name, 0.0) for name in ("CPU_REPACK", "AMX"))
    if "AVX2" in other.features:  # it has Q4_0 panels for 256-bit vectors and wider ones only
        assert other.repack_mib > 0


@pytest.mark.parametrize(("asked", "runs"), [(False, {False}), (True, {True}), (None, {False, True})])
def test_flash_attention_is_resolved(
    baseline: LlamaCpp, tiny: Path, asked: bool | None, runs: set[bool]
) -> None:
    baseline.load(tiny, 1, flash_attention=asked)
    info = baseline.info()
    assert info.flash_attention_asked is asked
    assert info.flash_attention in runs


def test_reset_forgets_and_batches_do_not_matter(baseline: LlamaCpp, tiny: Path) -> None:
    tokens = [token % 64 for token in range(600)]  # more than one batch
    baseline.load(tiny, 1, context=640, kv_type="f32", flash_attention=False)
    whole = baseline.decode(tokens)
    baseline.reset()
    baseline.decode(tokens[:599])
    split = baseline.decode(tokens[599:])
    assert split.top[0][1] == pytest.approx(whole.top[0][1], abs=0.05)
    baseline.reset()
    with pytest.raises(BaselineError, match=r"641 tokens at position 0 do not fit in a context of 640"):
        baseline.generate(1, 641)


def test_a_forced_back_end_runs(llamacpp_installed: None, tiny: Path) -> None:
    with LlamaCpp(back_end="x64") as plain:
        plain.load(tiny, 1)
        assert plain.info().back_end == "x64"
        assert plain.info().repack_mib == 0
    with pytest.raises(BaselineError, match=r"back end 'none' found, allowed: .*haswell"):
        LlamaCpp(back_end="none")


def test_errors_leave_the_baseline_usable(baseline: LlamaCpp, tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(BaselineError, match="no model is loaded"):
        baseline.info()
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(tiny.read_bytes()[:1000])
    with pytest.raises(BaselineError, match=r"broken\.gguf cannot be loaded"):
        baseline.load(broken, 1)
    with pytest.raises(BaselineError, match="flash_attn"):
        baseline.load(tiny, 1, kv_type="q8_0", flash_attention=False)
    baseline.load(tiny, 1, context=64)
    with pytest.raises(BaselineError, match=r"tokens: id 100000 found, allowed: 0 to \d+"):
        baseline.decode([1, 100_000])
    with pytest.raises(BaselineError, match=r"logits_of: id -1 found"):
        baseline.decode([1], logits_of=[-1])
    with pytest.raises(BaselineError, match="tokens: none given"):
        baseline.decode([])
    assert baseline.decode([1]).finite


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"threads": 0}, "threads: 0 found"),
        ({"threads": 100_000}, "threads: 100000 found, with"),
        ({"cpus": [100_000]}, r"cpus: \[100000\] found, allowed"),
        ({"cpus": []}, "threads: 1 found, with 0 CPUs"),
        ({"kv_type": "q3"}, "kv_type: 'q3' found, allowed: f32, f16, q8_0"),
        ({"context": 0}, "context: 0 found"),
        ({"poll": 101}, "poll: 101 found, allowed: 0 to 100"),
        ({"gguf": Path("absent.gguf")}, "absent.gguf: no such file"),
    ],
)
def test_options_out_of_range_are_named(
    baseline: LlamaCpp, tiny: Path, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(BaselineError, match=sentence):
        baseline.load(**{"gguf": tiny, "threads": 1, **options})


def test_routing_is_that_of_its_graph(baseline: LlamaCpp, tmp_path: Path) -> None:
    path = LlamaGguf(layers=2, d_model=256, hidden=512, experts=4).write(tmp_path / "moe.gguf")
    baseline.load(path, 1, context=64, routing=True)
    plain = baseline.decode([1])
    chosen = baseline.routing()
    assert len(chosen) == 2
    for layer in chosen:
        assert len(set(layer)) == len(layer) == 2
        assert set(layer) < set(range(4))
    with pytest.raises(BaselineError, match="2 given, with routing one is fed at a time"):
        baseline.decode([1, 2])
    baseline.load(path, 1, context=64)
    assert baseline.decode([1]).top == plain.top
    with pytest.raises(BaselineError, match="loaded without routing"):
        baseline.routing()


def test_a_model_without_experts_routes_nothing(baseline: LlamaCpp, tiny: Path) -> None:
    baseline.load(tiny, 1, context=64, routing=True)
    baseline.decode([1])
    assert baseline.routing() == ()


def test_it_lets_go_of_a_mapping_only(baseline: LlamaCpp, tiny: Path) -> None:
    baseline.load(tiny, 1, repack=False, context=64)
    before = baseline.decode([5]).top
    assert baseline.let_go(readahead=False) >= baseline.info().model_bytes
    baseline.reset()
    assert baseline.decode([5]).top == before
    baseline.load(tiny, 1, repack=False, mmap=False, context=64)
    with pytest.raises(BaselineError, match="is not mapped"):
        baseline.let_go(readahead=False)


def test_repacked_weights_lie_on_huge_pages_when_asked(llamacpp_installed: None, tmp_path: Path) -> None:
    path = LlamaGguf(d_model=1024, hidden=4096).write(tmp_path / "wide.gguf")
    with LlamaCpp(huge_pages=True) as huge:
        huge.load(path, 1, context=64)
        told = huge.info()
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    if "[never]" in setting or told.repack_mib < 4 or told.huge_pages_mib is None:
        pytest.skip("no huge pages, or nothing repacked")
    assert told.huge_pages_mib >= 2
