"""A made-up cloud, time that passes only there, and the command run in this process."""

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.aws import instances, launch, watch
from harness.aws.__main__ import main
from harness.revision import Revision
from tests.harness.aws.cloud import Clock, Cloud, Command, FakeAws, Outcome, make_cloud


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """What the commands talk to."""
    made = make_cloud(tmp_path / "cloud", datetime.now(UTC).isoformat(timespec="seconds"))
    monkeypatch.setattr(FakeAws, "folder", str(made.folder))
    monkeypatch.setattr("harness.aws.__main__.Aws", FakeAws)
    # git takes a second each time; test_bundle.py has the real one
    monkeypatch.setattr("harness.aws.__main__.write_bundle", lambda path: path.write_bytes(b"bundle"))
    monkeypatch.setattr("harness.aws.__main__.revision", lambda _folder: Revision("0" * 40, False))
    return made


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Instead of time.sleep in the modules that wait."""
    made = Clock()
    for module in (instances, launch, watch):
        monkeypatch.setattr(module, "time", SimpleNamespace(sleep=made.sleep))
    return made


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """`command("up", "r6i.8xlarge")`."""

    def invoke(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Outcome(code, captured.out, captured.err)

    return invoke
