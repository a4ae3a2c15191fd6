"""`cflow bench`."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from baselines import install
from claims import against, against_vllm
from claims.speed import Ratio
from cli.bench_table import lines, notes
from engine.kernels import threads_default
from tests.baselines.fake_vllm import make_environment
from tests.claims.fake_bench import opener
from tests.claims.fake_llamacpp import FakeLlamaCpp
from tests.cli.conftest import Cflow
from tests.engine.gguf_files import LlamaGguf

ROOT = Path(__file__).resolve().parents[2]
SHORT = ("-n", 4, "--prompt", 3, "--rounds", 1)


@pytest.fixture(autouse=True)
def small_roof(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole command with a made-up roof: the real one reads gigabytes."""
    for module in (against, against_vllm):
        monkeypatch.setattr(module, "open_bench", opener(10**6, []))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[FakeLlamaCpp]:
    """Another engine that is ours; the working directory, where conversions are kept, is empty."""
    kind = type("Fresh", (FakeLlamaCpp,), {"loads": []})
    monkeypatch.setattr(against, "LlamaCpp", kind)
    monkeypatch.setattr("cli.bench.libraries", lambda name: tmp_path)
    monkeypatch.chdir(tmp_path)
    return kind


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    source = LlamaGguf(d_model=256, hidden=512)
    source.metadata["llama.context_length"] = 256
    return source.write(tmp_path / "m.gguf")


def test_json_has_the_fixed_shape(cflow: Cflow, moe: Path) -> None:
    outcome = cflow("bench", "-m", moe, *SHORT, "--threads", "1", "--isa", "scalar", "--json")
    assert outcome.code == 0
    found = json.loads(outcome.out)
    assert found["ratios"] == []
    (row,) = found["rows"]
    assert row["engine"] == "cflow"
    assert row["threads"] == 1
    assert row["isa"] == "scalar"
    fixed = {"tok_per_s", "weight_bytes_per_token", "bytes_per_s", "roof_bytes_per_s", "share_of_roof"}
    assert fixed <= row.keys()
    assert row["settings"]["prompt"]["source"] == "random"


def test_table(cflow: Cflow, moe: Path) -> None:
    outcome = cflow("bench", "-m", moe, *SHORT)
    assert outcome.code == 0
    header, row, *rest = outcome.out.splitlines()
    assert "tok/s" in header
    assert row.split()[:2] == ["cflow", str(threads_default())]
    assert any("per token and worker: attention" in line and "barrier" in line for line in rest)
    assert any("random tokens" in line for line in rest)
    assert "fewer than 12" in outcome.err


def test_experts_from_disk_have_no_share_of_the_memory_roof(cflow: Cflow, moe: Path) -> None:
    outcome = cflow("bench", "-m", moe, *SHORT, "--threads", 1, "--residency", "direct", "--json")
    assert outcome.code == 0
    (row,) = json.loads(outcome.out)["rows"]
    assert row["share_of_roof"] is row["share_of_probe"] is None
    assert row["roof_bytes_per_s"] is not None
    disk = row["storage"]
    assert disk["asked_bytes_per_token"] > 0
    assert 0 < disk["wait_share"] < 1
    assert disk["expert_hits_per_token"] == 0
    table = cflow("bench", "-m", moe, *SHORT, "--threads", 1, "--residency", "direct")
    assert "from disk per token" in table.out
    assert "no share of the memory's roof where experts came from disk" in table.err
    assert "experts are read" in table.err


def test_experts_that_stay_in_memory_have_a_share(cflow: Cflow, moe: Path) -> None:
    outcome = cflow("bench", "-m", moe, *SHORT, "--threads", 1, "--ram-budget", "1GiB", "--json")
    (row,) = json.loads(outcome.out)["rows"]
    assert row["storage"] is None
    assert row["share_of_roof"] is not None


