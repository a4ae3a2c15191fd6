"""Reductions, against the second implementation in harness/check_reductions.py."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import check_reductions as second
from harness.errors import EvidenceError
from harness.estimates import ESTIMATES
from harness.evidence import Counted, Derived, Hardware, Kernel, Simulated
from harness.reductions import REDUCTIONS, Reduction, reduce


@pytest.mark.parametrize(
    ("op", "a", "b", "value"),
    [
        ("value", 3, None, 3),
        ("sum", [1, 2, 4], None, 7),
        ("min", [3, 1, 2], None, 1),
        ("max", [3, 1, 2], None, 3),
        ("median", [3, 1, 2, 10], None, 2.5),
        ("count", [5, 5, 5], None, 3),
        ("count_not_increasing", [1, 2, 2, 5, 4, 6], None, 2),
        ("ratio", [6, 6], 8, 1.5),
        ("difference", [6, 6], [5], 7),
        ("max_abs_difference", [1, 5], [2, 9], 4),
        ("max_ratio", [1, 9], [2, 3], 3),
        ("max_relative_error", [3, 10, 4], [4, 8, 4], 0.25),
        ("fraction_greater", [1, 3, 3, 5], [0, 3, 4, 4], 0.5),
        ("relative_norm", [3, 4], [0, 4], 0.75),
        ("count_equal", [1, "a", 3], [1, "a", 4], 2),
        ("count_unequal", ["x", "y"], ["x", "z"], 1),
        ("fraction_equal", [1, 2, 3, 4], [1, 0, 0, 4], 0.5),
    ],
)
def test_values(op: str, a: object, b: object, value: float) -> None:
    observations = {"a": a} if b is None else {"a": a, "b": b}
    reduction = Reduction(op, tuple(observations))
    assert reduce(observations, reduction) == value  # type: ignore[arg-type]
    problems: list[str] = []
    evidence = {"observations": observations, "reduction": reduction.to_json()}
    assert second.reduced(evidence, problems.append) == value
    assert problems == []


ITEM_BY_ITEM = (
    "max_abs_difference",
    "max_ratio",
    "max_relative_error",
    "fraction_greater",
    "relative_norm",
    "count_equal",
    "count_unequal",
    "fraction_equal",
)
NUMBERS = st.lists(st.floats(0.01, 1e6) | st.integers(1, 10**9), min_size=1, max_size=20)


@given(st.sampled_from([op for op in REDUCTIONS if op not in ESTIMATES]), NUMBERS, st.data())
def test_two_implementations_agree(op: str, a: list[float], data: st.DataObject) -> None:
    b = data.draw(st.lists(st.floats(0.01, 1e6) | st.sampled_from(a), min_size=len(a), max_size=len(a)))
    two = op in {"ratio", "difference", *ITEM_BY_ITEM}
    reduction = Reduction(op, ("a", "b") if two else ("a",))
    observations = {"a": a, "b": b}
    value = reduce(observations, reduction)
    problems: list[str] = []
    other = second.reduced({"observations": observations, "reduction": reduction.to_json()}, problems.append)
    assert problems == []
    assert other == pytest.approx(value, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(
    ("observations", "reduction", "message"),
    [
        ({"a": 1}, Reduction("mode", ("a",)), r"reduction\.op: found 'mode', allowed: value, sum, min"),
        ({"a": 1, "c": 2}, Reduction("value", ("b",)), r"no observation 'b'; there are a, c$"),
        ({"a": 1e308, "b": 1e-308}, Reduction("ratio", ("a", "b")), "^reduction: ratio gives inf$"),
        ({"a": 1}, Reduction("ratio", ("a",)), "ratio takes 2 observations, found 1"),
        ({"a": 1, "b": 2}, Reduction("sum", ("a", "b")), "sum takes 1 observations, found 2"),
        ({"a": []}, Reduction("max", ("a",)), r"observations\.a: empty"),
        ({"a": [1, "x"]}, Reduction("sum", ("a",)), r"observations\.a: found 'x', allowed: finite numbers"),
        ({"a": [1, math.nan]}, Reduction("sum", ("a",)), r"observations\.a: found nan"),
        ({"a": 1, "b": 0}, Reduction("ratio", ("a", "b")), "division by zero"),
        ({"a": [1], "b": [0]}, Reduction("max_ratio", ("a", "b")), "max_ratio of a, b"),
        ({"a": [1], "b": [0]}, Reduction("max_relative_error", ("a", "b")), "max_relative_error of a, b"),
        ({"a": [1.0], "b": [0.0]}, Reduction("relative_norm", ("a", "b")), "relative_norm of a, b"),
    ],
)
def test_impossible_reductions_are_refused(observations: object, reduction: Reduction, message: str) -> None:
    with pytest.raises(EvidenceError, match=message):
        reduce(observations, reduction)  # type: ignore[arg-type]


@pytest.mark.parametrize("op", [*ITEM_BY_ITEM, "exp_mean_difference"])
@pytest.mark.parametrize(("a", "b"), [([1, 2], [1]), ([1], [1, 2])])
def test_what_goes_item_by_item_wants_equal_lengths(op: str, a: list[float], b: list[float]) -> None:
    observations, reduction = {"a": a, "b": b}, Reduction(op, ("a", "b"))
    with pytest.raises(EvidenceError, match=f"reduction: {op} of a, b: "):
        reduce(observations, reduction)
    if op not in ESTIMATES:
        assert second_says(observations, reduction).startswith(
            f"reduction {op} of ['a', 'b'] fails: ValueError"
        )


def second_says(observations: dict[str, Any], reduction: Reduction) -> str:
    """The one problem that the second opinion has with a value."""
    problems: list[str] = []
    evidence = {"observations": observations, "reduction": reduction.to_json()}
    assert second.reduced(evidence, problems.append) is None
    (problem,) = problems
    return problem


@pytest.mark.parametrize(
    ("reduction", "said"),
    [
        (Reduction("ratio", ("a",)), "fails: ValueError('ratio does not take one observation')"),
        (Reduction("sum", ("a", "b")), "fails: ValueError('sum does not take two observations')"),
        (Reduction("ratio", ("a", "b")), "gives inf"),
    ],
)
def test_the_second_opinion_names_what_it_cannot_reduce(reduction: Reduction, said: str) -> None:
    problem = second_says({"a": [1e308], "b": [1e-308]}, reduction)
    assert problem == f"reduction {reduction.op} of {list(reduction.of)} {said}"


def test_each_kind_says_so_and_holds_its_material() -> None:
    one = ("how", {"a": [1, 2]}, Reduction("sum", ("a",)), {"threads": 1})
    for made, kind in ((Counted(*one), "counted"), (Kernel(*one), "kernel"), (Derived(*one), "derived")):
        assert made.kind == kind
        assert made.value == 3
        assert made.to_json() == {
            "kind": kind,
            "method": "how",
            "inputs": {"threads": 1},
            "observations": {"a": [1, 2]},
            "reduction": {"op": "sum", "of": ["a"]},
        }
    assert Simulated(*one, geometry="32 KiB").to_json()["geometry"] == "32 KiB"
    assert Hardware(*one, events=("cycles",)).to_json()["events"] == ["cycles"]


def test_simulated_and_hardware_figures_state_their_source() -> None:
    one = ("how", {"a": 1}, Reduction("value", ("a",)))
    with pytest.raises(EvidenceError, match="geometry: missing"):
        Simulated(*one)
    with pytest.raises(EvidenceError, match="events: missing"):
        Hardware(*one)
