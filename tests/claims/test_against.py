"""Our engine beside another: with one that is our own under llama.cpp's interface, and with the real one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from baselines.install import LLAMACPP, installed
from claims import against, tuning
from claims.against import FOR_PROMPTS, OURS, REPACK_OFF, NoBaselineError, Request, measure
from claims.models import from_gguf
from engine.errors import ContextError
from engine.model import Model
from tests.claims.fake_bench import opener
from tests.claims.fake_llamacpp import FakeLlamaCpp
from tests.engine.gguf_files import LlamaGguf

REQUEST = Request(tokens=6, prompt=5, rounds=1)


class Fake(FakeLlamaCpp):
    """Fresh for every test."""


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[Fake]:
    kind = type("Fresh", (Fake,), {"loads": []})
    monkeypatch.setattr(against, "LlamaCpp", kind)
    return kind


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    found: list[tuple[int, bool]] = []
    monkeypatch.setattr(against, "open_bench", opener(10**6, found))
    return found


@pytest.fixture(scope="module", params=[0, 4], ids=["dense", "experts"])
def gguf(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("against")
    return LlamaGguf(d_model=256, hidden=512, experts=request.param).write(folder / "m.gguf")


@pytest.fixture
def model(gguf: Path) -> Iterator[Model]:
    with Model(from_gguf(gguf.parent, gguf)) as opened:
        yield opened


def test_our_engine_alone(model: Model, asked: list[tuple[int, bool]]) -> None:
    found = measure(model, REQUEST, 1)
    assert found.ratios == ()
    (row,) = found.rows
    assert (row.engine, row.threads) == (OURS, 1)
    assert row.rounds + row.void >= 2
    assert row.weight_bytes_per_token > 0
    assert row.streams_ns_per_token is not None and sum(row.streams_ns_per_token.values()) > 0
    told = row.settings
    assert (told["tokens"], told["prompt"]["tokens"], told["prompt"]["source"]) == (6, 5, "text")
    assert told["roof_before_bytes_per_s"] == told["roof_after_bytes_per_s"] == 1e15
    assert told["warm_up"]["runs"] >= 2
    assert asked == [(1, False)]


def test_copied_weights_lie_on_huge_pages(model: Model, asked: list[tuple[int, bool]]) -> None:
    measure(model, replace(REQUEST, options={"residency": "copy"}), 1)
    assert asked == [(1, True)]


@pytest.mark.parametrize(("residency", "huge_mib"), [("copy", 1.0), ("mmap", 0.0)])
def test_both_engines_get_the_same_pages(
    gguf: Path, model: Model, fake: type[Fake], asked: list[tuple[int, bool]], residency: str, huge_mib: float
) -> None:
    fake.repack_mib = 1.0
    found = measure(model, replace(REQUEST, options={"residency": residency}), 1, gguf)
    theirs = [row.settings for row in found.rows if row.engine != OURS]
    assert [settings["huge_pages_mib"] for settings in theirs] == [huge_mib] * len(theirs)
    # What it does not repack would stay on the small pages of its mapping.
    assert {load["mmap"] for load in fake.loads} == {residency == "mmap"}


def test_settings_that_are_better_for_the_prompt_get_a_row(
    model: Model, gguf: Path, fake: type[Fake], asked: list[tuple[int, bool]]
) -> None:
    fake.prompt_slower = 1.5
    found = measure(model, REQUEST, 1, gguf)
    assert [row.engine for row in found.rows] == [OURS, LLAMACPP, FOR_PROMPTS]
    assert [row.settings.get("flash_attention") for row in found.rows] == [None, True, False]
    assert [one.against for one in found.ratios] == [LLAMACPP] * 2 + [FOR_PROMPTS] * 2


@pytest.mark.parametrize(("prompt_ns", "found"), [(90.0, True), (99.0, None), (110.0, None)])
def test_what_is_worth_other_settings_for_the_prompt(prompt_ns: float, found: bool | None) -> None:
    on, off = tuning.Settings(1, True), tuning.Settings(1, False)
    chosen = tuning.for_prompts([tuning.Tried(off, 1.0, 100.0), tuning.Tried(on, 2.0, prompt_ns)])
    assert (chosen and chosen.flash_attention) == found


def test_rows_and_ratios_beside_another_engine(
    model: Model, gguf: Path, fake: type[Fake], asked: list[tuple[int, bool]]
) -> None:
    found = measure(model, REQUEST, 1, gguf)
    assert [row.engine for row in found.rows] == [OURS, LLAMACPP]
    ours, theirs = found.rows
    assert theirs.isa == "fake"
    assert theirs.weight_bytes_per_token == pytest.approx(ours.weight_bytes_per_token, rel=0.05)
    assert [(one.against, one.what, one.tokens_equal) for one in found.ratios] == [
        (LLAMACPP, "decode", True),
        (LLAMACPP, "prompt", True),
    ]
    told = theirs.settings
    assert [tried["flash_attention"] for tried in told["tuning"]] in ([True, False], [False, True])
    assert told["agreement"]["tokens_equal"] is True
    assert told["agreement"]["positions"] == 7
    assert fake.slept > 0
    assert [load["flash_attention"] for load in fake.loads[:2]] == [True, False]
    assert fake.loads[2]["flash_attention"] == told["tuning"][0]["flash_attention"]
    assert all(load["cpus"] == ours.settings["cpus"] for load in fake.loads)


def test_repacking_off_is_shown_where_it_is_on(
    model: Model, gguf: Path, fake: type[Fake], asked: list[tuple[int, bool]]
) -> None:
    fake.repack_mib = 1.0
    found = measure(model, REQUEST, 1, gguf)
    assert [row.engine for row in found.rows] == [OURS, LLAMACPP, REPACK_OFF]
    assert [row.settings.get("repack_mib") for row in found.rows] == [None, 1.0, 0.0]
    assert [one.against for one in found.ratios] == [LLAMACPP, LLAMACPP, REPACK_OFF, REPACK_OFF]


def test_an_engine_that_computes_something_else_is_no_baseline(
    model: Model, gguf: Path, fake: type[Fake], asked: list[tuple[int, bool]]
) -> None:
    fake.shuffled = True
    with pytest.raises(NoBaselineError, match="computes something else") as caught:
        measure(model, REQUEST, 1, gguf)
    assert caught.value.agreement.fault() is not None
    assert asked == []  # before anything is timed


def test_a_choice_that_is_no_tie_is_reported_with_both_logits(
    model: Model, gguf: Path, fake: type[Fake], asked: list[tuple[int, bool]]
) -> None:
    fake.nudge = 3.0
    with pytest.raises(NoBaselineError) as caught:
        measure(model, REQUEST, 1, gguf)
    first = caught.value.agreement.divergences[0]
    assert first.position == 0
    assert first.their_logits[1] == pytest.approx(first.our_logits[1] + 3.0, abs=1e-5)
    assert first.their_logits[0] == pytest.approx(first.our_logits[0], abs=1e-5)


def test_too_long_for_the_context(model: Model) -> None:
    with pytest.raises(ContextError, match="positions"):
        measure(model, replace(REQUEST, tokens=model.context), 1)


def test_an_interrupted_run_ends(
    model: Model, asked: list[tuple[int, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_pairs = against.run_pairs
    monkeypatch.setattr(against, "run_pairs", lambda *a, **k: replace(run_pairs(*a, **k), interrupted=True))
    with pytest.raises(KeyboardInterrupt):
        measure(model, REQUEST, 1)


def test_sweep() -> None:
    assert tuning.candidates(2, False) == [tuning.Settings(2, True), tuning.Settings(2, False)]
    every = tuning.candidates(2, True)
    assert len(set(every)) == len(every) == 12
    assert {one.threads for one in every} == {1, 2}
    assert {one.poll for one in every} == {0, 50, 100}


def test_the_real_one(gguf: Path, model: Model, asked: list[tuple[int, bool]]) -> None:
    if installed(LLAMACPP) is None:
        pytest.skip("llama.cpp is not installed: cflow baseline install llama.cpp")
    before = threading.active_count()
    found = measure(model, REQUEST, 1, gguf)
    rows = {row.engine: row for row in found.rows}
    assert rows[LLAMACPP].settings["version"]
    assert rows[LLAMACPP].prompt_tok_per_s > 0
    assert (REPACK_OFF in rows) == (rows[LLAMACPP].settings["repack_mib"] > 0)
    assert found.ratios[0].rounds + found.ratios[0].void > 0

    assert threading.active_count() == before
