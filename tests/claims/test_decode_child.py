"""What decoding takes of memory: told by the kernel, of a process of its own."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from claims.decode_child import TOKENS, ChildError, peak_of, status_bytes
from engine.geometry import Geometry
from engine.model import Model
from engine.session import Session
from engine.synth import synthesise

pytestmark = pytest.mark.no_sanitizer
MIB = 1 << 20


def test_the_peak_holds_the_file_and_little_more(tmp_path: Path) -> None:
    shape = Geometry.parse("d=1024,layers=4,vocab=2048,context=256")
    path = tmp_path / "m.cflow"
    synthesise(path, shape)
    found = peak_of(path, 1)
    assert found.file_bytes == path.stat().st_size > 32 * MIB
    with Model(path) as model, Session(model, context=TOKENS) as session:
        assert found.kv_bytes == session.memory_bytes()[0] > 0
    # The matrices are touched, all but the rows of the embedding that no token is.
    assert found.peak_resident_bytes > found.anonymous_bytes + 0.9 * found.file_bytes
    assert found.peak_resident_bytes - found.file_bytes - found.kv_bytes < 512 * MIB


def test_a_model_that_cannot_be_decoded_is_named(tmp_path: Path) -> None:
    with pytest.raises(ChildError, match="decoding none.cflow failed with status 1: .*none.cflow"):
        peak_of(tmp_path / "none.cflow", 1)


def test_a_context_that_is_too_small(tmp_path: Path) -> None:
    path = tmp_path / "short.cflow"
    synthesise(path, replace(Geometry.named("tiny_dense"), context=16))
    with pytest.raises(ChildError, match="context"):
        peak_of(path, 1)


def test_a_process_that_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = subprocess.CompletedProcess([], -9, "", "")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: killed)
    with pytest.raises(ChildError, match=r"status -9 \(out of memory\?\): it printed nothing"):
        peak_of(tmp_path / "m.cflow", 1)


def test_a_process_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("decode", 1)

    monkeypatch.setattr(subprocess, "run", hang)
    with pytest.raises(ChildError, match="takes longer than"):
        peak_of(tmp_path / "m.cflow", 1)


def test_fields_of_the_status() -> None:
    text = "Name:\tpython\nVmHWM:\t   12345 kB\nRssAnon:\t     100 kB\n"
    assert status_bytes("VmHWM", text) == 12345 * 1024
    with pytest.raises(ChildError, match="does not tell RssFile"):
        status_bytes("RssFile", text)
