"""The decode bench: its arithmetic and its limits, not its speeds."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import bench
from engine.bench import Roof, last_level_cache_bytes, measure_decode, measure_roof, weight_bytes
from engine.enums import Stream
from engine.errors import ArgumentError
from engine.geometry import Geometry
from engine.model import Model
from engine.probes import MIB, read_patterns
from engine.session import Session
from tests.engine.models import write_random_model

GEOMETRY = Geometry.named("tiny_arch4")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    with Model(write_random_model(tmp_path_factory.mktemp("bench") / "m.cflow", GEOMETRY, seed=3)) as opened:
        yield opened


def _with_roof(monkeypatch: pytest.MonkeyPatch, bytes_per_s: float) -> None:
    roof = Roof(bytes_per_s, "made up", {"made up": bytes_per_s})
    monkeypatch.setattr(bench, "measure_roof", lambda threads: roof)


def test_row_is_consistent(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    _with_roof(monkeypatch, 1e15)
    seen: list[tuple[int, int]] = []
    row = measure_decode(
        model, tokens=4, rounds=3, progress=lambda done, total: seen.append((done, total)), threads=1
    )
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert (row.engine, row.threads, row.tokens) == ("cflow", 1, 4)
    assert len(row.rounds_tok_per_s) == 3
    assert row.tok_per_s == sorted(row.rounds_tok_per_s)[1]
    assert row.bytes_per_s == row.tok_per_s * row.weight_bytes_per_token
    assert row.roof_bytes_per_s == 1e15
    assert row.share_of_roof == row.bytes_per_s / 1e15
    with Session(model) as session:
        pieces = sum(piece.bytes for piece in session.schedule())
        assert row.isa == session.isa.name.lower()
    embedding_row = row.weight_bytes_per_token - pieces
    assert 0 < embedding_row < pieces / 100


def test_a_share_above_the_roof_voids_the_roof(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    _with_roof(monkeypatch, 1.0)
    row = measure_decode(model, tokens=2, rounds=1)
    assert row.roof_bytes_per_s is None
    assert row.share_of_roof is None
    assert row.to_json()["share_of_roof"] is None


@pytest.mark.parametrize(
    ("tokens", "rounds", "fault"),
    [(0, 1, "at least 1"), (1, 0, "at least 1"), (GEOMETRY.context + 1, 1, "context of the model has")],
)
def test_limits(model: Model, tokens: int, rounds: int, fault: str) -> None:
    with pytest.raises(ArgumentError, match=fault):
        measure_decode(model, tokens=tokens, rounds=rounds)


def test_keys_and_values_are_no_weights() -> None:
    counters = {f"{name}_bytes": 1 << index for index, name in enumerate(Stream.__members__)}
    counters = {name.lower(): size for name, size in counters.items()}
    counters |= {"embedding_bytes": 1 << 20, "kv_bytes": 1 << 30}
    assert weight_bytes(counters) == 0b11111 + (1 << 20)


def test_roof_takes_the_best_pattern() -> None:
    roof = measure_roof(1, size_bytes=4 * MIB, passes=1)
    assert list(roof.by_pattern) == read_patterns()
    assert roof.bytes_per_s == max(roof.by_pattern.values()) == roof.by_pattern[roof.pattern]


def test_last_level_cache(tmp_path: Path) -> None:
    assert last_level_cache_bytes(tmp_path) == 0
    for index, size in enumerate(("32K", "1024K", "garbage")):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        (folder / "size").write_text(size + "\n")
    assert last_level_cache_bytes(tmp_path) == 1024 * 1024
