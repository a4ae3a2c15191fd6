"""Roofline: intensities from stored bytes, roofs and marks from the rounds."""

from __future__ import annotations

import re

import pytest

from reports.figures.arms import STREAMS
from reports.figures.roofline import roofline
from reports.model import Figure
from tests.reports.figures.made import Json, arm, assert_sound, run, sample, texts, timed

ROOFS = [{"threads": 1, "bytes_per_ns": 16.0}, {"threads": 2, "bytes_per_ns": 30.0}]


def kernel(name: str, gb_per_s: float, **changes: object) -> Json:
    """A timed kernel."""
    arms = [arm("a", f"{name}, 8192 x 32768"), arm("b", f"repeats {name}", "a")]
    one = sample(10, 10 * gb_per_s)
    return timed({"a": one, "b": one}, arms=arms, inputs={"threads": 2}, **changes)


def table(figure: Figure | None) -> dict[str, dict[str, str]]:
    """The data table by the first column and the names of the columns."""
    assert figure is not None
    assert_sound(figure)
    names = [column.name for column in figure.table.columns]
    return {row.cells[0]: dict(zip(names, row.cells, strict=True)) for row in figure.table.rows}


@pytest.mark.parametrize(
    ("name", "intensity", "kind"),
    [
        ("q4_0q8_gemv_t16_avx2", "3.56", "kernels on tiles"),
        ("q8_0f32_gemv_r1_avx2", "1.88", "kernels on rows"),
        ("f32f32_gemv_t16_scalar", "0.50", "scalar kernels"),
    ],
)
def test_a_kernel_lies_at_the_operations_of_its_type(name: str, intensity: str, kind: str) -> None:
    row = table(roofline(run({"3.roof": [kernel(name, 15.0, roof=ROOFS[1])]})))[name]
    assert (row["Operations per byte"], row["Kind"], row["Threads"]) == (intensity, kind, "2")
    assert row["Of the best roof"].replace("\u00a0", " ") == "50 %"
    assert row["Rounds"] == ""


def test_controls_and_arms_that_are_no_kernel_have_no_mark() -> None:
    other = timed({"x": sample(1)}, arms=[arm("x", "4 streams, 1000 bytes")])
    rows = table(roofline(run({"2.time": [kernel("q4_0q8_gemv_t16_avx2", 1.0), other]})))
    assert len(rows) == 1


def test_roofs_are_the_best_of_the_run_for_each_number_of_threads() -> None:
    slower = ROOFS[1] | {"bytes_per_ns": 12.0}
    cells = [kernel("q4_0q8_gemv_t16_avx2", 5.0, roof=roof) for roof in (*ROOFS, slower)]
    flops = timed({"flops": sample(10, 0, 2000)})
    figure = roofline(run({"3.roof": cells, "0.regime": [flops]}))
    assert figure is not None
    shown = [one.replace("\u00a0", " ") for one in texts(figure)]
    assert "reads, 2 threads: 30.0 GB/s" in shown and "reads, 1 thread: 16.0 GB/s" in shown
    assert "multiply-adds: 200 GFLOP/s" in shown
    assert "30.0\u00a0GB/s" in figure.alt and "12.0" not in figure.alt


def test_engines_use_the_weights_that_the_run_counted() -> None:
    counted = dict.fromkeys((f"{name}_bytes" for name in STREAMS), 0) | {"dense_bytes": 9000}
    samples = {
        "cflow, dense": sample(900, 9000, 1, **counted),
        "llama.cpp, dense": sample(1800, 9000, 1),
        "vllm bf16, dense": sample(3200, 32000, 1),
    }
    inputs = {f"model of {name}": "m" for name in samples}
    rows = table(roofline(run({"e2e.ranking": [timed(samples, inputs=inputs)]})))
    assert [rows[name]["Operations per byte"] for name in samples] == ["3.56", "3.56", "1.00"]
    assert [rows[name]["Kind"] for name in samples] == ["cflow", "llama.cpp", "vLLM"]


def test_marks_that_decide_nothing_are_hollow_and_said_so() -> None:
    solid = roofline(run({"3.roof": [kernel("q4_0q8_gemv_t16_avx2", 5.0)]}))
    hollow = {"verdict": "INCONCLUSIVE"}, {"void": True}, {"summary": {"reasons": ["A/A too wide"]}}
    for changes in hollow:
        figure = roofline(run({"3.roof": [kernel("q4_0q8_gemv_t16_avx2", 5.0, **changes)]}))
        assert table(figure)["q4_0q8_gemv_t16_avx2"]["Rounds"] == "decides nothing"
        assert figure is not None and solid is not None
        assert figure.wide.count("fill:var(--paper)") > solid.wide.count("fill:var(--paper)")
        assert re.search("hollow", figure.caption, re.I)
