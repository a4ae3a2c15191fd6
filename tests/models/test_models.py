"""The models of the engine's concurrency hold, wrong ones do not, and what they stand for exists."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tools.build_engine import ROOT
from tools.model import MODELS, RUNS, ModelError, Outcome, Run, check, check_all, main, missing_tools

FILES = sorted(MODELS.glob("*.pml")) + sorted(MODELS.glob("*.inc"))
SHORT = [run for run in RUNS if not run.is_long]
needs_spin = pytest.mark.skipif(
    bool(missing_tools()), reason=f"not installed: {missing_tools()} (apt install spin gcc)"
)


def heading(path: Path) -> str:
    """The comment at the top of a model."""
    return path.read_text(encoding="utf-8").partition("*/")[0]


def parts(path: Path) -> set[str]:
    """What a model is made of."""
    text = path.read_text(encoding="utf-8")
    return set(re.findall(r"^(?:inline|(?:active )?proctype) (\w+)\(", text, re.MULTILINE))


@pytest.fixture(scope="module")
def outcomes() -> Mapping[Run, Outcome | ModelError]:
    return dict(zip(SHORT, check_all(SHORT, jobs=2), strict=True))


@needs_spin
@pytest.mark.no_sanitizer
@pytest.mark.parametrize("run", SHORT, ids=lambda run: run.name)
def test_finds_what_it_should(outcomes: Mapping[Run, Outcome | ModelError], run: Run) -> None:
    outcome = outcomes[run]
    assert isinstance(outcome, Outcome), str(outcome)
    print(f"{run.name}: {outcome.states} states, {outcome.seconds:.1f} s")
    assert outcome.found == run.finds
    assert outcome.states > 0


@needs_spin
@pytest.mark.no_sanitizer
def test_a_model_that_does_not_compile_is_no_pass() -> None:
    with pytest.raises(ModelError, match="barrier.*failed"):
        check(Run("barrier", "N=two"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_functions_that_it_stands_for_exist(path: Path) -> None:
    sources = re.findall(r"engine/src/\w+\.c", heading(path))
    assert sources
    code = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in (*sources, "engine/src/exec.c"))
    table = heading(path).split("What stands for what")[1].split("\n *\n")[0]
    cited = set(re.findall(r"\b(?:cf|cflow)_\w+", heading(path)))
    # Those that have the same name in the model stand in front of "the same".
    same = set(", ".join(re.findall(r"\* +((?:\w+, )*\w+): the same", table)).split(", ")) - {""}
    assert same <= parts(path)
    cited |= same
    # The others have the name of a function or of its argument, or of a part of the model.
    others = set(re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", table)) - parts(path) - cited
    assert {name for name in others if f"{name}(" not in code} == set()
    assert len(cited) > 3
    missing = {name for name in cited if not re.search(rf"^(?!\s).*\b{name}\(", code, re.MULTILINE)}
    # The application's side is in session.c.
    session = (ROOT / "engine/src/session.c").read_text(encoding="utf-8")
    assert {name for name in missing if f"{name}(" not in session} == set()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_wrong_model_is_searched(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    named = set(re.findall(r"-D([A-Z_]+)\b(?!=)", heading(path).partition("Wrong on purpose")[2]))
    searched = {macro for run in RUNS if run.model == path.stem for macro in run.macros.split()}
    wrong = {run.macros.split()[-1] for run in RUNS if run.model == path.stem and run.finds != "nothing"}
    assert named - {"WEAK", "KEEP"} == wrong
    assert named <= searched
    for macro in wrong:
        assert macro in text or macro in (MODELS / "reader.inc").read_text(encoding="utf-8")


def test_an_unknown_model_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["model", "barier"])
    assert main() == 2
    assert "no model 'barier'; models are barrier, ring, staging" in capsys.readouterr().err


@needs_spin
@pytest.mark.no_sanitizer
def test_a_fault_that_was_not_expected_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tools.model.RUNS", (Run("barrier", "N=2 SLEEP_UNCOUNTED"),))
    monkeypatch.setattr("sys.argv", ["model"])
    assert main() == 1
    assert (
        "FAILED  barrier -DN=2 -DSLEEP_UNCOUNTED: deadlock found, expected nothing" in capsys.readouterr().out
    )
