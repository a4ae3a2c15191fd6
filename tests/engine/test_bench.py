"""What a bench counts."""

from pathlib import Path

from engine.bench import last_level_cache_bytes, weight_bytes
from engine.enums import Stream


def test_keys_and_values_are_no_weights() -> None:
    counters = {f"{name.lower()}_bytes": 1 << index for index, name in enumerate(Stream.__members__)}
    counters |= {"embedding_bytes": 1 << 20, "kv_bytes": 1 << 30}
    assert weight_bytes(counters) == 0b11111 + (1 << 20)


def test_last_level_cache(tmp_path: Path) -> None:
    assert last_level_cache_bytes(tmp_path) == 0
    for index, size in enumerate(("32K", "1024K", "garbage")):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        (folder / "size").write_text(size + "\n")
    assert last_level_cache_bytes(tmp_path) == 1024 * 1024
