"""`cflow ppl`."""

import json
import math
import os
import pty
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from engine.convert_checkpoint import WeightClass, convert_checkpoint
from engine.enums import Type
from engine.model import Model
from engine.perplexity import perplexity
from engine.session import Session
from engine.tokenizer import Tokenizer
from tests.cli.conftest import Cflow
from tests.engine.checkpoints import TINY, CheckpointFolder

WORDS = "The tailor sat in the tent and read a story to the rain. "


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ppl")
    source = CheckpointFolder(TINY["arch2_4_combined"]).write(folder / "trained")
    convert_checkpoint(source, folder / "q4.cflow")
    convert_checkpoint(source, folder / "f32.cflow", types=dict.fromkeys(WeightClass, Type.F32))
    other = CheckpointFolder(replace(TINY["arch2_4_combined"], vocab=280)).write(folder / "other")
    convert_checkpoint(other, folder / "other.cflow")
    (folder / "text.txt").write_text(WORDS * 5)
    return folder


def test_json_is_that_of_the_engine(cflow: Cflow, folder: Path) -> None:
    outcome = cflow("ppl", "-m", folder / "q4.cflow", "-f", folder / "text.txt", "--window", 16, "--json")
    assert outcome.code == 0
    found = json.loads(outcome.out)
    with Model(folder / "q4.cflow") as model, Session(model, context=16) as session:
        ids = Tokenizer.from_json(str(model.tokenizer_json)).encode(WORDS * 5)
        expected = perplexity(session, ids, 16, 16)
    assert found["model"]["perplexity"] == expected.value
    assert found["model"]["tokens"] == len(ids) - 1
    assert found["model"]["options"]["dense_delay"] == 1
    assert (found["window"], found["stride"]) == (16, 16)
    assert found["against"] is None
    assert found["model"]["tok_per_s"] > 0


def test_against_another_model_and_against_itself(cflow: Cflow, folder: Path) -> None:
    arguments = ("ppl", "-m", folder / "q4.cflow", "-f", folder / "text.txt", "--json", "--against")
    found = json.loads(cflow(*arguments, folder / "f32.cflow").out)
    assert found["ratio"] == pytest.approx(found["model"]["perplexity"] / found["against"]["perplexity"])
    assert found["ratio"] != 1
    assert found["window"] == 48, "the context"
    assert json.loads(cflow(*arguments, folder / "q4.cflow").out)["ratio"] == 1
    delayed = json.loads(cflow(*arguments, folder / "q4.cflow", "-o", "dense_delay=0").out)
    assert delayed["model"]["options"]["dense_delay"] == 0
    assert delayed["against"]["options"]["dense_delay"] == 1
    assert delayed["ratio"] != 1


def test_lines_for_people(cflow: Cflow, folder: Path) -> None:
    text = folder / "text.txt"
    outcome = cflow("ppl", "-m", folder / "q4.cflow", "-f", text, "-n", 40, "--against", folder / "f32.cflow")
    first, second, last = outcome.out.splitlines()
    assert "over 39 tokens, q8 activations, delays (1, 2)" in first
    assert "f32.cflow: perplexity" in second
    assert last.startswith("ratio ") and last.endswith(" %)")
    perplexities = [float(line.split("perplexity ")[1].split(" ")[0]) for line in (first, second)]
    assert float(last.split()[1]) == pytest.approx(perplexities[0] / perplexities[1], abs=1e-4)
    assert math.isfinite(perplexities[0])


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["-f", "latin.txt"], "latin.txt: is not UTF-8: byte 4 is 0xe9"),
        (["-f", "empty.txt"], "the text has 0 tokens, at least 2 are needed"),
        (["-f", "short.txt"], "the text has 1 tokens"),
        (["-f", "absent.txt"], "absent.txt: No such file"),
        (["-f", "text.txt", "--window", "49"], "--window is 49, the context of"),
        (["-f", "text.txt", "--window", "0"], "window is 0, must be at least 1"),
        (["-f", "text.txt", "--window", "8", "--stride", "9"], "stride is 9, must be 1 to the window, 8"),
        (["-f", "text.txt", "--against", "other.cflow"], "other.cflow: its tokenizer makes other tokens"),
        (["-f", "text.txt", "-o", "context=9"], "--option context is set by --window"),
    ],
)
def test_refusals(
    cflow: Cflow, folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], fault: str
) -> None:
    monkeypatch.chdir(folder)
    (folder / "latin.txt").write_bytes("abcdé".encode("latin-1"))
    (folder / "empty.txt").write_bytes(b"")
    (folder / "short.txt").write_bytes(b"a")
    outcome = cflow("ppl", "-m", "q4.cflow", *arguments)
    assert outcome.code == 2
    assert fault in outcome.err


def test_a_model_without_tokenizer(cflow: Cflow, folder: Path, moe: Path) -> None:
    outcome = cflow("ppl", "-m", moe, "-f", folder / "text.txt")
    assert outcome.code == 2
    assert "the model carries no tokenizer" in outcome.err


def test_ctrl_c(folder: Path) -> None:
    (folder / "long.txt").write_text(WORDS * 40_000)
    # A terminal on stderr, so that the progress bar shows when the work has begun.
    terminal, theirs = pty.openpty()
    command = [sys.executable, "-m", "cli.main", "ppl", "-m", str(folder / "q4.cflow"), "-f"]
    with subprocess.Popen([*command, str(folder / "long.txt")], stdout=subprocess.PIPE, stderr=theirs) as run:
        os.close(theirs)
        shown = b""
        deadline_s = time.monotonic() + 120
        while b"reading with" not in shown and time.monotonic() < deadline_s:
            shown += os.read(terminal, 4096)
        run.send_signal(signal.SIGINT)
        assert run.stdout is not None
        assert run.stdout.read() == b""
        assert run.wait(60) == 130
        while b"interrupted" not in shown:
            shown += os.read(terminal, 4096)
    os.close(terminal)
    assert b"Traceback" not in shown
