"""Cold decodes: what is resident is what was routed, and a bank that does not get empty is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from baselines.install import LLAMACPP, installed
from claims import cold
from claims.experts import geometries, model_name, random_ids
from claims.models import as_gguf, synthetic
from claims.moe_gguf import expert_file
from engine.enums import Activation, Advice
from harness.cachestate import CacheStateError

LABEL = "64 top-4"
GEOMETRY = replace(geometries("smoke")[LABEL], activation=Activation.SWIGLU)
IDS = random_ids(GEOMETRY.vocab, 4)


def test_engine_reads_what_it_routes(cold_folder: Path) -> None:
    path = synthetic(cold_folder, model_name(LABEL), GEOMETRY)
    run = cold.cold_engine(path, IDS, Advice.RANDOM, (1, 2, 4), threads=1)
    assert run.tokens == [1, 2, 4]
    assert run.routed_bytes[0] == pytest.approx(run.bank_bytes * 4 / 64, rel=1e-9)
    assert run.resident_bytes == pytest.approx(run.routed_bytes, rel=0.1)  # small experts, whole pages
    assert run.routed_bytes == sorted(run.routed_bytes) and run.routed_bytes[-1] < run.bank_bytes


@pytest.mark.skipif(installed(LLAMACPP) is None, reason="llama.cpp is not installed")
def test_llamacpp_reads_what_it_routes_and_starts_with_all(cold_folder: Path) -> None:
    file = expert_file(as_gguf(synthetic(cold_folder, model_name(LABEL), GEOMETRY)), GEOMETRY)
    found = cold.cold_llamacpp(file, IDS, (1, 2, 4), threads=1, readahead=False)
    assert found.started_bytes == file.bank_bytes
    assert found.info.repack_mib == 0 and found.info.mmap
    assert found.run.tokens == [1, 2, 4]
    assert found.run.routed_bytes[0] == file.bank_bytes * 4 // 64
    assert found.run.resident_bytes == pytest.approx(found.run.routed_bytes, rel=0.1)
    assert found.run.resident_bytes[-1] < file.bank_bytes


def test_a_bank_that_does_not_get_empty_is_refused(
    cold_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cold, "SETTLE_S", 0.0)
    path = cold_folder / "file"
    path.touch()
    with pytest.raises(CacheStateError, match="4096 bytes of experts stay resident after 10 evictions"):
        cold.empty_for_good(path, lambda: 4096)
    readings = iter([4096, *[0] * 20])
    cold.empty_for_good(path, lambda: next(readings))
