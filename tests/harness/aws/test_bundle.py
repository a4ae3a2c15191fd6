"""What the machine gets of the checkout."""

import shutil
import subprocess
from pathlib import Path

import pytest

from harness.aws import launch
from harness.aws.errors import AwsError

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(folder: Path, *arguments: str) -> str:
    """Runs git in a folder, whoever the user is."""
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    command = ["git", "-C", str(folder), *who, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_bundle_brings_the_last_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    git(checkout, "init", "--quiet")
    (checkout / "file").write_text("committed")
    git(checkout, "add", "file")
    git(checkout, "commit", "--quiet", "--message", "one")
    (checkout / "file").write_text("not committed")
    monkeypatch.setattr(launch, "ROOT", checkout)
    launch.write_bundle(tmp_path / "source.bundle")
    # As boot.sh does it.
    git(tmp_path, "clone", "--quiet", str(tmp_path / "source.bundle"), str(tmp_path / "clone"))
    assert git(tmp_path / "clone", "rev-parse", "HEAD") == git(checkout, "rev-parse", "HEAD")
    assert (tmp_path / "clone/file").read_text() == "committed"


def test_without_a_checkout_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(AwsError, match="is no git checkout"):
        launch.write_bundle(tmp_path / "source.bundle")


def test_without_git_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(AwsError, match="git is not installed"):
        launch.write_bundle(tmp_path / "source.bundle")
