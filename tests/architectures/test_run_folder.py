"""A run's folder: what a killed run left in it goes when the next one has it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from architectures.arguments import Arguments, Options
from architectures.run_folder import RUN_NAME, claimed


def test_files_and_folders_that_a_killed_run_left_go(tmp_path: Path) -> None:
    (tmp_path / ".checkpoint.bin.7.tmp").write_bytes(b"half")
    (tmp_path / ".data.7.tmp").mkdir()
    (tmp_path / ".data.7.tmp/train.bin").write_bytes(b"half")
    group: Any = SimpleNamespace(leads=True, wait=lambda: None)  # without PyTorch
    data: Any = SimpleNamespace(hashes={})
    with claimed(Arguments.of("arch4", "tiny", 3, 0), Options(tmp_path), data, group) as complete:
        assert complete is None
        assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", RUN_NAME]
