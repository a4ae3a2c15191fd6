"""Fixtures of the harness tests."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness.make_sample import SAMPLE_DIR

Edit = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="session")
def sample_data() -> dict[str, Any]:
    """The sample results, as plain data. Do not change it: copy it."""
    loaded: dict[str, Any] = json.loads((SAMPLE_DIR / "results.json").read_text(encoding="utf-8"))
    return loaded


@pytest.fixture
def edited(sample_data: dict[str, Any], tmp_path: Path) -> Callable[[Edit], Path]:
    """Writes an edited copy of the sample results and returns its folder."""

    def write(edit: Edit) -> Path:
        data = copy.deepcopy(sample_data)
        edit(data)
        (tmp_path / "results.json").write_text(json.dumps(data), encoding="utf-8")
        return tmp_path

    return write
