"""What counts as bytes of weights, and samples that contradict it."""

from __future__ import annotations

import pytest

from engine.enums import Stream
from harness.errors import EvidenceError
from harness.rounds import Sample, weight_bytes


def test_keys_and_values_are_no_weights() -> None:
    counters = {f"{name.lower()}_bytes": 1 << index for index, name in enumerate(Stream.__members__)}
    counters |= {"embedding_bytes": 1 << 20, "kv_bytes": 1 << 30}
    assert weight_bytes(counters) == 0b11111 + (1 << 20)


def test_the_bytes_of_a_sample_are_those_of_its_counters() -> None:
    assert Sample(1, 5, "digest", counters={"dense_bytes": 3, "head_bytes": 2, "kv_bytes": 9}).bytes == 5
    with pytest.raises(EvidenceError, match="bytes=4, but its counters add up to 5"):
        Sample(1, 4, "digest", counters={"dense_bytes": 3, "head_bytes": 2})
