"""The table at the end of a run, on the stored sample of results."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

import harness
from claims.summary import table
from harness.results import Results

SAMPLE = Path(__file__).parents[1] / "data" / "results_sample"


@pytest.fixture(scope="module")
def results() -> Results:
    return harness.load(SAMPLE)


@pytest.mark.parametrize("width", [100, 140, 200])
def test_every_claim_has_its_verdict_and_lines_fit(results: Results, width: int) -> None:
    lines = table(results, width).splitlines()
    assert max(map(len, lines)) <= width
    for claim in results.claims:
        row = next(line for line in lines if line.split()[:1] == [claim["id"]])
        assert claim["verdict"] in row


def test_figures_stand_beside_the_paper(results: Results) -> None:
    lines = table(results, 160).splitlines()
    for claim in results.claims:
        deciding = [check for check in results.registry.checks_of(claim["id"]) if not check.beyond]
        chosen = next((c for c in deciding if results.verdict(c.id)[0] == claim["verdict"]), None)
        record = None if chosen is None else results.record(chosen.id)
        if record is not None and record["value"] is not None:
            row = next(line for line in lines if line.split()[:1] == [claim["id"]])
            assert f"{record['value']:.4g}" in row


def test_checks_beyond_the_paper_are_below_the_claims(results: Results) -> None:
    lines = table(results, 160).splitlines()
    shown = [c.id for c in results.registry.checks if c.beyond and c.first_screen and results.record(c.id)]
    first_words = [line.split()[0] for line in lines[1:] if line and not line.startswith(" ")]
    assert first_words == [claim["id"] for claim in results.claims] + shown


def test_a_title_with_markup_is_printed_as_it_is(results: Results) -> None:
    data = copy.deepcopy(dict(results.data))
    data["claims"][0]["title"] = "[bold]tiles[/bold]"
    marked = Results(results.directory, data, results.registry)
    assert "[bold]tiles[/bold]" in table(marked, 160)
    assert "\x1b" not in table(marked, 160)
