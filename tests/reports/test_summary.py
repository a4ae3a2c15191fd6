"""The answer in words."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from harness.results import Results
from reports import summary
from reports.model import BADGES, CheckView, ClaimView

Data = dict[str, Any]
Load = Callable[[Data], Results]
Record = Callable[[str], Data]


def claim(
    title: str, verdict: str, built: bool = True, ran: bool = True, missing: str = "", beyond: bool = False
) -> ClaimView:
    """A claim with nothing but its label, title and verdict, and one check that ran or did not.

    missing: verdict of a second check, which is beyond the paper or decides.
    """
    no_claim: dict[str, Any] = {field.name: "" for field in dataclasses.fields(ClaimView)}
    no_check: dict[str, Any] = {field.name: "" for field in dataclasses.fields(CheckView)}
    check = CheckView(
        **no_check | {"cells": (object(),) if ran else (), "badge": BADGES[verdict], "beyond": False}
    )
    other = [dataclasses.replace(check, badge=BADGES[missing], beyond=beyond)] if missing else []
    label = title if title.isdigit() else ""
    seen = {
        "label": label,
        "title": title,
        "badge": BADGES[verdict],
        "built": built,
        "checks": (check, *other),
    }
    return ClaimView(**no_claim | seen)


@pytest.mark.parametrize(
    ("verdicts", "words"),
    [
        ([], "This run holds no claims."),
        (
            [("1", "SUPPORTED", True)],
            "On this machine the paper\u2019s claim 1 is supported and none is refuted.",
        ),
        (
            [("3", "SUPPORTED", True), ("7", "SUPPORTED", True), ("6", "REFUTED", True)],
            "On this machine the paper\u2019s claims 3 and 7 are supported and claim 6 is refuted.",
        ),
        (
            [
                ("2", "INCONCLUSIVE", True),
                ("4", "NOT MEASURABLE HERE", True),
                ("5", "NOT MEASURABLE HERE", False),
            ],
            "On this machine no claim of the paper is decided: claim 2 is inconclusive, "
            "claim 4 cannot be measured here and claim 5 is not built yet.",
        ),
        (
            [("1", "SUPPORTED", True), ("Parity", "REFUTED", True)],
            "On this machine the paper\u2019s claim 1 is supported and none is refuted.",
        ),
        (
            [("1", "NOT MEASURABLE HERE", False), ("2", "NOT MEASURABLE HERE", False)],
            "On this machine no claim of the paper is decided: claims 1 and 2 are not built yet.",
        ),
    ],
)
def test_sentence(verdicts: list[tuple[str, str, bool]], words: str) -> None:
    assert summary.sentence([claim(*item) for item in verdicts]) == words


def test_a_claim_that_nobody_looked_at_is_not_called_inconclusive() -> None:
    claims = [claim("1", "REFUTED"), claim("2", "INCONCLUSIVE", ran=False)]
    said = "On this machine the paper\u2019s claim 1 is refuted and claim 2 was not measured in this run."
    assert summary.sentence(claims) == said


def test_what_has_no_number_is_told_beside() -> None:
    claims = [claim("1", "SUPPORTED"), claim("Parity", "SUPPORTED"), claim("End", "INCONCLUSIVE")]
    assert summary.beside(claims) == "\u201cParity\u201d is supported and \u201cEnd\u201d is inconclusive."
    assert summary.beside(claims[:1]) == ""


def test_support_by_some_of_the_checks_is_said() -> None:
    lost = "NOT MEASURABLE HERE"
    whole = [
        claim("1", "SUPPORTED"),
        claim("2", "SUPPORTED", missing="SUPPORTED"),
        claim("3", "SUPPORTED", missing=lost, beyond=True),
        claim("4", "REFUTED", missing=lost),
        claim("5", lost, missing=lost),
    ]
    assert summary.partial(whole) == ""
    some = [claim(name, "SUPPORTED", missing=lost) for name in ("6", "7", "Parity")]
    assert summary.partial([*whole, *some]) == (
        "Supported, though not every deciding check was measured: claims 6 and 7 and \u201cParity\u201d."
    )
    assert summary.partial(some[:1]).endswith("measured: claim 6.")


def test_why_figures_do_not_decide_is_counted(data: Data, load: Load) -> None:
    assert summary.undecided(load(data)) == (
        "Inconclusive is not refuted: of 1 timed figure that would decide, "
        "1 had an A/A control out of its bounds."
    )


def test_an_interval_that_reaches_over_an_end_is_told_apart(data: Data, load: Load, record: Record) -> None:
    summary_of = record("8.readahead")["cells"][0]["summary"]
    summary_of["a_a"], summary_of["reasons"] = [1.0, 1.001], []
    assert "1 had an interval that reaches over an end" in summary.undecided(load(data))
    summary_of["valid"], summary_of["void"] = 10, 12
    assert "1 lost too many rounds" in summary.undecided(load(data))
    summary_of["valid"], summary_of["void"], summary_of["reasons"] = 20, 0, ["medians of the two halves"]
    assert "1 drifted, or had another control" in summary.undecided(load(data))
    cell = record("8.readahead")["cells"][0]
    cell["evidence"]["interrupted"], summary_of["valid"] = True, 5
    said = summary.undecided(load(data))
    assert "1 ended early, as the run was interrupted." in said and "lost" not in said


def test_nothing_is_said_where_all_is_decided(data: Data, load: Load) -> None:
    data["checks"] = [item for item in data["checks"] if item["verdict"] != "INCONCLUSIVE"]
    assert summary.undecided(load(data)) == ""
