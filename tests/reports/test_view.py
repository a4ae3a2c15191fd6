"""From results to the view model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.check import check
from harness.results import Results
from reports import checks, exact, panels, state, view
from reports.model import BADGES, RECORDED

Data = dict[str, Any]
Load = Callable[[Data], Results]
Record = Callable[[str], Data]


def build(results: Results) -> Any:
    """The view model of a run."""
    return view.build(results, check(results.directory))


def test_headline_carries_the_verdict_of_its_claim(data: Data, load: Load, record: Record) -> None:
    refuted = record("7.traffic")
    refuted["verdict"] = "REFUTED"
    next(item for item in data["claims"] if item["id"] == "7")["verdict"] = "REFUTED"
    claims = {item.id: item for item in build(load(data)).claims}
    assert claims["7"].headline.id == "7.traffic"
    assert claims["2"].headline.id == "2.l1.simulated"
    assert claims["4"].headline is None and claims["4"].reason == "Not built yet"


def test_a_check_beyond_the_paper_is_never_a_headline(data: Data, load: Load) -> None:
    for item in build(load(data)).claims:
        assert item.headline is None or not item.headline.beyond


def test_a_check_without_record_says_why(data: Data, load: Load) -> None:
    item = next(c for c in build(load(data)).claims if c.id == "7").checks[-1]
    assert (item.id, item.badge, item.reason) == ("7.overlap", BADGES["NOT MEASURABLE HERE"], "Not built yet")
    assert item.number.target == "at least 1.2×" and item.number.paper == "1.68×" and item.number.value == ""
    assert item.repeat == "pytest claims/ --only 7.overlap --profile quick"


def test_cells_have_a_row_each(data: Data, load: Load) -> None:
    shown = next(c for c in build(load(data)).claims if c.id == "7")
    time = next(k for k in shown.checks if k.id == "7.time")
    assert [row.cells[:3] for row in time.cell_table.rows] == [
        ("1 thread", "REFUTED", "1.012×"),
        ("all threads", "SUPPORTED", "1.059×"),
    ]
    assert time.quantity == "tok/s, (1,2) over (0,0), 1 thread"
    assert next(k for k in shown.checks if k.id == "7.law").quantity.endswith("(0,0) over (1,2)")


def test_rows_without_rounds_show_the_interval_that_they_have(data: Data, load: Load, record: Record) -> None:
    law = record("7.law")
    assert len(law["cells"]) > 1

    def columns() -> list[str]:
        shown = next(c for c in build(load(data)).claims if c.id == "7")
        table = next(k for k in shown.checks if k.id == "7.law").cell_table
        assert all(len(row.cells) == len(table.columns) for row in table.rows)
        return [column.name for column in table.columns]

    assert "Interval" not in columns()
    law["cells"][0] |= {"low": law["cells"][0]["value"] - 1, "high": law["cells"][0]["value"] + 1}
    assert "Interval" in columns()
    assert "Rounds" not in columns()


def test_the_cell_that_decides_stands_for_its_check(data: Data, load: Load, record: Record) -> None:
    time = record("7.time")
    assert [cell["verdict"] for cell in time["cells"]] == ["REFUTED", "SUPPORTED"]
    time["cells"][0]["verdict"] = "SUPPORTED"
    time["cells"][1]["verdict"] = "REFUTED"
    shown = next(c for c in build(load(data)).claims if c.id == "7")
    found = next(k for k in shown.checks if k.id == "7.time")
    assert found.number == found.cells[1].number
    assert found.quantity == "tok/s, (1,2) over (0,0), all threads"
    assert found.cell_table.title == "2 rows; \u201call threads\u201d stands for the check"


def test_an_interrupted_attempt_is_told(data: Data, load: Load, record: Record) -> None:
    hint = record("6.hint")
    rounds = len(hint["cells"][0]["evidence"]["rounds"])
    data["interrupted"] = [hint]
    claims = {item.id: item for item in build(load(data)).claims}
    (found,) = (k for k in claims["6"].checks if k.id == "6.hint")
    assert len(found.earlier) == 1 and f"after {rounds} rounds" in found.earlier[0]
    assert all(k.earlier == () for k in claims["7"].checks)


def test_recorded_has_a_badge_of_its_own(data: Data, load: Load) -> None:
    shown = next(c for c in build(load(data)).claims if c.id == "3")
    regime = next(k for k in shown.checks if k.id == "0.regime")
    assert regime.recorded and regime.badge is RECORDED and regime.number.target == "none, recorded only"


def test_every_verdict_has_its_own_shape_and_word() -> None:
    badges = [*BADGES.values(), RECORDED]
    for field in ("word", "slug", "glyph"):
        assert len({getattr(badge, field) for badge in badges}) == len(badges)


def test_forest_holds_every_timed_ratio_once(data: Data, load: Load) -> None:
    forest = panels.forest(load(data))
    assert forest is not None
    near, far = forest.groups
    assert [row.detail for row in near.rows] == [
        "6.hint",
        "7.time · 1 thread · beyond the paper",
        "7.time · all threads · beyond the paper",
        "8.readahead",
    ]
    assert [row.detail for row in far.rows] == ["3.speedup"]
    for group in forest.groups:
        assert "1" in {tick.label.rstrip("0").rstrip(".") for tick in group.axis.ticks}
        for row in group.rows:
            assert row.mark.low <= row.mark.point <= row.mark.high
            assert row.value in row.alt and row.interval in row.alt
    hint = near.rows[0]
    assert hint.mark.paper == hint.mark.one and "the paper: 1×" in hint.alt
    assert len(forest.table.rows) == 5


def test_no_forest_without_timed_ratios(data: Data, load: Load) -> None:
    data["checks"] = [item for item in data["checks"] if item["kind"] != "timed"]
    assert panels.forest(load(data)) is None


def test_byte_figures_of_claim_7_stand_in_panels_by_kind(data: Data, load: Load, record: Record) -> None:
    evidence = record("7.traffic")["cells"][0]["evidence"]
    evidence["observations"] = {"at_0_0_bytes": [2**23, 2**23, 2**19], "at_1_2_bytes": 17301504}
    evidence["reduction"]["of"] = ["at_1_2_bytes", "at_0_0_bytes"]
    record("7.law")["cells"][2]["unit"] = "MiB/token"
    shown = next(c for c in build(load(data)).claims if c.id == "7").chart
    assert [bar.label for bar in shown.panels[2].bars] == ["at (1, 2)", "at (0, 0)"]
    assert [(panel.kind, panel.figure, [bar.text for bar in panel.bars]) for panel in shown.panels] == [
        ("derived", "2.00×", ["9.00\u00a0MiB", "4.50\u00a0MiB"]),
        ("counted", "1.33×", ["12.00\u00a0MiB", "9.00\u00a0MiB"]),
        ("counted", "1.00×", ["16.50\u00a0MiB", "16.50\u00a0MiB"]),
    ]
    law, path, traffic = (panel.bars for panel in shown.panels)
    assert law[0].length == path[1].length and law[0].paper == law[0].length
    assert traffic[0].length > path[0].length
    assert len(shown.table.rows) == 6


def test_no_bar_chart_of_a_single_check(data: Data, load: Load) -> None:
    data["checks"] = [item for item in data["checks"] if item["id"] != "7.path"]
    assert next(c for c in build(load(data)).claims if c.id == "7").chart is None


def test_checker_view() -> None:
    fine, one = (view.checker_view({"problems": []}, recorded) for recorded in (2, 1))
    assert fine.agrees and "the 2 recorded checks again" in fine.summary
    assert "the 1 recorded check again" in one.summary
    problems = [{"check": "7.law", "problem": "edited"}, {"check": None, "problem": "hash"}]
    bad = view.checker_view({"problems": problems}, 2)
    assert not bad.agrees and "2 problems" in bad.summary and bad.problems == ("7.law: edited", "hash")


def test_commit_says_dirty(data: Data, load: Load) -> None:
    data["run"]["dirty"] = True
    assert build(load(data)).commit == "0123456789ab with uncommitted changes"


def test_machine_line_leaves_out_what_is_unknown() -> None:
    cpu = {
        "model": "X",
        "physical": 1,
        "logical": 2,
        "isa": ["avx2", "avx512f", "avx512_vnni"],
        "virtualised": True,
    }
    assert state.machine_line({"cpu": cpu}) == "X · 1 core, 2 threads · AVX512F AVX512-VNNI · virtual machine"
    assert state.machine_line({"memory": {"total_bytes": 2**30}, "cpu": None}) == "1.0\u00a0GiB"
    assert state.machine_line({}) == "not recorded"


def test_machine_tables_show_what_changed() -> None:
    before = {"uptime": 5, "cpu": {"caches": [{"size_bytes": 32768}], "isa": [], "smt": False, "boost": None}}
    after = {"uptime": 6, "cpu": {"caches": [{"size_bytes": 32768}], "isa": ["avx2"], "smt": False}}
    general, cpu = state.machine_tables({"before": before, "after": after})
    assert [row.cells for row in general.rows] == [("uptime", "5", "6")]
    assert cpu.title == "CPU"
    assert [row.cells for row in cpu.rows] == [
        ("caches 1 size bytes", "32.00\u00a0KiB", "the same"),
        ("isa", "none", "avx2"),
        ("smt", "no", "the same"),
        ("boost", "not available", "not recorded"),
    ]


def test_long_observations_are_cut_and_say_so() -> None:
    assert exact.observation(list(range(3))) == "0, 1, 2"
    assert exact.observation(list(range(5000))).endswith("11, … (5000 items)")


def test_edges_are_the_closed_ends() -> None:
    assert checks.edges((float("-inf"), 1.03)) == (1.03,)
    assert checks.edges([None, 2.0]) == (2.0,)
    assert checks.edges(None) == ()
