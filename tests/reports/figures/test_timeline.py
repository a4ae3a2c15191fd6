"""The timeline of a token: lanes, waits and reads as they were recorded, whatever was."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reports.figures.timeline import timeline
from tests.reports.figures.made import EVIL, FEW, NUMBERS, Json, assert_sound, cell, run, texts

INPUTS = {"model": "small", "token": 4, "tier": "500 MB/s emulated", "isa": "avx2", "expert_delay": 2}
SYNC = [
    ("worker 0", "vector", 0.0, 1.0),
    ("worker 0", "attention", 1.0, 4.0),
    ("worker 0", "barrier", 4.0, 9.0),
    ("worker 0", "expert", 9.0, 10.0),
    ("worker 1", "attention", 0.5, 5.0),
    ("worker 1", "barrier", 5.0, 9.0),
    ("worker 1", "expert", 9.0, 9.5),
    ("worker 1", "barrier", 9.5, 10.0),
    ("reads", "read", 5.0, 7.0),
    ("reads", "read", 5.0, 8.5),
    ("reads", "read_wait", 5.0, 8.5),
]
STAGED = [
    ("worker 0", "attention", 0.0, 4.0),
    ("worker 0", "barrier", 4.0, 5.0),
    ("worker 0", "expert", 5.0, 6.0),
    ("reads", "read", 1.0, 4.5),
    ("reads", "read_wait", 4.0, 4.5),
]


def arm(label: str, bars: list[Any], **changes: Any) -> Json:
    """A cell of the check. bars: (lane, what, start, end)."""
    names = ("lane", "what", "start_ms", "end_ms")
    return cell({name: [bar[i] for bar in bars] for i, name in enumerate(names)}, label, INPUTS, **changes)


def test_a_run_without_a_token_has_no_figure() -> None:
    assert timeline(run({})) is None
    assert timeline(run({"7.timeline": [arm("sync", [])]})) is None
    assert timeline(run({"7.timeline": [arm("sync", SYNC, evidence=None)]})) is None
    assert timeline(run({"7.timeline": [cell({"lane": ["worker 0"], "what": 3})]})) is None
    reads = [bar for bar in SYNC if bar[0] == "reads"]
    assert timeline(run({"7.timeline": [arm("sync", reads)]})) is None


def test_arms_stand_above_each_other_on_one_axis() -> None:
    figure = timeline(run({"7.timeline": [arm("sync", SYNC), arm("staged", STAGED)]}))
    assert figure is not None
    assert_sound(figure)
    shown = texts(figure)
    assert [text for text in shown if "ms" in text and ":" in text] == ["sync: 10 ms", "staged: 6 ms"]
    assert shown.count("worker 0") == 2 and shown.count("worker 1") == 1 and shown.count("reads") == 2
    assert shown.count("10") == 2  # both end where the longer one ends
    for name in ("attention", "experts", "waits for other workers", "waits for a read", "a read under way"):
        assert name in shown
    assert "dense" not in shown


def test_waits_for_reads_are_told_from_waits_for_workers() -> None:
    figure = timeline(run({"7.timeline": [arm("sync", SYNC), arm("staged", STAGED)]}))
    assert figure is not None
    said = figure.alt.replace("\xa0", " ")
    assert "worker 0 computes for 5 ms, waits 3.50 ms for reads and 1.50 ms for other workers" in said
    assert "reads (2) are under way for 3.50 ms, of which 0 ms beside other work" in said
    assert "reads (1) are under way for 3.50 ms, of which 3 ms beside other work" in said
    names = [column.name for column in figure.table.columns]
    rows = [dict(zip(names, row.cells, strict=True)) for row in figure.table.rows]
    assert [(row["Arm"], row["Lane"]) for row in rows] == [
        ("sync", "worker 0"),
        ("sync", "worker 1"),
        ("sync", "reads"),
        ("staged", "worker 0"),
        ("staged", "reads"),
    ]
    assert [row["Waits for a read"] for row in rows] == ["3.50", "3.50", "", "0.50", ""]
    assert [row["Waits for other workers"] for row in rows] == ["1.50", "1.00", "", "0.50", ""]
    assert rows[2]["Reads under way"] == "3.50"
    assert "tokens 4 (sync) and 4 (staged), small, 500 MB/s emulated, avx2, expert delay 2" in figure.caption


def test_a_real_size_stays_small() -> None:
    """As many bars as a run records, each as wide as to be seen."""
    bars: list[Any] = []
    for lane in range(4):
        for index in range(300):
            kind = ("attention", "barrier", "dense", "expert")[index % 4]
            bars.append((f"worker {lane}", kind, 1.0 * index, index + 0.9))
    bars += [("reads", "read", 8.0 * index, 8.0 * index + 15) for index in range(32)]
    bars += [("reads", "read_wait", 8.0 * index, 8.0 * index + 1) for index in range(32)]
    figure = timeline(run({"7.timeline": [arm("sync", bars), arm("staged", bars)]}))
    assert figure is not None
    assert_sound(figure)


def test_reads_upon_each_other_are_said_to_be() -> None:
    def caption(count: int) -> str:
        reads = [("reads", "read", 1.0, 2.0 + index) for index in range(count)]
        figure = timeline(run({"7.timeline": [arm("staged", [*STAGED[:3], *reads])]}))
        assert figure is not None
        return figure.caption

    assert "hides some" not in caption(4)
    assert caption(5).endswith("Of more than 4 the last row hides some.")


NAMES = st.sampled_from(["worker 0", "worker 1", "reads", EVIL, 7, None])
KINDS = st.sampled_from(["attention", "barrier", "read", "read_wait", EVIL, 3, None])


@FEW
@given(st.lists(st.tuples(NAMES, KINDS, NUMBERS, NUMBERS), max_size=60))
def test_whatever_was_recorded_is_drawn_or_left_out(bars: list[Any]) -> None:
    figure = timeline(run({"7.timeline": [arm(EVIL, bars), arm("staged", [*bars, *STAGED])]}))
    assert figure is not None
    assert_sound(figure)
