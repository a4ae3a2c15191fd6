"""Two ways of being wrong without waiting less: each must show in the logits."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from engine.geometry import Geometry
from engine.model import Model
from engine.native import build_info, other_library
from tests.engine.experts import State, prompt_of
from tests.engine.models import write_random_model
from tools.build_engine import build_engine

pytestmark = pytest.mark.no_sanitizer
# Twice as slow as the computation, so that nothing is there before it is waited for.
RATES = [0, 20_000_000]


@pytest.fixture(scope="module")
def build_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mutants") / "build"


@pytest.mark.parametrize("mutant", ["read_consumed_early", "wrong_expert_read"])
def test_wrong_reads_give_wrong_logits(tmp_path: Path, build_dir: Path, mutant: str) -> None:
    built = build_engine(build_dir, {"CFLOW_MUTANT": mutant}, target="cflow", fresh=False)
    # Under a name of its own: a process does not load two libraries of one path.
    library = Path(shutil.copy(built, tmp_path / f"{mutant}{built.suffix}"))
    path = write_random_model(tmp_path / "m.cflow", Geometry.named("tiny_arch2_4_combined"), seed=3)
    with Model(path) as model:
        prompt = prompt_of(model, 6)
        expected = State(model, prompt)
        for rate in RATES:
            for reads in ("staged", "sync"):
                State(model, prompt, residency="direct", expert_reads=reads, read_rate=rate).assert_equal(
                    expected
                )
    with other_library(library), Model(path) as model:
        assert build_info().endswith(f"mutant {mutant}")
        State(model, prompt).assert_equal(expected)  # nothing else is wrong
        for rate in RATES:
            for reads in ("staged", "sync"):
                state = State(model, prompt, residency="direct", expert_reads=reads, read_rate=rate)
                assert not np.array_equal(state.logits, expected.logits)
