"""`python -m tools.startup`: what a user may get wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import startup


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["m.cflow", "--rounds", "0"], "--rounds"),
        (["m.cflow", "--rest", "-1"], "--rest"),
        (["m.cflow"], "m.cflow"),
    ],
)
def test_usage_errors_exit_with_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    fault: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["startup", *arguments])
    with pytest.raises(SystemExit) as ended:
        startup.main()
    assert ended.value.code == 2
    assert fault in capsys.readouterr().err.splitlines()[-1]
