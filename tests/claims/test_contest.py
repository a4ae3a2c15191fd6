"""Which engines share rounds, that rounds are measured once, and what becomes of an engine that fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from baselines.errors import BaselineError
from baselines.install import LLAMACPP, VLLM
from baselines.llamacpp import Followed
from claims import contest, contest_arms, contest_vllm
from claims.contest import (
    DENSE,
    GROUPS,
    LLAMACPP_DENSE,
    LLAMACPP_OWN,
    LLAMACPP_SAME_MOE,
    MOE,
    MOE_MAPPED,
    OWN,
    SAME_MOE,
    VLLM_DENSE,
    VLLM_OWN,
    Contest,
    byte_lead,
    lead,
    tokens_per_s,
)
from claims.contest_models import MODELS
from claims.run import ClaimsRun
from engine.errors import MemoryExhaustedError
from engine.hf_forms import HfForm
from harness.kinds import PROFILE_NAMES
from harness.profiles import profile
from harness.rounds import Timed
from harness.statistics import MIN_ROUNDS
from harness.verdict import NotMeasurable
from tests.claims.fake_bench import opener
from tests.claims.fake_llamacpp import FakeLlamaCpp
from tests.claims.fake_vllm_cpu import FakeVllmCpu
from tests.engine.gguf_files import LlamaGguf


class Run:
    """What a contest asks of a run."""

    profile = "smoke"
    threads = 1

    def __init__(self, folder: Path) -> None:
        self.cache = folder / "models"
        self.out = folder / "run"

    def rounds(self, check_id: str) -> int:
        """As few as can decide."""
        return MIN_ROUNDS

    def progress(self, label: str = "") -> None:
        """Nothing is shown."""


class Fake(FakeLlamaCpp):
    """Dies in the turns that a test says, counted over all of its processes."""

    turns = 0
    dying: frozenset[int] = frozenset()

    def follow(self, tokens: Any) -> Followed:
        kind = type(self)
        kind.turns += 1
        if kind.turns in kind.dying:
            raise BaselineError("llama.cpp: follow: the worker died (Killed)", ("its last words",))
        return super().follow(tokens)

    def close(self) -> None:
        self.__exit__()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("contest")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[Fake]:
    kind = type("Fresh", (Fake,), {"loads": [], "turns": 0})
    monkeypatch.setattr(contest_arms, "LlamaCpp", kind)
    monkeypatch.setattr(contest, "installed", lambda name: Path("/somewhere"))
    return kind


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    found: list[tuple[int, bool]] = []
    monkeypatch.setattr(contest, "open_bench", opener(1, found))
    return found


@pytest.fixture
def made(models: Path, fake: type[Fake], asked: list[tuple[int, bool]]) -> Contest:
    return Contest(cast(ClaimsRun, Run(models)))


def rounds(found: Timed | NotMeasurable) -> Timed:
    assert isinstance(found, Timed), found
    return found


@pytest.mark.parametrize("name", PROFILE_NAMES)
def test_every_figure_of_the_checks_has_rounds_or_is_of_another_profile(name: str) -> None:
    pairs = [(MOE, LLAMACPP_DENSE), (DENSE, LLAMACPP_DENSE), (MOE, DENSE), (SAME_MOE, LLAMACPP_SAME_MOE)]
    for pair in pairs:
        assert any(set(pair) <= set(group) for group in GROUPS[name]), pair
    assert any(MOE_MAPPED in group for group in GROUPS[name]) == (name == "paper")


@pytest.mark.parametrize("name", PROFILE_NAMES)
def test_the_engines_of_a_group_fit_the_memory_of_the_profile_together(name: str) -> None:
    models = MODELS[name]
    shapes = {MOE: models.moe, MOE_MAPPED: models.moe, SAME_MOE: models.same_moe}
    shapes |= {LLAMACPP_SAME_MOE: models.same_moe, DENSE: models.dense, LLAMACPP_DENSE: models.dense}
    for group in GROUPS[name]:
        if not {OWN, VLLM_OWN} & {*group} and not {*VLLM_DENSE.values()} & {*group}:
            size = sum(shapes[arm].geometry.parameters * 0.5625 for arm in group)
            assert size < 0.9 * profile(name).ram_bytes, group


def test_rounds_are_measured_once_and_lent_to_the_checks_that_follow(
    made: Contest, fake: type[Fake], asked: list[tuple[int, bool]]
) -> None:
    first = rounds(made.view("e2e.ranking", "the lead", lead(MOE, LLAMACPP_DENSE)))
    turns = fake.turns
    later = rounds(made.view("e2e.tokens", "dense", tokens_per_s(DENSE)))
    assert fake.turns == turns and asked == [(1, True)]
    assert first.rounds_of is None and later.rounds_of is not None
    assert (later.rounds_of.check, later.rounds_of.cell) == ("e2e.ranking", "the lead")
    assert later.rounds is first.rounds and later.inputs == first.inputs
    assert {arm.name for arm in first.arms if arm.control_of is None} == {MOE, DENSE, LLAMACPP_DENSE}
    assert first.inputs[f"model of {MOE}"] != first.inputs[f"model of {DENSE}"]
    assert first.inputs[f"model of {DENSE}"] == first.inputs[f"model of {LLAMACPP_DENSE}"]
    assert first.inputs["llama.cpp tokens equal to ours"] is True


def test_in_every_round_the_lead_is_the_model_times_the_engine(made: Contest) -> None:
    whole = rounds(made.view("e2e.decomposition", "lead", lead(MOE, LLAMACPP_DENSE)))
    model, engine = lead(MOE, DENSE), lead(DENSE, LLAMACPP_DENSE)
    per_byte = byte_lead(MOE, LLAMACPP_DENSE)
    for one in whole.rounds:
        product = model.of(one.samples, None) * engine.of(one.samples, None)
        assert product == pytest.approx(whole.figure.of(one.samples, None))
        ours, theirs = (one.samples[arm].sample for arm in (MOE, LLAMACPP_DENSE))
        fewer = (theirs.bytes / theirs.work) / (ours.bytes / ours.work)
        assert fewer * per_byte.of(one.samples, None) == pytest.approx(whole.figure.of(one.samples, None))


def test_the_same_weights_on_both_sides(made: Contest) -> None:
    found = rounds(made.view("e2e.same_moe", "", lead(SAME_MOE, LLAMACPP_SAME_MOE)))
    one = found.rounds[0].samples
    assert one[SAME_MOE].sample.work == one[LLAMACPP_SAME_MOE].sample.work
    assert one[LLAMACPP_SAME_MOE].sample.bytes == pytest.approx(one[SAME_MOE].sample.bytes, rel=0.05)


def test_without_llamacpp_our_own_rows_stay(
    made: Contest, monkeypatch: pytest.MonkeyPatch, fake: type[Fake]
) -> None:
    monkeypatch.setattr(contest, "installed", lambda name: None)
    missing = made.view("e2e.tokens", "theirs", tokens_per_s(LLAMACPP_DENSE))
    assert missing == NotMeasurable("llama.cpp is not installed: run `cflow baseline install llama.cpp`")
    ours = rounds(made.view("e2e.tokens", "ours", tokens_per_s(MOE)))
    assert {arm.name for arm in ours.arms if arm.control_of is None} == {MOE, DENSE}
    assert fake.turns == 0


def test_an_engine_that_dies_once_costs_a_round(made: Contest, fake: type[Fake], models: Path) -> None:
    fake.dying = frozenset({20})
    found = rounds(made.view("e2e.ranking", "the lead", lead(MOE, LLAMACPP_DENSE)))
    assert [void.arm for one in found.rounds for void in one.void if void.rule == "engine_failed"] == [
        LLAMACPP_DENSE
    ]
    assert len(found.rounds) >= 12
    (log,) = (models / "run" / "logs").iterdir()
    assert "its last words" in log.read_text()
    log.unlink()


def test_an_engine_that_keeps_dying_ends_the_check_by_name(made: Contest, fake: type[Fake]) -> None:
    fake.dying = frozenset(range(12, 1000))
    found = made.view("e2e.ranking", "the lead", lead(MOE, LLAMACPP_DENSE))
    assert isinstance(found, NotMeasurable)
    assert found.reason.startswith(f"{LLAMACPP_DENSE} failed") and "logs: " in found.reason
    turns = fake.turns
    assert made.view("e2e.decomposition", "lead", lead(MOE, LLAMACPP_DENSE)) == found
    assert fake.turns == turns, "what failed is not tried again by the next check"


def test_another_function_is_no_baseline(made: Contest, fake: type[Fake]) -> None:
    fake.shuffled = True
    found = made.view("e2e.ranking", "the lead", lead(MOE, LLAMACPP_DENSE))
    assert isinstance(found, NotMeasurable) and "computes something else" in found.reason


def test_memory_that_is_not_there_is_told(made: Contest, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise MemoryExhaustedError("4,700 MB of memory cannot be had")

    monkeypatch.setattr(contest, "open_ours", refuse)
    found = made.view("e2e.ranking", "the lead", lead(MOE, LLAMACPP_DENSE))
    assert found == NotMeasurable("4,700 MB of memory cannot be had")


def test_what_another_profile_measures_is_said(made: Contest) -> None:
    found = made.view("e2e.speed_30b", "tokens per second", tokens_per_s(MOE_MAPPED))
    assert found == NotMeasurable("not part of profile smoke")


def test_rounds_that_were_not_recorded_are_measured_again(made: Contest, fake: type[Fake]) -> None:
    made.view("e2e.ranking", "the lead", lead(MOE, LLAMACPP_DENSE))
    turns = fake.turns
    key = next(iter(made._kept))
    made._kept[key] = replace(made._kept[key], owner=None)
    made.view("e2e.tokens", "ours", tokens_per_s(MOE))
    assert fake.turns > turns


def test_a_file_of_the_users_own(
    models: Path, fake: type[Fake], asked: list[tuple[int, bool]], tmp_path: Path
) -> None:
    gguf = LlamaGguf(d_model=256, hidden=512).write(tmp_path / "mine.gguf")
    found = rounds(Contest(cast(ClaimsRun, Run(models)), gguf).view("e2e.own", "", lead(OWN, LLAMACPP_OWN)))
    assert found.inputs[f"model of {OWN}"] == "mine.gguf"
    without = Contest(cast(ClaimsRun, Run(models))).view("e2e.own", "", lead(OWN, LLAMACPP_OWN))
    assert without == NotMeasurable("no file was given: --gguf FILE")


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> type[FakeVllmCpu]:
    kind = type("Fresh", (FakeVllmCpu,), {"loads": []})
    monkeypatch.setattr(contest_vllm, "VllmCpu", kind)
    return kind


def test_vllm_runs_the_dense_model_in_a_form_of_its_own(
    made: Contest, vllm: type[FakeVllmCpu], models: Path
) -> None:
    arm = VLLM_DENSE[HfForm.BF16]
    found = rounds(made.view("e2e.ranking", "theirs", lead(LLAMACPP_DENSE, arm)))
    assert {one.name for one in found.arms if one.control_of is None} == {LLAMACPP_DENSE, arm}
    assert found.inputs["vLLM kernels"] == "FakeKernel" and found.inputs["vLLM form"] == "bf16"
    assert found.inputs[f"model of {arm}"] == found.inputs[f"model of {LLAMACPP_DENSE}"]
    sample = found.rounds[0].samples[arm].sample
    assert sample.work == contest_vllm.TOKENS["smoke"]
    # Two bytes a weight, where q4_0 has 0.5625.
    ours = found.rounds[0].samples[LLAMACPP_DENSE].sample
    ratio = (sample.bytes / sample.work) / (ours.bytes / ours.work)
    assert ratio == pytest.approx(2 / 0.5625, rel=0.02)
    (folder,) = vllm.loads
    assert not folder.parent.exists(), "its weights are gone"
    assert [path for path in (models / "models").iterdir() if path.is_dir()] == []


def test_a_form_without_a_kernel_is_named_and_the_others_run(
    made: Contest, vllm: type[FakeVllmCpu], monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoKernel(FakeVllmCpu):
        def __init__(self, folder: Path, **settings: int) -> None:
            raise BaselineError("vllm: int4 needs AVX-512")

    monkeypatch.setattr(contest_vllm, "VllmCpu", NoKernel)
    found = made.view("e2e.ranking", "theirs", lead(LLAMACPP_DENSE, VLLM_DENSE[HfForm.BF16]))
    assert isinstance(found, NotMeasurable) and "int4 needs AVX-512" in found.reason
    rounds(made.view("e2e.ranking", "the lead", lead(MOE, LLAMACPP_DENSE)))


def test_int4_without_avx512_starts_nothing(
    models: Path, fake: type[Fake], vllm: type[FakeVllmCpu], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(models)
    monkeypatch.setattr(run, "profile", "quick", raising=False)
    monkeypatch.setattr(contest, "isa_supported", lambda isa: False)
    found = Contest(cast(ClaimsRun, run)).view("e2e.tokens", "", tokens_per_s(VLLM_DENSE[HfForm.INT4]))
    assert found == NotMeasurable("vLLM's int4 kernel needs AVX-512, which this CPU has not")
    assert (fake.turns, vllm.loads) == (0, [])


def test_without_vllm_its_rows_say_how_to_get_it(made: Contest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contest, "installed", lambda name: None)
    found = made.view("e2e.tokens", "theirs", tokens_per_s(VLLM_DENSE[HfForm.BF16]))
    assert found == NotMeasurable("vLLM is not installed: run `cflow baseline install vllm`")


def test_a_folder_of_the_users_own(
    models: Path, fake: type[Fake], vllm: type[FakeVllmCpu], asked: list[tuple[int, bool]], tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text("{}")
    own = Contest(cast(ClaimsRun, Run(models)), own_folder=tmp_path / "mine")
    found = rounds(own.view("e2e.own", "", tokens_per_s(VLLM_OWN)))
    assert found.inputs[f"model of {VLLM_OWN}"] == "mine"
    assert (tmp_path / "mine" / "config.json").exists()
    without = Contest(cast(ClaimsRun, Run(models))).view("e2e.own", "", tokens_per_s(VLLM_OWN))
    assert without == NotMeasurable("no folder was given: --hf DIR")


def test_names_begin_with_their_engine() -> None:
    for name in (LLAMACPP_DENSE, LLAMACPP_SAME_MOE, LLAMACPP_OWN):
        assert contest._engine(name) == LLAMACPP
    for name in (*VLLM_DENSE.values(), VLLM_OWN):
        assert contest._engine(name) == VLLM
    for name in (MOE, DENSE, SAME_MOE, OWN):
        assert contest._engine(name) == contest.OURS
