"""report.html: one self-contained page beside results.json."""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import harness
from harness import check
from harness.results import Results, write_atomically
from reports import history, view
from reports.environment import environment
from reports.history import Earlier
from reports.model import Report

FILE_NAME: Final = "report.html"
MAX_BYTES: Final = 4_500_000
"""A page at or above this size leaves out the tables of raw rounds, which results.json holds anyway."""


@functools.cache
def policy() -> str:
    """What a browser may do with the page: its own styles, its own script by hash, and nothing else."""
    script = environment().get_template("script.js.j2").render()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )


def to_html(report: Report) -> str:
    """The page of a view model. The same model always gives the same bytes."""
    return environment().get_template("report.html.j2").render(r=report, policy=policy())


def page(
    results: Results,
    checked: Mapping[str, Any],
    max_bytes: int = MAX_BYTES,
    earlier: Earlier = view.NO_RUNS,
) -> str:
    """The page of a run. Where it would reach max_bytes it leaves out the raw rounds and says so."""
    report = view.build(results, checked, earlier)
    full = to_html(report)
    if len(full.encode()) < max_bytes:
        return full
    return to_html(dataclasses.replace(report, raw=False))


def render(results_dir: Path | str) -> Path:
    """Writes report.html into a folder that holds results.json, atomically, and returns its path.

    Raises:
        harness.errors.ResultsError: results.json is missing or damaged.
        OSError: the page cannot be written.
    """
    directory = Path(results_dir)
    target = directory / FILE_NAME
    results = harness.load(directory)
    write_atomically(target, page(results, check.check(directory), earlier=history.earlier(results)))
    return target
