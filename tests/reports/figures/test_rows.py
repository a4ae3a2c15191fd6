"""Figures of rows and panels: what stands in them is what the run recorded."""

from __future__ import annotations

from reports.figures.arms import STREAMS
from reports.figures.prefetch import prefetch
from reports.figures.resident import resident
from reports.figures.schedule import schedule
from reports.figures.streams import streams
from tests.reports.figures.made import Json, assert_sound, cell, run, sample, texts, timed

THIN, HARD = "\u202f", "\u00a0"


def plain(text: str) -> str:
    """With common spaces."""
    return text.replace(HARD, " ").replace(THIN, "")


def test_streams_are_per_token_and_sum_to_the_total() -> None:
    counted = {f"{name}_bytes": 2e6 * (index + 1) for index, name in enumerate(STREAMS)}
    whole = {"cflow, dense": sample(1, 30e6, 2, **counted), "llama.cpp, dense": sample(1, 30e6, 2)}
    figure = streams(run({"e2e.ranking": [timed(whole)]}))
    assert figure is not None
    assert_sound(figure)
    assert [row.cells for row in figure.table.rows] == [
        ("cflow, dense", "1.000", "2.000", "3.000", "4.000", "5.000", "", "15.000"),
        ("llama.cpp, dense", "", "", "", "", "", "15.000", "15.000"),
    ]
    shown = [plain(one) for one in texts(figure)]
    assert shown.count("15.0 MB") == 2 and "not counted by stream" in shown
    assert "cflow, dense: 15.0 MB a token, attention 1.0 MB" in plain(figure.alt)


def test_streams_beyond_a_dozen_are_in_the_table() -> None:
    cells = [timed({f"arm {index}": sample(1, 1e6 + index)}) for index in range(20)]
    figure = streams(run({"e2e.ranking": cells}))
    assert figure is not None
    assert len(figure.table.rows) == 20 and "arm 11" in texts(figure) and "arm 12" not in texts(figure)
    assert "12 of 20" in figure.caption and "and 8 more, in the table" in figure.alt


def test_resident_shares_are_of_all_experts() -> None:
    ours = cell(
        {"tokens": [1, 2], "resident_bytes": [25, 50], "routed_bytes": [25, 45]},
        "8 top-2",
        {"experts": 8, "experts per token": 2},
    )
    theirs = {
        "tokens by token": [1, 2],
        "resident_bytes by token": [60, 90],
        "routed_bytes by token": [25, 45],
    }
    other = cell(theirs | {"bank_bytes": 100}, "after 1 token", {"experts": "8 top-2, 4 layers"})
    started = cell({}, "control: after start-up, nothing evicted", value=1.0)
    figure = resident(run({"1.resident": [ours], "1.llamacpp": [other, started]}))
    assert figure is not None
    assert_sound(figure)
    assert [tuple(plain(one) for one in row.cells) for row in figure.table.rows] == [
        ("8 top-2", "cflow", "1", "25.0 %", "25.0 %"),
        ("8 top-2", "cflow", "2", "50.0 %", "45.0 %"),
        ("8 top-2", "llama.cpp", "1", "60.0 %", "25.0 %"),
        ("8 top-2", "llama.cpp", "2", "90.0 %", "45.0 %"),
    ]
    assert {"8 top-2", "cflow", "llama.cpp", "llama.cpp as it starts"} <= set(texts(figure))


def test_the_map_gives_each_hint_its_speed_over_none() -> None:
    samples = {
        "no hint": sample(100),
        "T0 512 B": sample(80),
        "T0 4 KiB": sample(200),
        "NTA 1 KiB": sample(100),
    }
    figure = prefetch(run({"6.map": [timed(samples, "1 thread")]}))
    assert figure is not None
    assert_sound(figure)
    found = [(row.cells[1], plain(row.cells[2]), row.cells[3]) for row in figure.table.rows]
    assert found == [
        ("T0", "512 B", "1.25\u00d7"),
        ("T0", "4 KiB", "0.500\u00d7"),
        ("NTA", "1 KiB", "1.00\u00d7"),
    ]
    assert {"PREFETCHT0", "PREFETCHNTA", "1 thread"} <= set(texts(figure))
    void = prefetch(run({"6.map": [timed(samples, "1 thread", void=True)]}))
    assert void is not None and "all rounds void" in texts(void) and "all rounds void" not in texts(figure)
    assert "all its rounds are void" in void.alt and void.table.rows[0].muted


def test_a_map_draws_every_place_that_the_registry_declares() -> None:
    samples = {"no hint": sample(100), "T0 512 B": sample(80)}

    def of(count: int) -> dict[str, list[Json]]:
        return {"6.map_large": [timed(samples, f"place {index}") for index in range(count)]}

    registry = run({}).registry
    declared = sum(len(registry.check(name).cells) for name in ("6.map", "6.map_large"))
    whole, large = prefetch(run(of(declared))), prefetch(run(of(20)))
    assert whole is not None and large is not None
    assert f"place {declared - 1}" in texts(whole) and "are drawn" not in whole.caption
    assert "place 12" not in texts(large) and "The first 12 of 20 are drawn" in large.caption
    assert len(large.table.rows) == 20


def test_the_schedule_shows_four_answers_with_verdicts_in_words() -> None:
    def ratio(value: float, kind: str, **changes: object) -> object:
        made = cell({}, unit="ratio", value=value, **changes)
        return {**made, "evidence": {**made["evidence"], "kind": kind}}

    bytes_cell = cell({}, "arch1", unit="MiB/token", value=9.0, verdict="SUPPORTED")
    figure = schedule(
        run(
            {
                "7.law": [ratio(2.0, "derived", paper=2.0, verdict="SUPPORTED"), bytes_cell],
                "7.path": [ratio(1.25, "counted", paper=2.0, verdict="REFUTED")],
                "7.time": [
                    ratio(0.99, "timed", low=0.9, high=1.1, verdict="INCONCLUSIVE", label=name)
                    for name in ("all threads", "1 thread")
                ],
            }
        )
    )
    assert figure is not None
    assert_sound(figure)
    assert [(row.cells[1], row.cells[2], row.cells[5]) for row in figure.table.rows] == [
        ("derived", "2.00\u00d7", "SUPPORTED"),
        ("counted", "1.25\u00d7", "REFUTED"),
        ("timed", "1.0\u00d7", "INCONCLUSIVE"),
        ("timed", "1.0\u00d7", "INCONCLUSIVE"),
    ]
    assert "1.25\u00d7 REFUTED" in texts(figure) and "the paper\u2019s figure" in texts(figure)
    assert "Time: tokens per second, 1 thread" in texts(figure)
