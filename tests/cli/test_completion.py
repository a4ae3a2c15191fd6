"""What a shell offers, asked as the shell's script asks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli import completion, main
from engine.geometry import GEOMETRIES
from harness.profiles import PROFILES
from harness.registry import load_registry

ROOT = Path(main.__file__).resolve().parent.parent


def offered(line: str) -> list[str]:
    """Words that bash would offer at the end of `line`."""
    words = line.split(" ")
    done = subprocess.run(
        [sys.executable, "-m", "cli.main"],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            main.COMPLETE_VARIABLE: "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.split()


def test_commands_and_names_are_offered() -> None:
    assert "doctor" in offered("cflow do")
    assert offered("cflow doctor --profile q") == ["quick"]
    assert "7.law" in offered("cflow explain 7.l")


@pytest.mark.parametrize(
    ("offer", "typed", "words"),
    [
        (completion.profile_names, "", [one.name for one in PROFILES]),
        (completion.geometry_names, "arch4", [name for name in GEOMETRIES if name.startswith("arch4")]),
        (completion.baseline_names, "l", ["llama.cpp"]),
        (completion.text_names, "and", ["andersen"]),
        (completion.architecture_names, "arch2", ["arch2_4_combined", "arch2_4_sync"]),
        (completion.preset_names, "t", ["tiny"]),
        (completion.claim_and_check_ids, "7.path", ["7.path"]),
        (completion.claim_and_check_ids, "zzz", []),
    ],
)
def test_names_that_begin_so(offer: completion.Offer, typed: str, words: list[str]) -> None:
    assert offer(typed) == words
    assert words or typed == "zzz"


def test_every_claim_and_check_is_offered() -> None:
    found = load_registry(ROOT / "claims/claims.toml")
    assert completion.claim_and_check_ids("") == [one.id for one in found.claims] + [
        one.id for one in found.checks
    ]


def test_a_registry_that_cannot_be_read_offers_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("cli.registry.claims_path", lambda: tmp_path / "none.toml")
    assert completion.claim_and_check_ids("") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_asks_this_command(shell: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", "--show-completion", shell],
        env={**os.environ, "PYTHONPATH": str(ROOT), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert main.COMPLETE_VARIABLE in done.stdout and "cflow" in done.stdout
