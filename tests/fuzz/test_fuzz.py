"""The short form of the fuzzer, what it found before, and that it finds what it is for."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from engine.errors import FormatError
from tests.fuzz.__main__ import fuzz, main, run_batch
from tests.fuzz.property import FindingError, hold
from tests.fuzz.targets import TARGETS, Files, Target

ROOT = Path(__file__).parents[2]
FOUND = ROOT / "tests/data/fuzz"
CASES = {"gguf": 120, "checkpoint": 120, "tokenizer": 200, "quality": 100, "prepared": 100, "results": 40}


@pytest.mark.parametrize("name", TARGETS)
def test_no_case_breaks_the_property(name: str) -> None:
    target = TARGETS[name]
    if target.missing:
        pytest.skip(target.missing)
    batch = run_batch(target, 0, CASES.get(name, 100))
    assert batch.finding is None, batch.finding[1]
    assert 0 < batch.taken < batch.cases, "either nothing is spoilt, or nothing is whole"


@pytest.mark.parametrize(
    "case", sorted(FOUND.glob("*/*")), ids=lambda case: f"{case.parent.name}-{case.name}"
)
def test_what_was_found_stays_mended(case: Path) -> None:
    target = TARGETS[case.parent.name]
    if target.missing:
        pytest.skip(target.missing)
    taken = hold(target, {path.name: path.read_bytes() for path in case.iterdir() if path.name != "why.txt"})
    assert not taken, "a finding is a file that must be refused"


def test_every_finding_says_why() -> None:
    cases = list(FOUND.glob("*/*"))
    assert cases and [case for case in cases if not (case / "why.txt").read_text().strip()] == []


def wrong(name: str, folder: Path) -> None:
    """Readers with faults, each of a kind that the property is about."""
    data = (folder / "file").read_bytes()
    if name == "crash":
        raise KeyError("x")
    if name == "names nothing":
        raise FormatError("it is damaged")
    if name == "leaves a file":
        (folder / "half").write_bytes(data)
        raise FormatError(f"{folder}: is damaged")


@pytest.mark.parametrize("name", ["crash", "names nothing", "leaves a file"])
def test_each_kind_of_fault_is_a_finding(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def make(random: Random) -> Files:
        return {"file": random.randbytes(4)}

    target = Target("made", make, lambda folder: wrong(name, folder))
    with pytest.raises(FindingError):
        hold(target, {"file": b"0"})
    totals = fuzz(target, tmp_path, 60, 10)
    assert totals.findings == totals.next_seed > 0, "every batch finds it again"
    (case,) = (tmp_path / "made").iterdir()
    assert {path.name for path in case.iterdir()} == {"file", "why.txt"}
    again = fuzz(replace(target, read=lambda folder: None), tmp_path, 60, 10)
    assert again.findings == totals.findings and again.cases > totals.cases
    assert json.loads((tmp_path / "made.json").read_text())["cases"] == again.cases


def test_a_fault_that_does_not_come_again_is_a_finding(tmp_path: Path) -> None:
    """As one of time or memory may be: hypothesis calls it flaky, and the fuzzer goes on."""
    seen: list[Path] = []

    def once(folder: Path) -> None:
        seen.append(folder)
        if len(seen) == 3:
            raise MemoryError

    target = Target("made", lambda random: {"file": random.randbytes(4)}, once)
    assert fuzz(target, tmp_path, 60, 20).findings == 1
    assert "MemoryError" in next((tmp_path / "made").glob("*/why.txt")).read_text()


def test_memory_is_bounded_in_the_command(tmp_path: Path) -> None:
    """It runs where an allocation of the size that a file asks for would fail."""
    command = [sys.executable, "-m", "tests.fuzz", "gguf", "--cases", "20", "--work", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 findings" in done.stdout
    ask = (
        "from tests.fuzz.property import limit_memory, MEMORY_BYTES; limit_memory()\n"
        "try: bytearray(2 * MEMORY_BYTES)\nexcept MemoryError: print('refused')"
    )
    limited = subprocess.run([sys.executable, "-c", ask], cwd=ROOT, capture_output=True, text=True)
    assert limited.stdout == "refused\n", limited.stderr


def test_an_unknown_target_is_a_usage_error() -> None:
    with pytest.raises(SystemExit) as caught:
        main(["no_such"])
    assert caught.value.code == 2
