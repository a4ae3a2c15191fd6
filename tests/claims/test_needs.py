"""Needs of checks: every word of claims.toml has a probe, and a probe says how to get what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from baselines import install
from claims import needs
from claims.needs import NEEDS, probed_reads, unmet
from claims.run import REGISTRY_PATH
from engine.enums import Isa, Reader, ReadPath
from engine.reads import Reads
from harness.registry import load_registry


def test_every_need_of_the_registry_has_a_probe_and_every_probe_is_used() -> None:
    named = {need for check in load_registry(REGISTRY_PATH).checks for need in check.needs}
    assert named == set(NEEDS)


def buffered(folder: Path) -> tuple[Reads, int | None]:
    return Reads(Reader.THREADS, ReadPath.BUFFERED, 1, 1, 0, 1, 0, None), None


@pytest.mark.parametrize(
    ("need", "patches", "words"),
    [
        ("avx2", {"isa_supported": lambda isa: False}, "no AVX2"),
        ("vector_isa", {"isa_default": lambda: Isa.SCALAR}, "no vector instruction set"),
        ("direct_reads", {"probed_reads": buffered}, "O_DIRECT is refused"),
        ("device_bytes", {"process_io": lambda: None}, "does not count the bytes"),
        ("torch", {"importlib.util.find_spec": lambda name: None}, ".[train]"),
        ("valgrind", {"cachegrind.available": lambda: False}, "apt install valgrind"),
    ],
)
def test_what_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, need: str, patches: dict[str, object], words: str
) -> None:
    for name, value in patches.items():
        monkeypatch.setattr(f"claims.needs.{name}", value)
    reason = unmet((need,), tmp_path)
    assert reason is not None and words in reason


def test_llamacpp_is_looked_for_where_baselines_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(install.ENVIRONMENT_VARIABLE, str(tmp_path))
    assert unmet((install.LLAMACPP,), tmp_path) == (
        "llama.cpp is not installed: run `cflow baseline install llama.cpp`"
    )


def test_the_first_need_that_is_unmet_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    probes = {"a": lambda folder: None, "b": lambda folder: "no b", "c": lambda folder: "no c"}
    monkeypatch.setattr(needs, "NEEDS", probes)
    assert unmet(("a", "b", "c"), tmp_path) == "no b"
    assert unmet(("a",), tmp_path) is None
    assert unmet((), tmp_path) is None


def test_the_probe_of_reads_leaves_nothing_behind(tmp_path: Path) -> None:
    found, alignment = probed_reads(tmp_path)
    assert found.ns > 0
    assert alignment is None or alignment > 0
    assert list(tmp_path.iterdir()) == []
