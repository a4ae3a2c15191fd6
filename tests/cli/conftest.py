"""The command run in this process, and the models that its tests share."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from cli.main import run
from engine.convert_gguf import convert
from engine.geometry import Geometry
from tests.engine.gguf_files import LlamaGguf
from tests.engine.models import write_random_model


@dataclass(frozen=True)
class Outcome:
    """What a command printed and its exit code."""

    code: int
    out: str
    err: str


Cflow = Callable[..., Outcome]


@pytest.fixture
def cflow(capsys: pytest.CaptureFixture[str]) -> Cflow:
    """`cflow("bench", "-m", path)`; no message may be a traceback."""

    def invoke(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Outcome(code, captured.out, captured.err)

    return invoke


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A converted model with a tokenizer."""
    folder = tmp_path_factory.mktemp("llama")
    target = folder / "llama.cflow"
    convert(LlamaGguf().write(folder / "llama.gguf"), target)
    return target


@pytest.fixture(scope="session")
def moe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with experts and without a tokenizer."""
    path = tmp_path_factory.mktemp("moe") / "moe.cflow"
    return write_random_model(path, Geometry.named("tiny_arch2_4_combined"), seed=4)
