"""Sessions in random order under ThreadSanitizer: no data race, and every last call gives the right bits.

`tox -e tsan` builds the program and says where it is (CFLOW_RACES); elsewhere these tests are skipped.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from engine.geometry import Geometry
from tests.engine.models import write_random_model

FOLDER = os.environ.get("CFLOW_RACES")
pytestmark = [
    pytest.mark.no_sanitizer,
    pytest.mark.skipif(FOLDER is None, reason="CFLOW_RACES names no build with ThreadSanitizer: tox -e tsan"),
]
ROUNDS = 25
"""Of each of the two users of a model."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    folder = tmp_path_factory.mktemp("threads")
    names = {"moe": "tiny_arch2_4_combined", "shared": "tiny_arch5", "dense": "tiny_dense"}
    return {
        key: write_random_model(folder / f"{key}.cflow", Geometry.named(name), 3)
        for key, name in names.items()
    }


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", ["moe", "shared", "dense"])
def test_no_data_race(models: Mapping[str, Path], name: str, seed: int) -> None:
    done = subprocess.run(
        [f"{FOLDER}/cflow_stress", str(models[name]), str(seed), str(ROUNDS)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=550,
    )
    assert "ThreadSanitizer" not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr
    counts = re.fullmatch(
        r"rounds (\d+) calls \d+ cancelled (\d+) failed \d+ ended (\d+) right (\d+)", done.stdout.strip()
    )
    assert counts is not None, done.stdout
    rounds, cancelled, ended, right = map(int, counts.groups())
    # Less than all where a reader is refused.
    assert ROUNDS < rounds <= 2 * ROUNDS
    assert ended + right == rounds
    assert cancelled > 0 and ended > 0
