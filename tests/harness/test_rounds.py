"""What counts as bytes of weights, and samples that contradict it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.enums import Stream
from harness.errors import EvidenceError
from harness.rounds import (
    Figure,
    Pattern,
    Placed,
    Roof,
    RoundsOf,
    Sample,
    Side,
    Timed,
    views,
    weight_bytes,
)


def test_keys_and_values_are_no_weights() -> None:
    counters = {f"{name.lower()}_bytes": 1 << index for index, name in enumerate(Stream.__members__)}
    counters |= {"embedding_bytes": 1 << 20, "kv_bytes": 1 << 30}
    assert weight_bytes(counters) == 0b11111 + (1 << 20)


def test_the_bytes_of_a_sample_are_those_of_its_counters() -> None:
    assert Sample(1, 5, "digest", counters={"dense_bytes": 3, "head_bytes": 2, "kv_bytes": 9}).bytes == 5
    with pytest.raises(EvidenceError, match="bytes=4, but its counters add up to 5"):
        Sample(1, 4, "digest", counters={"dense_bytes": 3, "head_bytes": 2})


def test_what_a_side_measures() -> None:
    counters = {"io_wait_ns": 40, "read_ns": 60}
    sample = Sample(200, 50, "digest", work=4.0, counters=counters)
    found = {
        name: Side("a", name).of(sample) for name in ("time", "speed", "bandwidth", "computing", "reading")
    }
    assert found == {"time": 50, "speed": 0.02, "bandwidth": 0.25, "computing": 40, "reading": 15}


def test_a_figure_over_the_roof_needs_one() -> None:
    figure = Figure(Side("a", "bandwidth"), "roof")
    samples = {"a": Placed(0, 2, None, Sample(2, 8, "digest"))}
    roof = Roof(1, (Pattern("rows", 80, (20, 10)),))
    assert figure.of(samples, roof) == 0.5
    with pytest.raises(EvidenceError, match=r"^figure\.reference: roof, but the evidence holds no roof$"):
        figure.of(samples, None)


def test_the_first_cell_holds_the_rounds_and_the_others_name_it() -> None:
    figures = {name: Figure(Side(name, "time"), Side("d", "time")) for name in ("b", "a", "c")}
    timed = Timed(figures["a"], 7, 12, False, (), ())
    found = views(timed, "1.time", figures)
    assert list(found) == ["b", "a", "c"]
    assert found["b"] == replace(timed, figure=figures["b"])
    for label in ("a", "c"):
        assert found[label] == replace(timed, figure=figures[label], rounds_of=RoundsOf("1.time", "b"))
