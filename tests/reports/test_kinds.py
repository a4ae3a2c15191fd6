"""Evidence by kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.results import Results
from reports import kinds
from reports.checks import check_view

Data = dict[str, Any]
Load = Callable[[Data], Results]


def columns(results: Results, claim_id: str) -> Any:
    """The columns of a claim."""
    declared = results.registry.checks_of(claim_id)
    claim = results.registry.claim(claim_id)
    return kinds.columns(declared, [check_view(results, check, claim) for check in declared])


def test_every_check_stands_in_one_column_and_row(data: Data, load: Load) -> None:
    results = load(data)
    for claim in results.registry.claims:
        found = columns(results, claim.id)
        ids = [item.id for column in found for item in (*column.deciding, *column.beyond)]
        assert sorted(ids) == sorted(check.id for check in results.registry.checks_of(claim.id))
        beyond = {check.id for check in results.registry.checks_of(claim.id) if check.beyond}
        assert {item.id for column in found for item in column.beyond} == beyond


def test_kinds_come_in_one_order_with_the_figure_of_each_check(data: Data, load: Load) -> None:
    found = columns(load(data), "2")
    assert [column.kind for column in found] == ["simulated", "hardware"]
    (simulated,), (hardware, absent) = (column.deciding for column in found)
    assert (simulated.id, simulated.figure, simulated.badge.word) == (
        "2.l1.simulated",
        "7.68\u00d7",
        "SUPPORTED",
    )
    assert hardware.figure == "7.29\u00d7"
    assert (absent.id, absent.figure, absent.badge.word) == ("2.dtlb.hardware", "", "NOT MEASURABLE HERE")


def test_what_did_not_run_stands_under_the_kind_that_would_count(data: Data, load: Load) -> None:
    data["checks"] = []
    for claim in (results := load(data)).registry.claims:
        for column in columns(results, claim.id):
            for item in (*column.deciding, *column.beyond):
                assert column.kind == results.registry.check(item.id).kinds[0] and item.figure == ""