def test_against_another_engine(cflow: Cflow, gguf: Path, fake: type[FakeLlamaCpp]) -> None:
    outcome = cflow("bench", "-m", gguf, *SHORT, "--threads", 1, "--against", "llama.cpp", "--json")
    assert outcome.code == 0
    found = json.loads(outcome.out)
    assert [row["engine"] for row in found["rows"]] == ["cflow", "llama.cpp"]
    ratio = found["ratios"][0]
    fixed = {"threads", "against", "median", "low", "high", "a_a", "rounds", "void", "tokens_equal"}
    assert fixed <= ratio.keys()
    assert (ratio["threads"], ratio["against"], ratio["what"]) == (1, "llama.cpp", "decode")
    assert ratio["verdict"] == "INCONCLUSIVE"  # of one round
    assert list(Path("reports/runs/models").glob("m-*.cflow"))


def test_a_model_with_its_gguf(cflow: Cflow, gguf: Path, llama: Path, fake: type[FakeLlamaCpp]) -> None:
    command = ("bench", *SHORT, "--threads", 1, "--against", "llama.cpp", "--gguf", gguf)
    refused = cflow(*command, "-m", llama)
    assert refused.code == 2
    assert "is not made from" in refused.err
    assert refused.out == ""
    assert cflow("convert", gguf, gguf.with_suffix(".cflow")).code == 0
    outcome = cflow(*command, "-m", gguf.with_suffix(".cflow"), "--tune")
    assert outcome.code == 0
    assert "llama.cpp, 1 thread, decode" in outcome.out
    assert len({(load["flash_attention"], load["poll"]) for load in fake.loads}) == 6


def test_no_baseline_is_a_failure_without_a_ratio(cflow: Cflow, gguf: Path, fake: type[FakeLlamaCpp]) -> None:
    fake.shuffled = True
    command = ("bench", "-m", gguf, *SHORT, "--threads", 1, "--against", "llama.cpp")
    outcome = cflow(*command)
    assert (outcome.code, outcome.out) == (1, "")
    assert "computes something else" in outcome.err
    found: dict[str, Any] = json.loads(cflow(*command, "--json").out)
    assert (found["rows"], found["ratios"]) == ([], [])
    assert found["no_baseline"]["fault"]


def test_a_missing_baseline_says_how_to_install_it(
    cflow: Cflow, gguf: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(install.ENVIRONMENT_VARIABLE, str(tmp_path / "none"))
    outcome = cflow("bench", "-m", gguf, "--against", "llama.cpp")
    assert outcome.code == 2
    assert "cflow baseline install llama.cpp" in outcome.err


def test_thread_counts_above_the_cores_merge(cflow: Cflow, moe: Path) -> None:
    allowed = threads_default()
    counts = f"{allowed},{allowed + 1}"
    outcome = cflow("bench", "-m", moe, *SHORT, "--threads", counts, "--json")
    assert outcome.code == 0
    assert [row["threads"] for row in json.loads(outcome.out)["rows"]] == [allowed]
    assert "warning" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["--threads", "one"], "--threads is 'one'"),
        (["--threads", "0"], "--threads is 0"),
        (["-n", "100000"], "context of the model has"),
        (["-n", "4", "--isa", "mmx"], "'mmx' found"),
        (["--against", "other"], "--against is 'other', allowed: llama.cpp, vllm"),
        (["--against", "vllm", "--tune"], "--tune is not for --against vllm"),
        (["--gguf", "m.gguf"], "--gguf needs --against"),
        (["--tune"], "--tune needs --against"),
        (["-o", "residency"], "--option is 'residency', must be NAME=VALUE"),
        (["-o", "threads=1"], "--option threads is set by"),
        (["-o", "nonsense=1", *SHORT], "unknown session option 'nonsense'"),
    ],
)
def test_wrong_arguments(cflow: Cflow, moe: Path, arguments: list[str], fault: str) -> None:
    outcome = cflow("bench", "-m", moe, *arguments)
    assert outcome.code == 2
    assert fault in outcome.err
    assert outcome.out == ""


