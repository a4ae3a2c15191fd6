"""`cflow train`: options, progress, output, and errors of a user."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.main import run
from tests.architectures.texts import small_data, write_text


def test_without_torch_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("architectures.pytorch.torch_installed", lambda: False)
    assert run(["train", "--arch", "arch4", "--data", "x", "--steps", "1", "--out", str(tmp_path)]) == 2
    assert "pip install '.[train]'" in capsys.readouterr().err


def test_a_run_prints_progress_and_its_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    from tests.architectures.training import use_small_preset

    use_small_preset()
    data = small_data(tmp_path)
    command = ["train", "--arch", "arch3", "--preset", "small_test", "--steps", "3", "--threads", "1"]
    command += ["--data", str(data.folder), "--out", str(tmp_path / "out")]
    assert run(command) == 0
    printed = capsys.readouterr()
    assert "step 3/3  loss " in printed.err and "0:00 left" in printed.err
    assert "M weights, test perplexity " in printed.out
    assert run(command) == 2
    assert "--resume continues it" in capsys.readouterr().err
    assert run([*command, "--resume", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["arguments"]["architecture"] == "arch3"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--arch", "arch9"], "architecture 'arch9' is unknown; allowed: arch1"),
        (["--steps", "0"], "steps is 0"),
        (["--data", "nothing"], "nothing: no such file or folder, nor one of andersen"),
        (["--data", "gpt2-bpe"], "gpt2-bpe: no such file or folder, nor one of andersen, novels, speeches"),
        (["--preset", "paper"], "its tokenizer has 300 ids, preset paper needs 50257"),
        (["--precision", "f16"], "precision is 'f16'"),
    ],
)
def test_what_a_user_can_cause_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: list[str], message: str
) -> None:
    pytest.importorskip("torch")
    data = small_data(tmp_path)
    options = {"--arch": "arch4", "--data": str(data.folder), "--steps": "3", "--out": str(tmp_path / "o")}
    options[changes[0]] = changes[1]
    assert run(["train", *(word for pair in options.items() for word in pair)]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_too_short_a_text_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    text = write_text(tmp_path / "short.txt", count=3)
    command = ["train", "--arch", "arch4", "--steps", "3", "--data", str(text), "--out", str(tmp_path / "o")]
    assert run(command) == 2
    assert "too short for a vocabulary of 4096 ids" in capsys.readouterr().err
