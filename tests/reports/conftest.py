"""Runs to render: the sample of tests/data, changed as a test needs."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import harness
from harness.check import check
from harness.results import Results
from reports.render import page

SAMPLE = Path(__file__).parents[1] / "data" / "results_sample" / "results.json"

Data = dict[str, Any]


@pytest.fixture
def data() -> Data:
    """results.json of the sample, free to be changed."""
    loaded: Data = json.loads(SAMPLE.read_text(encoding="utf-8"))
    return copy.deepcopy(loaded)


@pytest.fixture
def load(tmp_path: Path) -> Callable[[Data], Results]:
    """Writes data as a run and loads it."""

    def write(data: Data) -> Results:
        folder = tmp_path / "20260101T000000Z-host"
        folder.mkdir(exist_ok=True)
        (folder / "results.json").write_text(json.dumps(data), encoding="utf-8")
        return harness.load(folder)

    return write


@pytest.fixture
def html(load: Callable[[Data], Results]) -> Callable[[Data], str]:
    """The page of data."""

    def rendered(data: Data) -> str:
        results = load(data)
        return page(results, check(results.directory))

    return rendered


@pytest.fixture
def record(data: Data) -> Callable[[str], Data]:
    """The record of a check in `data`."""

    def find(check_id: str) -> Data:
        found: Data = next(item for item in data["checks"] if item["id"] == check_id)
        return found

    return find


@pytest.fixture(scope="session")
def sample_page() -> str:
    """The page of the unchanged sample."""
    results = harness.load(SAMPLE.parent)
    return page(results, check(results.directory))