def test_a_cflow_alone_has_no_twin(cflow: Cflow, moe: Path, fake: type[FakeLlamaCpp]) -> None:
    outcome = cflow("bench", "-m", moe, "--against", "llama.cpp")
    assert outcome.code == 2
    assert "--gguf FILE" in outcome.err


def test_options_of_the_session(cflow: Cflow, moe: Path) -> None:
    options = ("-o", "residency=copy", "-o", "prefetch_bytes=128")
    outcome = cflow("bench", "-m", moe, *SHORT, *options, "--json")
    told = json.loads(outcome.out)["rows"][0]["settings"]["options"]
    assert (told["residency"], told["prefetch_bytes"]) == (1, 128)


def test_a_void_roof_is_said(cflow: Cflow, moe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("claims.speed.ROOF_LIMIT", 0.0)
    outcome = cflow("bench", "-m", moe, *SHORT)
    assert "void" in outcome.out
    assert "no share" in outcome.err


def test_ctrl_c_leaves_no_process(gguf: Path, tmp_path: Path) -> None:
    if install.installed(install.LLAMACPP) is None:
        pytest.skip("llama.cpp is not installed: cflow baseline install llama.cpp")
    command = [sys.executable, "-m", "cli.main", "bench", "-m", str(gguf), "--against", "llama.cpp"]
    process = subprocess.Popen(
        [*command, "--rounds", "100000"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    parent = psutil.Process(process.pid)
    while not (children := parent.children()):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "cflow: interrupted\n")
    # One that was interrupted while it started ends by itself, when it finds its stdin closed.
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not [child for child in alive if child.status() != psutil.STATUS_ZOMBIE]


def test_ratios_for_people() -> None:
    good = Ratio(2, "llama.cpp", "decode", 1.5, 1.4, 1.6, (0.99, 1.01), 20, 1, True, "FASTER", ())
    bad = Ratio(1, "llama.cpp", "prompt", None, None, None, None, 0, 9, False, "INCONCLUSIVE", ("why",))
    _, _, first, second = lines([], [good, bad])
    assert first == (
        "llama.cpp, 2 threads, decode: 1.500x [1.400, 1.600], A/A [0.990, 1.010], 20 rounds, 1 void, "
        "tokens equal: FASTER"
    )
    assert second == (
        "llama.cpp, 1 thread, prompt: no valid round, 0 rounds, 9 void, tokens differ at near ties: "
        "INCONCLUSIVE: why"
    )
    assert list(notes([])) == []


def test_against_vllm_each_form_that_runs_has_a_row(
    cflow: Cflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(install.ENVIRONMENT_VARIABLE, str(tmp_path / "baselines"))
    monkeypatch.chdir(tmp_path)
    model = tmp_path / "m.cflow"
    geometry = "d=128,heads=2,kv_heads=1,layers=1,ffn=128,vocab=500,activation=swiglu"
    assert cflow("synth", model, "--geometry", geometry).code == 0
    command = ("bench", "-m", model, *SHORT, "--threads", 1, "--against", "vllm")
    outcome = cflow(*command)
    assert (outcome.code, "run `cflow baseline install vllm`" in outcome.err) == (2, True)
    make_environment(tmp_path / "baselines", avx512=False)
    outcome = cflow(*command, "--json")
    assert outcome.code == 0, outcome.err
    assert "no row for vllm int4" in outcome.err and "needs AVX-512" in outcome.err
    found = json.loads(outcome.out)
    assert [row["engine"] for row in found["rows"]] == ["cflow", "vllm int8", "vllm bf16"]
    int8 = found["rows"][1]
    assert int8["settings"]["kernels"] == ["MadeUpKernel", "plain"]
    assert int8["settings"]["closeness"]["positions"] == 4
    assert int8["weight_bytes_per_token"] < found["rows"][2]["weight_bytes_per_token"]
    assert [one["against"] for one in found["ratios"]] == ["vllm int8", "vllm bf16"]
    assert not any(one["same_weights"] for one in found["ratios"])
    outcome = cflow(*command)
    assert "the same values in another format" in outcome.out
    assert "kernels MadeUpKernel, plain; logits differ by" in outcome.err
